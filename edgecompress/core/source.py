"""A source as its stages have it: what kind of model it is, and the call that loads it, decided once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgecompress.core import config, extras, foreign_model, registry
from edgecompress.core.catalog import check_file
from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.core.settings import Source

TORCH = ("module", "program")
DECODED = ("module", "onnx")  # what a raw head can be decoded behind
LOAD = "stages.trace:load"  # what loads a torch net
PRETRAINED = "extras.hugging_face.pretrained:load"  # and one of a Hugging Face folder
CONFIG = "config.json"  # what such a folder is known by
MASK = "attention_mask"  # the input of its net that has 1 where there is a token
LENGTHS = "lengths"  # in the facts of samples that are to be run at several: those, the shortest first


@dataclass(frozen=True)
class ResolvedSource(Source):
    """A source whose kind is known. It reaches a worker as plain JSON of this class, `read` takes it from there."""

    kind: str = "module"  # or "program", or the format of the runtime that reads its file
    call: str = LOAD  # loads it
    runs_code: bool = True  # loading it runs its author's code

    @property
    def torch(self) -> bool:
        """Whether it is a torch net, which is loaded with samples."""
        return self.kind in TORCH

    @property
    def runtime(self) -> str:
        """The runtime that reads it, where it is no torch net."""
        return "" if self.torch else self.call.split(":")[0].removeprefix("runtimes.")

    @property
    def sized(self) -> bool:
        """Whether it is loaded with samples: a torch net, or a file whose open axes get the sizes of the data's."""
        return self.torch or (not self.random and registry.runtime(self.runtime).sized)

    def files(self, part: Literal["model", "data"]) -> tuple[str, ...]:
        """The file or folder that a part is, if it is one."""
        made = self.calls(part) or (part == "data" and self.random)
        return () if made else (getattr(self, part),)

    @property
    def data_files(self) -> tuple[str, ...]:
        """What is read for its data: the model, too, where its folder may have the tokenizer."""
        return (*self.files("data"), *(self.files("model") if self.call == PRETRAINED else ()))

    def for_model(self) -> dict[str, Json]:
        """The options of the stage that loads it: no other key of it changes the result."""
        words = {"dynamic": self.dynamic, "constants": self.constants, "state": self.state}
        words |= {"decode": dataclasses.asdict(self.decode)} if self.decode else {}
        if not self.torch:
            return {"path": self.model, **words}
        return {"source": {"model": self.model, "kind": self.kind, "task": self.task, **words}}

    def for_data(self, augment: bool = False) -> dict[str, Json]:
        """The options of a stage that reads its data; `augment`: to train on."""
        words = dataclasses.replace(self, name="", description="", licence="", constants={})
        return {"source": dataclasses.asdict(words if augment else dataclasses.replace(words, augment=()))}


def read(options: Mapping[str, Any]) -> ResolvedSource:
    """The source in the options of a stage."""
    return config.build(ResolvedSource, options["source"], "source")


def is_pretrained(model: Path) -> bool:
    """Whether a model is a Hugging Face folder."""
    return _holds(model, CONFIG)


def resolved(source: Source) -> ResolvedSource:
    """A source with its kind; raises InputError for a model that no runtime loads."""
    kind, call, runs_code = _kind(source)
    if call == PRETRAINED:
        source = extras.part("hugging_face", "source").resolved(source)
    if source.decode and (call == PRETRAINED or kind not in DECODED):
        raise InputError(f"{source.model}: decode is for torch factories and .onnx files; export the net as .onnx")
    return ResolvedSource(**vars(source), kind=kind, call=call, runs_code=runs_code)


def _kind(source: Source) -> tuple[str, str, bool]:
    if source.calls("model"):
        return "module", LOAD, True
    path = Path(source.model)
    if is_pretrained(path):
        return "module", PRETRAINED, True
    suffixes = {".pt2": ("program", LOAD, True)}
    offered = set(suffixes)
    for runtime in registry.runtimes():
        if runtime.read is None:
            continue
        read = (runtime.format, f"runtimes.{runtime.name}:read", runtime.runs_code)
        if runtime.suffix:
            suffixes |= dict.fromkeys((runtime.suffix, *runtime.old_suffixes), read)
            offered |= set() if runtime.for_tests else {runtime.suffix}
        if runtime.folder and _holds(path, runtime.folder):
            return read
    if path.exists() and (error := foreign_model.refused(path)):
        raise error
    if path.suffix not in suffixes and path.suffix not in foreign_model.ADVICE:
        known = ", ".join(sorted(offered))
        raise InputError(
            f"{source.model}: {'' if path.exists() else 'no such file or folder; '}a model must be a factory "
            f"pkg.mod:fn, a SavedModel, a Hugging Face folder, or a file ending in {known}"
        )
    check_file(path, "model file")
    return suffixes[path.suffix]


def _holds(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except OSError:  # a name that is too long
        return False
