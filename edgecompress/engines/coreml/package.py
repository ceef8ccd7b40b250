"""A saved .mlpackage: its program, as protobuf messages, and its weights. Nothing is read outside the package."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core import package_files
from edgecompress.core.errors import InputError, MissingDependency, blamed, brief
from edgecompress.formats import mlpackage

if TYPE_CHECKING:
    from coremltools.proto import MIL_pb2, Model_pb2

WEIGHTS = Path("weights", "weight.bin")  # beside the model
WEIGHTS_NAME = f"@model_path/{WEIGHTS.as_posix()}"  # what the program calls it
MESSAGES = "_edgecompress_coreml_messages"  # the name under which the protobuf classes are imported


def read(package: Path) -> tuple[Model_pb2.Model, Path]:
    """The `Model` message of a package and the path of its weights, which need not exist."""
    file = inside(package, mlpackage.MODEL)
    try:
        model = messages("Model_pb2").Model.FromString(file.read_bytes())
    except OSError as error:
        raise blamed(error)(f"{file}: cannot be read: {error.strerror}; give a saved .mlpackage folder") from error
    except Exception as error:  # protobuf's DecodeError: the library is not imported here
        raise InputError(f"{file}: not a Core ML model: {error}; convert the model again") from error
    return model, inside(package, mlpackage.MODEL.parent / WEIGHTS)


def main_function(package: Path, model: Model_pb2.Model) -> tuple[MIL_pb2.Function, MIL_pb2.Block]:
    """The function that a program runs, and its block. Raises InputError for a model that has none."""
    if model.WhichOneof("Type") != "mlProgram":
        raise InputError(f"{package}: a Core ML {model.WhichOneof('Type')}, not a program; convert it to an mlprogram")
    name, functions = model.description.defaultFunctionName or "main", model.mlProgram.functions
    if name not in functions:
        raise InputError(f"{package}: the program has no function {name!r}; convert the model again")
    function = functions[name]
    if function.opset not in function.block_specializations:
        raise InputError(f"{package}: the program has no block for its opset {function.opset!r}; convert it again")
    return function, function.block_specializations[function.opset]


@contextlib.contextmanager
def parsed(package: Path) -> Iterator[None]:
    """What the body raises about a message whose parts are not those of a program is raised as InputError."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError) as error:
        line = brief(str(error))
        raise InputError(f"{package}: not a valid program: {line or type(error).__name__}; convert it again") from error


def inside(package: Path, part: Path) -> Path:
    """A file of the package; raises InputError where a link leads out of it."""
    file = package / part
    if not file.resolve().is_relative_to(package.resolve()):
        raise InputError(f"{file}: points outside the package; copy the file into it")
    return file


def messages(name: str) -> ModuleType:
    """A module of coremltools' protobuf classes, without coremltools itself: that would import torch and TensorFlow."""
    if MESSAGES not in sys.modules:
        spec = importlib.util.find_spec("coremltools")
        if spec is None:
            raise MissingDependency(f"coremltools is not installed; run: {package_files.install('coreml')}")
        _import_folder(MESSAGES, spec.submodule_search_locations or [])
    return importlib.import_module(f"{MESSAGES}.{name}")


def _import_folder(name: str, roots: Sequence[str]) -> None:
    folder = Path(roots[0], "proto")
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise MissingDependency(f"{folder}: no protobuf classes there; reinstall coremltools 9")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
