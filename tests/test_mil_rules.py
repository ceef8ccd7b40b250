"""The interpreter of Core ML programs is held to Core ML's own rules: Apple's numbers, words, and foldings.

data/mil_rules.toml has the numbers and words, each with its source, and what nobody says. coremltools folds constants
by its own NumPy for most operators: that is the oracle for edges that nobody printed.
"""

from __future__ import annotations

import itertools
import sys
import tomllib
from pathlib import Path
from typing import Any

import mil_program
import numpy as np
import pytest
from mil_cases import BINARY, CASES, SLOPED, UNARY, Given
from test_mil_ops import ELSEWHERE, FIXED, expected

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


@pytest.mark.parametrize("entry", [e for e in UNSAID if "so" not in e], ids=lambda e: f"{e['op']}: {e['says'][:40]}")
def test_what_core_ml_leaves_open_is_refused_by_name(entry: Given, tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match=entry["refused"]) as failed:
        computed(entry, tmp_path)
    assert repr(entry["op"]) in str(failed.value)


# --------------------------------------------------------------------------- what coremltools folds

# It has no value for these; for `scatter_along_axis` one that ignores the mode.
UNFOLDED = """
avg_pool batch_norm batch_to_space conv conv_transpose crop depth_to_space gather_nd gru instance_norm l2_pool
local_response_norm lstm max_pool one_hot pixel_shuffle pixel_unshuffle reshape_like resize resize_bilinear
resize_nearest_neighbor reverse_sequence rnn scatter scatter_along_axis scatter_nd silu sliding_windows space_to_batch
space_to_depth upsample_bilinear upsample_nearest_neighbor
"""
ASIDE = {"interleave": True, "exclusive": True, "k": -1}  # forgotten by concat, wrong in cumsum, an end to topk


def folded(kind: str, given: Given) -> list[np.ndarray]:
    """The op's results as coremltools folds them, in a program of constants; none where it has no value."""
    sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]
    coreml = pytest.importorskip("coremltools")
    from coremltools.converters.mil.mil import Builder

    found: list[Any] = []

    @Builder.program(input_specs=[Builder.TensorSpec(shape=(1,))], opset_version=coreml.target.iOS18)  # type: ignore[untyped-decorator]
    def program(unused: Any) -> Any:
        result = getattr(Builder, kind)(**given)
        found.extend(result if isinstance(result, tuple | list) else [result])
        return Builder.identity(x=unused)

    later = hasattr(found[0].op, "materialized_val_inference")
    values = [v.op.materialized_val_inference() if v.val is None and later else v.val for v in found]
    return [] if any(value is None for value in values) else [np.asarray(value) for value in values]


def assert_as_folded(folder: Path, kind: str, given: Given, results: list[np.ndarray], want: list[np.ndarray]) -> None:
    for value, folds in zip(mil_program.single(folder, kind, given, results, tuple(FIXED)).values(), want, strict=True):
        np.testing.assert_allclose(value, folds, rtol=1e-4, atol=1e-5, strict=False)
        assert value.shape == folds.shape


@pytest.mark.parametrize("name", sorted(ops.REGISTRY.keys() - ELSEWHERE))
def test_an_operator_computes_what_coremltools_folds(name: str, tmp_path: Path) -> None:
    compared = 0
    for round_, make in itertools.product(range(4), CASES[name]):
        kind, given, reference = make(np.random.default_rng([round_, len(name), 7]))
        if name in UNFOLDED.split() or any(given.get(key) == value for key, value in ASIDE.items()):
            continue
        try:
            want = folded(kind, given)
        except (TypeError, ValueError):  # its own: an empty slice, the product of no axes
            continue
        compared += len(want)
        assert_as_folded(tmp_path / f"{compared}", kind, given, expected(reference(**given), np.float32), want)
    assert bool(compared) == (name not in UNFOLDED.split())


NUMBERS = np.array(
    [-np.inf, -1e3, -2.5, -1.5, -0.5, -1e-3, -0.0, 0, 1e-3, 0.5, 1, 1.5, 2.5, 6.5, 88, 1e3, np.inf, np.nan], "float32"
)
WHOLE = np.array([-7, -3, -1, 1, 2, 7], "int32")


def edges() -> dict[str, list[Given]]:
    """Each elementwise operator of every number at an edge, or of every pair."""
    floats, whole = (dict(zip("xy", map(np.copy, np.meshgrid(*s)), strict=True)) for s in ([NUMBERS] * 2, [WHOLE] * 2))
    made: dict[str, list[Given]] = {name: [{"x": NUMBERS}] for name in UNARY if name != "silu"}
    for name, (_, count) in SLOPED.items():
        slopes = [dict([("alpha", alpha), ("beta", beta)][:count]) for alpha, beta in ((0.5, 2.0), (-0.5, 1.0))]
        made[name] = [{"x": NUMBERS, **slope} for slope in slopes]
    made |= {name: [floats, whole] for name in BINARY if name != "mod"} | {"real_div": [floats], "pow": [floats]}
    made["gelu"] = [{"x": NUMBERS, "mode": f"{word}_APPROXIMATION"} for word in ("TANH", "SIGMOID")]
    made["gelu"].append({"x": NUMBERS, "mode": "EXACT"})
    made["cast"] = [{"x": NUMBERS[2:14], "dtype": dtype} for dtype in ("int32", "int8", "bool")]
    steps = {"input": NUMBERS[1:-2], "scale": np.float32(0.5)}
    made["quantize"] = [{**steps, "zero_point": np.array(3, t), "output_dtype": t} for t in ("int8", "uint8")]
    return made


@pytest.mark.parametrize(("name", "each"), edges().items())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_operator_computes_at_its_edges_what_it_folds(name: str, each: list[Given], tmp_path: Path) -> None:
    for index, given in enumerate(each):
        want = folded(name, given)
        results = [one.astype({**TYPES, "u": "uint8"}[one.dtype.kind]) for one in want]
        assert_as_folded(tmp_path / f"{index}", name, given, results, want)
