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


def make(folder: Path, scale: float = 1.0, **behaviour: float) -> dict[str, str]:
    """Writes net, data and target into `folder`; returns what `edgecompress.deploy` takes."""
    folder.mkdir(parents=True, exist_ok=True)
    batch = Dim("batch", 1, 64)
    net = null.NullNet((TensorSpec("x", (batch, 4)),), (TensorSpec("y", (batch, 3)),), scale, **behaviour)  # type: ignore[arg-type]
    null.write(folder / "net.null", net)
    random = np.random.default_rng(0)
    for split, items in (("calibrate", 20), ("select", 20), ("test", 40)):
        (folder / "data" / split).mkdir(parents=True, exist_ok=True)
        np.save(folder / "data" / split / "x.npy", random.normal(size=(items, 4)).astype("float32"))
        np.save(folder / "data" / split / "labels.npy", random.integers(0, 3, size=items))
    (folder / "null.toml").write_text(TARGET, encoding="utf-8")
    return {"model": str(folder / "net.null"), "target": str(folder / "null.toml"), "data": str(folder / "data")}
