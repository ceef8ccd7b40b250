"""A shipped folder made by hand around a small model, for the conformance suite and tests. Nothing is deployed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.commands.shipped_folder import Called, Origin
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Dim, Measured, TensorSpec
from edgecompress.data import tensors
from edgecompress.data.shipped_items import ANSWERS
from edgecompress.extras.apps import golden

if TYPE_CHECKING:
    import numpy as np


DATE = "2026-11-22T03:00:40Z"
VARIANT = "int8"


def write(
    artifact: Artifact,
    runtime: str,
    inputs: Mapping[str, np.ndarray],
    answers: Mapping[str, np.ndarray],
    source: Mapping[str, Json],
) -> Path:
    """Writes around FOLDER/artifact what a deploy writes there: test items, answers, report.json, deploy.json.

    `source`: of settings.Source "name", "model", "metric", ..., and "preprocess" as plain data. Returns FOLDER.
    """
    folder = artifact.path.parent
    _items(folder, artifact, inputs, answers)
    report(folder, artifact, runtime, source)
    return folder


def keep_raw(folder: Path, name: str, item: np.ndarray) -> None:
    """Adds the first test item as it came."""
    tensors.write_split(folder / "excerpt" / golden.RAW, {name: item})
    Artifact.read(folder / "excerpt").write()  # sealed again


def _items(
    folder: Path, artifact: Artifact, inputs: Mapping[str, np.ndarray], answers: Mapping[str, np.ndarray]
) -> None:
    """excerpt and verdict: the source answers here what the artifact does."""
    count = len(next(iter(inputs.values())))
    batch, layouts = Dim("batch", 1, count), {spec.name: spec.layout for spec in artifact.inputs}
    ends = [
        tuple(TensorSpec(k, (batch, *end[k].shape[1:]), str(end[k].dtype), layouts.get(k, "")) for k in end)
        for end in (inputs, answers)
    ]
    tensors.write_split(folder / "excerpt" / golden.SPLIT, inputs)
    tensors.write_split(folder / "excerpt" / golden.SOURCE, answers)
    facts = {"splits": {golden.SPLIT: count}}
    Artifact(folder / "excerpt", "excerpt", ends[0], ends[1], facts).write()
    tensors.write_split(folder / "verdict" / ANSWERS, answers)
    Artifact(folder / "verdict", "verdict", facts={"n": count}).write()


def report(folder: Path, artifact: Artifact, runtime: str, source: Mapping[str, Json]) -> None:
    """Writes deploy.json, and of a report.json what packages read; `source` as for `write`."""
    source = {"description": "", "labels": [], "licence": "", **source}
    metric = {"name": "top1", "unit": "fraction", "before": 1.0, "after": 1.0, "n": 3, "low": -0.1, "high": 0.1}
    numbers = {
        "latency": Measured("latency", None, "ms", "unavailable", reason="no round measured it"),
        "size": Measured("size", float(artifact.size_bytes), "bytes", n=1, source="the artifact's files"),
    }
    variant = {
        "name": VARIANT,
        "runtime": runtime,
        "artifact": {"kind": artifact.kind, "sha256": artifact.sha256, "size_bytes": artifact.size_bytes},
        "verify": {"metric": {**metric, "items_lost": 0, "items_gained": 0} if source["metric"] == "top1" else None},
        "numbers": {name: dataclasses.asdict(number) for name, number in numbers.items()},
    }
    recipe = {"name": VARIANT, "runtime": "", "compress": [{"use": VARIANT, "calibrator": "minmax"}]}
    facts = {
        "schema": "edgecompress/stages/report/1",
        "title": f"{source['name']} on x86",
        "date": DATE,
        "source": {key: value for key, value in source.items() if key != "preprocess"},
        "target": {"name": "x86", "runtime": runtime, "variant": [recipe], "package": "tar"},
        "device": {"name": "host"},
        "data": {"label_names": source["labels"], "preprocess": source.get("preprocess")},
        "versions": {"edgecompress": "0.1.0", "onnxruntime": "1.31.1", "numpy": "2.3.5"},
        "variants": [variant],
    }
    (folder / "report.json").write_text(json.dumps(facts), encoding="utf-8")
    name, model = str(source["name"]), str(source["model"])
    Origin(VARIANT, runtime, model, source=Called(name, model)).write(folder)
