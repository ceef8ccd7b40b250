"""The interpreter of Core ML programs is held to Core ML's own rules: Apple's numbers and words.

data/mil_rules.toml has the numbers and words, each with its source, and what nobody says.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import mil_program
import numpy as np
import pytest
from mil_cases import Given

from edgecompress.core.errors import StageFailed
from edgecompress.engines.coreml.mil import ops, signature

pytestmark = pytest.mark.slow
TOLD = tomllib.loads((Path(__file__).parent / "data" / "mil_rules.toml").read_text(encoding="utf-8"))
RULES, UNSAID = TOLD["rule"], TOLD["unsaid"]
TYPES = {"f": "float32", "i": "int32", "b": "bool"}


def arrays(op: str, given: Given) -> Given:
    """Tensors as arrays, attributes as they are: by what the operator's function takes."""
    schema = signature.parameters(ops.REGISTRY[op])
    types = TYPES | ({"i": "uint8"} if op.startswith("constexpr_") else {})

    def array(value: Any) -> np.ndarray:
        found = np.asarray(value)
        return found.astype(types[found.dtype.kind])

    made = dict(given)
    for name in given.keys() & {n for n, known in schema.items() if not (known.convert or known.words)}:
        made[name] = [array(one) for one in given[name]] if schema[name].several else array(given[name])
    return made


def computed(entry: Given, folder: Path) -> list[np.ndarray]:
    results = [np.asarray(one) for one in entry["want"]]
    results = [one.astype(TYPES[one.dtype.kind]) for one in results]
    return list(mil_program.single(folder, entry["op"], arrays(entry["op"], entry["given"]), results).values())


@pytest.mark.parametrize("rule", RULES, ids=lambda e: f"{e['op']}: {e['says'][:40]}")
def test_an_operator_computes_what_apple_says(rule: Given, tmp_path: Path) -> None:
    assert rule["source"]
    for got, want in zip(computed(rule, tmp_path), rule["want"], strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "entry", [e for e in UNSAID if "given" in e], ids=lambda entry: f"{entry['op']}: {entry['says']}"
)
def test_what_core_ml_leaves_open_is_refused_by_name(entry: Given, tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match=entry["refused"]) as failed:
        computed(entry, tmp_path)
    assert repr(entry["op"]) in str(failed.value)


def test_each_rule_is_told_once_and_each_thing_unsaid_has_its_reason() -> None:
    named = Counter((entry["op"], entry["says"]) for entry in (*RULES, *UNSAID))
    assert max(named.values()) == 1 and {op for op, _ in named} <= ops.REGISTRY.keys()
    assert all(("refused" in entry) != ("so" in entry) for entry in UNSAID)
