"""A diagnosis for the tests of its page: every kind of row, and names that strangers chose."""

from __future__ import annotations

from typing import Any

HOSTILE = "<script>alert(1)</script>|`\u202e&amp;"
NOTHING = dict.fromkeys(
    ("sqnr_db", "own_sqnr_db", "growth_db", "effect", "range", "found", "outlier", "channel", "not_finite", "clipped")
)


def row(name: str, own: float | None, whole: float | None, **more: Any) -> dict[str, Any]:
    """A layer that is measured."""
    return {
        "name": name,
        "node": name,
        "type": "conv2d",
        "module": name,
        "operator": f"Conv_{name}",
        "output": f"tap_{name}",
        "dtype": "uint8",
        "shape": [1, 8, 4, 4],
        "sqnr_db": whole,
        "own_sqnr_db": own,
        "growth_db": 1.25,
        "effect": 2e-5,
        "range": [0.0, 3.5],
        "found": [0.0, 3.25],
        "outlier": 1.5,
        "channel": 3,
        "not_finite": 0,
        "clipped": 0.0,
        "reason": "",
        **more,
    }


def closer(name: str, largest: float) -> dict[str, Any]:
    """Eight channels, and values in four bins."""
    counts, edges = [9000, 40, 0, 1], [largest * i / 4 for i in range(5)]
    return {"name": name, "channels": [largest, *[2.0] * 6, 0.0], "histogram": {"counts": counts, "edges": edges}}


def diagnosis() -> dict[str, Any]:
    """diagnosis.json of a net in which a channel of the second layer is blown up."""
    exact = {"reason": "its own error: identical", "effect": 0.0, "growth_db": None}
    wild = {"effect": 1.25, "range": [0.0, 564.0], "found": [0.0, 560.0], "outlier": 172.5, "clipped": 0.0125}
    layers = [
        row("stem", 42.0, 42.0, growth_db=None),
        row("blocks.0.depth", 23.9, 23.8, **wild),
        {**row("blocks.0.relu", None, None), **NOTHING, "operator": "", "output": "", "dtype": "", "reason": "no tap"},
        row("pool", None, 4.0, **exact),
        row(HOSTILE, 31.0, 2.5, range=[-1.5, 2.0], found=[-9.0, 1.0], not_finite=2, dtype="float16"),
        row("a.very.long.name.of.a.module.somewhere.deep", 16.0, -0.5, effect=0.034, outlier=None, channel=None),
    ]
    return {
        "source": f"A net {HOSTILE}",
        "target": "x86",
        "variant": "int8",
        "runtime": "onnx",
        "items": 16,
        "split": "calibrate",
        "same": 0.0,
        "outputs": [{"name": "logits", "sqnr_db": -0.5}],
        "layers": layers,
        "closer": [closer("blocks.0.depth", 564.0), closer("stem", 3.5)],
        "unmatched": [f"Cast {HOSTILE}"],
        "first": "blocks.0.depth",
        "culprits": ["blocks.0.depth"],
        "says": f"blocks.0.depth makes 97% of the noise {HOSTILE}.",
        "advice": "equalize",
    }


def nothing() -> dict[str, Any]:
    """diagnosis.json where no layer has an output, and nothing is wrong."""
    layers = [{**row("all", None, None), **NOTHING, "operator": "", "output": "", "dtype": "", "reason": "no tap"}]
    empty = {"closer": [], "unmatched": [], "outputs": [], "first": None, "culprits": []}
    return {**diagnosis(), **empty, "layers": layers, "same": None, "says": "Nothing is wrong.", "advice": ""}
