"""What the checks of several kinds share: constants, options, artifacts."""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core import config, plugins
from edgecompress.core.model import Artifact, Request
from edgecompress.core.plugins import Plugin
from edgecompress.data import tensors

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import DataclassInstance

# What a field of a description holds, by the first word of its type
FIELD_TYPES: Mapping[str, type] = {
    **{kind.__name__: kind for kind in (bool, int, str, tuple, type)},
    "Mapping": collections.abc.Mapping,
    "Callable": collections.abc.Callable,  # type: ignore[dict-item]
    "Status": str,
    "Any": object,
}
NEARLY = 0.8  # of a name's letters, as difflib counts them


def default_options(module: ModuleType, says: str) -> object:
    options = getattr(module, "Options", None)
    assert dataclasses.is_dataclass(options), f"{says}: Options must be a dataclass"
    assert vars(options)["__dataclass_params__"].frozen, f"{says}: Options must be frozen"
    missing = dataclasses.MISSING
    wanting = [f.name for f in dataclasses.fields(options) if f.default is f.default_factory is missing]
    assert not wanting, f"{says}: options without a default: {wanting}; `use = ...` alone must do something sensible"
    return config.build(options, {}, says)  # type: ignore[arg-type]


def check_same_inputs_and_outputs(result: Artifact, model: Artifact, says: str) -> None:
    for end in ("inputs", "outputs"):
        before, after = ([spec.name for spec in getattr(a, end)] for a in (model, result))
        assert before == after, f"{says}: {end} were {before}, are {after}; an app finds tensors by these names"


def check_described(module: ModuleType, cls: type[Plugin], says: str) -> None:
    """It has a docstring, all that the description of its kind requires, and no misspelt part of it."""
    assert (module.__doc__ or "").strip(), f"{says}: a docstring: its first line is shown in lists and help"
    check_parts(module, cls, says)


def check_parts(thing: object, cls: type[DataclassInstance], says: str) -> None:
    """What `thing` defines is what the class of its description holds; what is nearly one of its names is a finding."""
    known = plugins.capabilities(cls)
    for key, field in known.items():
        kind = FIELD_TYPES[str(field.type).partition("[")[0].partition(" ")[0]]
        if hasattr(thing, key) or plugins.required(field):
            value = getattr(thing, key, None)
            assert isinstance(value, kind), f"{says}: {key} must be a {kind.__name__}, not {value!r}"
    names = vars(thing) if isinstance(thing, ModuleType) else {**vars(type(thing)), **getattr(thing, "__dict__", {})}
    own = {n: v for n, v in names.items() if not n.startswith("_") and not isinstance(v, ModuleType)}
    for name, value in own.items():
        form = "class" if isinstance(value, type) else "function" if callable(value) else "constant"
        lacking = {key.upper(): key for key, f in known.items() if not hasattr(thing, key) and form == _form_of(f)}
        near = difflib.get_close_matches(name.upper(), lacking, 1, NEARLY)
        assert not near, f"{says}: {name} is nothing that anybody asks for; did you mean '{lacking[near[0]]}'?"


def _form_of(field: dataclasses.Field[object]) -> str:
    return "function" if plugins.is_function(field) else "class" if field.name == "options" else "constant"


def stage(
    function: Callable[[Request], Artifact], inputs: Mapping[str, Artifact], out: Path, options: object
) -> Artifact:
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
