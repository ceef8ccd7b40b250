"""What benchmarks/any_source.py calls broken."""

from __future__ import annotations

from typing import Any

import prove
import pytest

PAIRED = {"low": -0.01, "high": 0.02}


@pytest.mark.parametrize(
    ("ours", "theirs", "more", "says"),
    [
        ({}, {}, {}, []),
        ({"litert-int8": 30.1}, {"litert-int8": 33.0}, {}, []),
        ({"litert-int8": 29.9}, {"litert-int8": 33.0}, {}, ["litert-int8 29.9, from torch 33.0"]),
        ({"coreml-fp32": 101.0}, {"coreml-fp32": None}, {}, []),  # the order of additions
        ({"coreml-fp32": 99.0}, {"coreml-fp32": None}, {}, ["coreml-fp32 99.0, from torch same"]),
        ({"coreml-fp32": -float("inf")}, {}, {}, ["coreml-fp32 none, from torch 120.0"]),
        ({}, {}, {"import_db": 99.0}, ["import 99.0"]),
        ({}, {}, {"macs": 7}, ["7 MACs after pruning, from torch 5"]),
        ({}, {}, {"net": "digits"}, ["accuracy after training"]),
        ({}, {}, {"net": "digits", "trained": PAIRED}, []),
        ({}, {}, {"net": "digits", "trained": {"low": 0.01, "high": 0.02}}, ["accuracy after training"]),
    ],
)
def test_what_does_not_hold_is_named(
    ours: dict[str, Any], theirs: dict[str, Any], more: dict[str, Any], says: list[str]
) -> None:
    script = prove.benchmark("any_source")
    same = dict.fromkeys(script.FORMATS, 120.0)
    torch, onnx = (
        script.Side({**same, **given}, macs, {}) for given, macs in ((theirs, 5), (ours, more.get("macs", 5)))
    )
    row = script.Row(more.get("net", "lstm"), more.get("import_db", 137.0), torch, onnx, more.get("trained"), 1.0)
    assert list(script.broken(row)) == says
