"""An ONNX file becomes a torch "module": from there it goes to every format, and can be pruned and trained."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, first_line
from edgecompress.core.model import Artifact, Request
from edgecompress.data import output_error, states, tensors
from edgecompress.formats import torch_module

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.extras.onnx_nets.net import OnnxNet

REQUIRES = ("torch", "safetensors", "onnx", "onnxruntime")
EXTRA = "torch"
NEEDS = ("samples", "golden")

ITEMS = 8  # that are compared with what ONNX Runtime answers
LEAST_DB = 60.0  # of an output; what differs in the order of additions alone has over 100


def run(request: Request) -> Artifact:
    """The file "model" as a "module"; inputs: "samples", and "golden", what ONNX Runtime answers to its test items.

    facts: {"parity_db": the least of its outputs}. Raises InputError: an operator has no entry in the table, a size
    depends on values, or the net answers otherwise; the first node that does is named.
    """
    from edgecompress.extras.onnx_nets import net as imported

    model, samples, golden = request.model, request.inputs["samples"], request.inputs["golden"]
    shutil.copyfile(model.file(".onnx"), request.out / torch_module.GRAPH)
    net = imported.load(request.out / torch_module.GRAPH)
    try:
        worst = _parity(net, model, samples, golden)
    except InputError:
        raise
    except Exception as error:  # whatever torch raises where a graph asks for what it has not
        raise InputError(f"as a torch net it cannot be computed: {first_line(error)}") from error
    if worst < LEAST_DB:
        where = _first_that_differs(net, request.out / torch_module.GRAPH, _items(model, samples, 1))
        raise InputError(f"as a torch net it has other results than ONNX Runtime ({worst:.0f} dB): {where}")
    torch_module.write(net, request.out, torch_module.GRAPH, [])
    return Artifact(request.out, "module", model.inputs, model.outputs, {"parity_db": worst}).write()


def _items(model: Artifact, samples: Artifact, count: int) -> dict[str, np.ndarray]:
    """The first test items, as many as the net takes at once."""
    batch = model.batch
    return next(tensors.batches(samples, "test", batch if isinstance(batch, int) else count, model=model))


def _parity(net: OnnxNet, model: Artifact, samples: Artifact, golden: Artifact) -> float:
    """The least ratio of signal to error among the outputs, in dB."""
    import torch

    given = {name: torch.from_numpy(array) for name, array in _items(model, samples, ITEMS).items()}
    with torch.inference_mode():
        found = net(**given)
    worst = float("inf")
    for spec in golden.outputs:
        ours = states.parted(found[spec.name].numpy(), spec)
        expected = tensors.load(golden, "test", spec.name)[: len(ours)]
        ours = ours[: len(expected)]  # of few items the last is there again
        if ours.size != expected.size:
            raise InputError(
                f"as a torch net its output '{spec.name}' is {list(ours.shape)}, not {list(expected.shape)}"
            )
        worst = min(worst, _db(expected, ours.reshape(expected.shape)))
    return worst


def _db(expected: np.ndarray, found: np.ndarray) -> float:
    sqnr = output_error.compare(expected, found, "").facts()["sqnr_db"]
    return 999.0 if sqnr is None else float(sqnr)


def _first_that_differs(net: OnnxNet, file: Path, given: Mapping[str, np.ndarray]) -> str:
    """The first node whose answer is another than in ONNX Runtime, in words."""
    import numpy as np
    import onnx
    import onnxruntime
    import torch

    proto = onnx.load_model(file)
    known = {value.name for value in proto.graph.output}
    names = [name for node in proto.graph.node for name in node.output if name and name not in known]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    every = [value.name for value in session.get_outputs()]
    expected = dict(zip(every, session.run(every, dict(given)), strict=True))
    with torch.inference_mode():
        *_, values = net.walk({name: torch.from_numpy(array) for name, array in given.items()})
    for node in proto.graph.node:
        for name in node.output:
            ours = values.get(name)
            if ours is None or name not in expected or not isinstance(ours, torch.Tensor):
                continue
            right, found = np.asarray(expected[name], np.float64), ours.numpy().astype(np.float64)
            if right.shape != found.shape or _db(right, found) < LEAST_DB:
                return f"first in {node.op_type} '{node.name or name}'"
    return "no single node differs"
