"""Models that are objects of a Python program, as files in the store, which workers load by reference."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.commands import object_data
from edgecompress.core import user_code
from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.core.settings import is_factory
from edgecompress.pipeline import job, store_place
from edgecompress.pipeline.job_request import Data, How, JobRequest, Model, Options, checked
from edgecompress.pipeline.store import Store

if TYPE_CHECKING:
    import keras
    import onnx
    import torch

KNOWN = "a factory pkg.mod:fn, a path, a torch.nn.Module, a function that returns one, a Keras or an ONNX model"


def written(model: Model | None, how: How, options: Options) -> JobRequest:
    """The request for a model, with references to it and to its data: text as it is, objects as files in the store.

    Raises InputError. A torch module is exported by the request's batch and settings.
    """
    checked(how)
    given = Given(options, how.get("batch", 1), how.get("settings") or {})
    reference = None if (data := how.get("data")) is None else given.data(data)
    request: JobRequest = {**how, "data": reference}  # type: ignore[typeddict-item]
    return request | JobRequest(model=None if model is None else given.model(model, reference))


@dataclass(frozen=True)
class Given:
    """Writes what a call gives into its store."""

    options: Options
    batch: int
    settings: Mapping[str, Json]

    def data(self, data: Data) -> str:
        """The reference to data."""
        if (reference := text(data)) is not None:
            return reference
        return importable(data) or self._kept("data", lambda place: object_data.write(data, place))

    def model(self, model: object, data: str | None) -> str:
        """The reference to a model; a function that no worker can import is called for it."""
        if (reference := text(model)) is not None:
            return reference
        if not (kept := self._net(model, data)) and callable(model):
            if reference := importable(model):
                return reference
            kept = self._net(_called(model), data)
        if not kept and isinstance(model, Mapping):
            raise InputError("model: is a dictionary, as weights are; give the module that has loaded them")
        if not kept:
            raise InputError(f"model: cannot take a {type(model).__name__}; give {KNOWN}")
        return kept

    def _net(self, net: object, data: str | None) -> str:
        """The file of a net; "" where it is none."""
        if _is(net, "torch", "export.ExportedProgram"):
            return self._kept("program.pt2", lambda place: _save_program(net, place))
        if _is(net, "keras", "Model"):  # before torch's: on its backend it is a module, too
            return self._kept("model.keras", lambda place: _save_keras(net, place))
        if _is(net, "torch", "nn.Module"):
            return self._kept(f"{type(net).__name__}.pt2", lambda place: self._export(net, data, place))
        if _is(net, "onnx", "ModelProto"):
            return self._kept("model.onnx", lambda place: _save_onnx(net, place))
        return ""

    def _export(self, net: torch.nn.Module, data: str | None, place: Path) -> None:
        from edgecompress.stages import live_module

        source = job.source(str(place), self.settings, data=data).value
        if not source.data or source.random:
            raise InputError(
                f"data: a {type(net).__name__} is exported with its first items; give arrays or a DataLoader"
            )
        _save_program(live_module.exported(net, source, self.batch), place)

    def _kept(self, name: str, write: Callable[[Path], None]) -> str:
        return str(Store(store_place.root(self.options.store)).give(name, write))


# --------------------------------------------------------------------------- references


def text(given: object) -> str | None:
    """A reference or a path as text; None for any other object."""
    return os.fsdecode(given) if isinstance(given, (str, bytes, os.PathLike)) else None


def importable(given: object) -> str:
    """The reference pkg.mod:fn to a function that a worker can import, or "": to a notebook's own, or an inner one."""
    where, name = str(getattr(given, "__module__", "")), str(getattr(given, "__qualname__", ""))
    named = is_factory(f"{where}:{name}") and getattr(sys.modules.get(where), name, None) is given
    return f"{where}:{name}" if named and where != "__main__" and _workers_find(where.partition(".")[0]) else ""


def _workers_find(package: str) -> bool:
    """Whether a worker imports the same: from what is installed, or from the working folder."""
    code = "import sys; from importlib.util import find_spec as find; sys.path.append(sys.argv[2])"
    told = "spec = find(sys.argv[1]); print(spec and [spec.origin, *(spec.submodule_search_locations or ())])"
    words = [sys.executable, "-P", "-c", f"{code}; {told}", package, os.getcwd()]
    found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    spec = sys.modules[package].__spec__
    return spec is not None and found == str([spec.origin, *(spec.submodule_search_locations or ())])


def _called(function: Callable[[], object]) -> object:
    try:
        return function()
    except Exception as error:
        raise InputError(f"model: the function given raised {user_code.error_line(error)}") from error


def _is(given: object, library: str, name: str) -> bool:
    """Whether it is of a class of a library, which is not imported for the question."""
    return library in sys.modules and isinstance(given, operator.attrgetter(name)(sys.modules[library]))


# --------------------------------------------------------------------------- files


def _save_program(program: torch.export.ExportedProgram, place: Path) -> None:
    import torch

    torch.export.save(program, place)


def _save_keras(net: keras.Model, place: Path) -> None:
    """Written again without the times that Keras writes: the same net is the same file."""
    net.save(place)
    with zipfile.ZipFile(place) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    about = json.loads(parts["metadata.json"])
    parts["metadata.json"] = json.dumps({**about, "date_saved": ""}).encode()
    with zipfile.ZipFile(place, "w") as file:
        for name, content in parts.items():
            file.writestr(zipfile.ZipInfo(name), content)


def _save_onnx(net: onnx.ModelProto, place: Path) -> None:
    from onnx import external_data_helper as external

    save = "save it with onnx.save(net, file, save_as_external_data=True), and give the path of the file"
    if any(map(external.uses_external_data, net.graph.initializer)):
        raise InputError("model: the weights of this ONNX model are in files that it does not name; give its path")
    try:
        place.write_bytes(net.SerializeToString(deterministic=True))
    except Exception as error:  # protobuf's own: a message has 2 GiB at most
        raise InputError(f"model: an ONNX model of more than 2 GiB cannot be written from memory; {save}") from error
