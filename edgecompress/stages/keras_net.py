"""A Keras net on the torch backend: it is called by the names of its inputs, and becomes a graph of torch layers.

Keras holds the weights of such a net aside and calls torch's functions: it has no layer that could be pruned or
quantized. As ONNX, imported again, it has.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import extras, package_files, user_code
from edgecompress.core.errors import InputError, MissingDependency
from edgecompress.data import output_error
from edgecompress.formats import torch_module

if TYPE_CHECKING:
    import torch

LEAST_DB = 60.0  # of an output of the graph against the net's


def is_one(net: object) -> bool:
    """Whether it is a Keras net; Keras is not imported for the question."""
    return "keras" in sys.modules and isinstance(net, sys.modules["keras"].Model)


def called(net: Any, reference: str) -> torch.nn.Module:
    """The net, taking its inputs by their names. Raises InputError where it has none."""
    import torch

    names = [tensor.name for tensor in getattr(net, "inputs", None) or ()]
    if not names or not all(name.isidentifier() for name in names):
        raise InputError(
            f"{reference}: its Keras model has no named inputs; make it of keras.Input(shape, name=...) with names of "
            "letters, digits and _"
        )

    class Called(torch.nn.Module):  # type: ignore[misc]
        flat_names = True

        def __init__(self) -> None:
            super().__init__()
            self.net, self.forward = net, _by_name(net, names)

    return Called().eval()


def _by_name(net: Any, names: Sequence[str]) -> Callable[..., Any]:
    """The call of a net with a parameter for each of its inputs."""

    def forward(**inputs: torch.Tensor) -> Any:
        given = [inputs[name] for name in names]
        mapped = isinstance(getattr(net, "_inputs_struct", None), Mapping)
        return net(inputs if mapped else given if given[1:] else given[0], training=False)

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return forward


def graph(
    net: torch.nn.Module, example: Mapping[str, torch.Tensor], outputs: Sequence[str], place: tuple[Path, str]
) -> torch.nn.Module:
    """The net as an ONNX file and, imported, as torch layers; `place`: the file, and what errors call the net.

    `example`: at least two items of each input; other axes get its sizes. Raises InputError where the net cannot be
    exported, has an operator that the import does not know, or answers otherwise than Keras.
    """
    import torch

    file, reference = place
    try:
        import onnxscript  # noqa: F401 - torch's exporter asks for it after a minute

        onnx_net = extras.part("onnx_nets", "net")
    except ImportError as error:
        raise MissingDependency(
            f"{reference}: a Keras net needs {error.name}, not installed; run: {package_files.install('torch,onnx')}"
        ) from error
    flat = torch_module.flat(net, list(example), outputs)
    try:
        torch.onnx.export(
            flat,
            tuple(example.values()),
            str(file),
            input_names=list(example),
            output_names=list(outputs),
            dynamic_shapes={"inputs": tuple({0: torch.export.Dim("batch")} for _ in example)},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    except Exception as error:
        raise InputError(
            f"{reference}: its Keras model cannot be exported: {user_code.error_line(error)}; save it as a .keras file"
        ) from error
    made = onnx_net.load(file)
    _check(flat, made, example, reference)
    return made


def _check(flat: torch.nn.Module, made: torch.nn.Module, example: Mapping[str, torch.Tensor], reference: str) -> None:
    """Raises InputError where the graph answers otherwise than the net."""
    import torch

    with torch.inference_mode():
        wanted, found = flat(*example.values()), made(**example)
    for right, (name, ours) in zip(wanted, found.items(), strict=True):
        db = output_error.compare(right.numpy(), ours.numpy(), name).facts()["sqnr_db"]
        if db is not None and db < LEAST_DB:
            raise InputError(
                f"{reference}: as torch layers its output '{name}' is {db:.0f} dB from what Keras answers; save it as "
                "a .keras file"
            )
