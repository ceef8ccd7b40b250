"""What the checks of several kinds share: constants, options, artifacts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgecompress.core import config
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors

if TYPE_CHECKING:
    import numpy as np


def default_options(module: ModuleType, says: str) -> Any:
    options = getattr(module, "Options", None)
    assert dataclasses.is_dataclass(options), f"{says}: Options must be a dataclass"
    assert vars(options)["__dataclass_params__"].frozen, f"{says}: Options must be frozen"
    wanting = [f.name for f in dataclasses.fields(options) if _has_no_default(f)]
    assert not wanting, f"{says}: options without a default: {wanting}; `use = ...` alone must do something sensible"
    return config.build(options, {}, says)  # type: ignore[arg-type]


def _has_no_default(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def check_same_inputs_and_outputs(result: Artifact, model: Artifact, says: str) -> None:
    for end in ("inputs", "outputs"):
        before, after = ([spec.name for spec in getattr(a, end)] for a in (model, result))
        assert before == after, f"{says}: {end} were {before}, are {after}; an app finds tensors by these names"


def check_constants(module: ModuleType, says: str, kinds: Mapping[str, type]) -> None:
    assert (module.__doc__ or "").strip(), f"{says}: a docstring: its first line is shown in lists and help"
    for name, kind in {"REQUIRES": tuple, **kinds}.items():
        value = getattr(module, name, None)
        assert isinstance(value, kind), f"{says}: {name} must be a {kind.__name__}, not {value!r}"


def stage(function: Callable[[Request], Artifact], inputs: Mapping[str, Artifact], out: Path, options: Any) -> Artifact:
    out.mkdir(parents=True, exist_ok=True)
    return function(Request(inputs, out, options))


def check_artifact(artifact: Artifact, kind: str, says: str) -> None:
    assert artifact.kind == kind, f"{says}: promised {kind}, made {artifact.kind}"
    assert artifact.sha256 == artifact.digest(), f"{says}: its sha256 is not that of its content"
    assert Artifact.read(artifact.path) == artifact, f"{says}: the card on disk is not what was returned"
    assert artifact.files(), f"{says}: the artifact is empty"
    assert artifact.inputs and artifact.outputs, f"{says}: an artifact has input and output specs"
    places = [p for p in artifact.path.rglob("*") if p.is_dir() and not any(p.iterdir())]
    assert not places, f"{says}: it left empty folders behind: {[p.name for p in places]}"


def item(data: Artifact) -> dict[str, np.ndarray]:
    """One item of the test split, as a batch of one."""
    return next(tensors.batches(data, "test", 1))
