"""Dynamic int8 for ONNX Runtime: int8 weights of LSTMs and matrix products, activations quantized at run time."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import REWRITES, Artifact, Promise, Request
from edgecompress.engines.onnx import safe_names
from edgecompress.engines.onnx.graph_edits import drop_reshapes, matching, prepare

if TYPE_CHECKING:
    import onnx

REQUIRES = ("onnx", "onnxruntime", "sympy")
EXTRA = "onnx"
READS: tuple[str, ...] = ("onnx",)
WRITES = "onnx"
PROVIDES = "int8-dynamic"
NEEDS: tuple[str, ...] = ()

PRODUCTS = {"MatMul", "Gemm"}
RESHAPES = "no Reshape around a matrix product"  # the rewrite, in words
OPSET = 11  # the first with dynamic ranges
PAYS = ("LSTM", "MatMul", "Gemm", "Attention", "EmbedLayerNormalization")  # not Conv: ten times slower than fp32


@dataclass(frozen=True)
class Options:
    """What is quantized."""

    per_channel: bool = True  # of weights
    embeddings: bool = False  # lookup tables too: smaller, no faster
    min_columns: int = 16  # a product with fewer output columns stays in float: it costs accuracy and saves no time
    skip: tuple[str, ...] = ()  # nodes kept in float, as patterns of their names
    operators: tuple[str, ...] = PAYS  # types that are quantized
    reshapes: bool = False  # Reshapes that fold the axes of a product stay: slower, the same answers


def promises(options: Options) -> Promise:
    """Int8 weights of the operators for which that pays: these may be few."""
    return Promise("int8", "int8-dynamic", 0.0, 0.0)


def apply(request: Request) -> Artifact:
    """The ONNX model with int8 weights where that pays; inputs: "model".

    facts: {"quantized": [node]}; "lost" when the model has nothing that dynamic int8 speeds up.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    options: Options = request.options
    with tempfile.TemporaryDirectory(dir=request.out, prefix="work-") as folder:
        prepared = prepare(request.model.file(".onnx"), Path(folder) / "prepared.onnx", OPSET)
        rewritten = [] if options.reshapes else _rewritten(prepared)
        chosen, float_ = _sorted(prepared, options)
        safe, own = safe_names.safe_copy(prepared)
        try:
            quantize_dynamic(
                safe,
                request.out / "model.onnx",
                op_types_to_quantize=[*options.operators, *(["Gather"] if options.embeddings else [])],
                per_channel=options.per_channel,
                weight_type=QuantType.QInt8,
                # the quantizer turns a Gemm into a MatMul of another name before it looks at this list
                nodes_to_exclude=[*float_, *(f"{name}_MatMul" for name in float_)],
            )
        except (RuntimeError, ValueError) as error:
            raise StageFailed(f"int8_dynamic: {first_line(error)}") from error
        safe_names.restore_in(request.out / "model.onnx", own)
    facts: dict[str, Json] = {"quantized": chosen, **({REWRITES: {RESHAPES: rewritten}} if rewritten else {})}
    if not chosen:
        large = f"no matrix product with at least {options.min_columns} output columns (min_columns)"
        facts["lost"] = f"changed nothing in this model: it has no LSTM and {large} that dynamic int8 speeds up"
    return Artifact(request.out, WRITES, request.model.inputs, request.model.outputs, facts).write()


def _rewritten(file: Path) -> list[str]:
    """Takes the Reshapes around products away, in the file; returns the products' names."""
    import onnx

    model = onnx.load_model(file)
    if names := drop_reshapes(model):
        onnx.save_model(model, file)
    return names


def _sorted(file: Path, options: Options) -> tuple[list[str], list[str]]:
    """The names of the nodes to quantize, and of those of the same types that stay in float."""
    import onnx

    graph = onnx.load_model(file).graph
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    kept = set(matching(file, options.skip))
    kept |= set(_narrow(graph.node, weights, options.min_columns))
    able = [node.name for node in graph.node if node.op_type in options.operators and weights.keys() & set(node.input)]
    return [name for name in able if name not in kept], sorted(kept)


def _narrow(nodes: Sequence[onnx.NodeProto], weights: dict[str, tuple[int, ...]], columns: int) -> Iterator[str]:
    """Products with a constant matrix of fewer than `columns` output columns."""
    for node in nodes:
        if node.op_type in PRODUCTS and node.input[1] in weights:
            rows_first = not any(a.name == "transB" and a.i for a in node.attribute)
            shape = weights[node.input[1]]
            if math.prod(shape[-1:] if rows_first else shape[:1]) < columns:
                yield node.name
