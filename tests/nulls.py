"""A null net with its data and target: what the tests of the pipeline deploy, with no torch and in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgecompress.core.model import Dim, TensorSpec
from edgecompress.engines.null.runtimes import null

TARGET = """
description = "a null net"
runtime = "null"
[limits]
items_lost = 0
[[variant]]
name = "plain"
"""

FAST = {
    "profile.more_sessions": 0,
    "profile.warmup_s": 0.0,
    "profile.warmup_runs": 1,
    "profile.window_s": 0.02,
    "profile.window_runs": 3,
}


def make(folder: Path, scale: float = 1.0, width: int = 4, items: int = 20, **behaviour: float) -> dict[str, str]:
    """Writes net, data and target into `folder`; returns what `edgecompress.deploy` takes.

    An item is `width` numbers; the split test has twice as many items as each of the others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    batch = Dim("batch", 1, 64)
    net = null.NullNet((TensorSpec("x", (batch, width)),), (TensorSpec("y", (batch, 3)),), scale, **behaviour)  # type: ignore[arg-type]
    null.write(folder / "net.null", net)
    random = np.random.default_rng(0)
    for split, count in (("calibrate", items), ("select", items), ("test", 2 * items)):
        (folder / "data" / split).mkdir(parents=True, exist_ok=True)
        np.save(folder / "data" / split / "x.npy", random.normal(size=(count, width)).astype("float32"))
        np.save(folder / "data" / split / "labels.npy", random.integers(0, 3, size=count))
    (folder / "null.toml").write_text(TARGET, encoding="utf-8")
    return {"model": str(folder / "net.null"), "target": str(folder / "null.toml"), "data": str(folder / "data")}
