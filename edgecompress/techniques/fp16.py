"""Half-precision weights and arithmetic in ONNX, inputs and outputs as they were."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edgecompress.errors import StageFailed
from edgecompress.model import Artifact, Request
from edgecompress.techniques._onnx_graph import first_line

REQUIRES = ("onnx", "onnxruntime")
EXTRA = "onnx"
READS: tuple[str, ...] = ("onnx",)
WRITES = "onnx"
PROVIDES = "fp16"
NEEDS_SAMPLES = False

LARGEST = 65504.0  # of a half-precision number
RECURRENT = ("LSTM", "GRU", "RNN")  # ONNX Runtime's CPU crashes when it opens one in half precision


@dataclass(frozen=True)
class Options:
    """What stays in fp32."""

    keep_ops: tuple[str, ...] = RECURRENT  # operator types
    skip: tuple[str, ...] = ()  # nodes, by name


def apply(request: Request) -> Artifact:
    """The ONNX model in half precision; inputs: "model". "lost" where a weight does not fit into half precision."""
    import onnx
    from onnxruntime.transformers import float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    options: Options = request.options
    model = onnx.load_model(request.model.file(".onnx"))
    large = list(_too_large(model.graph.initializer))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of numbers it truncates: `large` tells of them
            half = float16.convert_float_to_float16(
                model,
                keep_io_types=True,
                op_block_list=[*float16.DEFAULT_OP_BLOCK_LIST, *options.keep_ops],
                node_block_list=list(options.skip),
            )
        _drop_repeated(half.graph)
        OnnxModel(half).topological_sort()  # the converter appends its casts at the end
        onnx.checker.check_model(half)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise StageFailed(f"fp16: {type(error).__name__}: {first_line(error)}") from error
    onnx.save_model(half, request.out / "model.onnx")
    facts = {"lost": _why(large)} if large else {}
    return Artifact(request.out, WRITES, request.model.inputs, request.model.outputs, facts).write()


def _too_large(weights: Any) -> Iterator[str]:
    """The names of the weights that hold a finite number beyond half precision, or one that is not finite."""
    import numpy as np
    import onnx

    for tensor in weights:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and not (np.abs(values) <= LARGEST).all():
            yield tensor.name


def _drop_repeated(graph: Any) -> None:
    """The converter casts a tensor twice, under one name, where a node that stays in fp32 reads it twice."""
    seen: set[str] = set()
    for node in list(graph.node):
        if node.output[0] in seen:
            graph.node.remove(node)
        seen.add(node.output[0])


def _why(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the weight '{names[0]}'{more} holds numbers beyond half precision ({LARGEST:g})"
