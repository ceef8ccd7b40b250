"""Weight-only quantization for ONNX Runtime: matrix products with weights of 4 or 8 bits."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import InputError, StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.onnx import block_weights, external
from edgecompress.engines.onnx.block_weights import Blocks, Matrix, Rounding
from edgecompress.engines.onnx.graph_edits import matching, prepare
from edgecompress.techniques import _nncf, _weights_only
from edgecompress.techniques._calibration import inputs_of, spread

if TYPE_CHECKING:
    import numpy as np
    import onnx

OPSET = 14
WEIGHTED = ("MatMul", "Gemm", "Gather", "Conv", "ConvTranspose")  # what NNCF would round as well
DAMPING = 0.01  # of GPTQ, of the mean diagonal of its Hessian

Chosen: TypeAlias = "Mapping[str, tuple[Matrix, Blocks]]"  # by node


def apply(request: Request, bits: int) -> Artifact:
    """The model with the weights of its products in blocks; inputs: "model", "samples" (calibrate, for gptq and awq).

    facts: {"bits", "group", "symmetric", "method", "quantized": [node], "int8": [node], "numbers": {node:
    weights}}; "lost" where no product has a weight that is large enough.
    """
    options: _weights_only.Options = request.options
    source, method = request.model.file(".onnx"), getattr(request.options, "method", "nearest")
    with tempfile.TemporaryDirectory(dir=request.out, prefix="work-") as folder:
        file = source if _beside(source) else prepare(source, Path(folder) / "prepared.onnx", OPSET)
        chosen = _chosen(file, options, bits)
        if method != "nearest" and chosen:
            file = _fitted(request, file, [n for n, (m, b) in chosen.items() if b.bits == bits and _fits(m, b)])
        _round(file, request.out / "model.onnx", chosen)
    facts: dict[str, Json] = {"bits": bits, "group": options.group, "symmetric": options.symmetric, "method": method}
    facts |= {"quantized": list(chosen), "int8": [name for name, (_, b) in chosen.items() if b.bits > bits]}
    facts["numbers"] = {name: m.rows * m.columns for name, (m, _) in chosen.items()}
    if not chosen:
        facts["lost"] = _weights_only.NOTHING
    return Artifact(request.out, "onnx", request.model.inputs, request.model.outputs, facts).write()


def _beside(file: Path) -> bool:
    """Whether its weights lie beside it: then it is too large to be taken apart in memory."""
    import onnx

    return external.has(onnx.load_model(file, load_external_data=False))


def _chosen(file: Path, options: _weights_only.Options, bits: int) -> Chosen:
    """The products and tables that are rounded, each with its blocks."""
    import onnx

    model = onnx.load_model(file, load_external_data=False)
    kept, wide = (matching(file, patterns) for patterns in (options.skip, getattr(options, "int8", ())))
    products = [
        m for m in block_weights.matrices(model) if m.columns >= _weights_only.LEAST_COLUMNS and m.rows >= options.group
    ]
    tables = [m for m in block_weights.tables(model) if m.rows % options.group == 0] if options.embeddings else []
    return {
        m.node: (m, Blocks(8 if m.node in wide else bits, options.group, options.symmetric))
        for m in (*products, *tables)
        if m.node not in kept
    }


def _fits(matrix: Matrix, blocks: Blocks) -> bool:
    """Whether the libraries take it: they fill no group up, and pack zero points by two."""
    groups, left = divmod(matrix.rows, blocks.group)
    return left == 0 and (blocks.symmetric or groups % 2 == 0)


def _round(file: Path, out: Path, chosen: Chosen) -> None:
    """The file with each weight in its blocks; what a library has put in blocks already is left."""
    import onnx

    model = onnx.load_model(file, load_external_data=False)
    beside = external.Beside(out.with_name(external.DATA)) if external.has(model) else None
    rounding = Rounding(model, external.Weights(model, file.parent), beside)
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        matrix, blocks = chosen.get(node.name, (None, None))
        if matrix and blocks and node.op_type in block_weights.PRODUCTS:
            nodes += rounding.product(node, matrix, blocks)
        elif matrix and blocks and node.op_type == block_weights.LOOKUP:
            nodes += rounding.lookup(node, matrix, blocks)
        else:
            nodes.append(node)
    block_weights.save(rounding, nodes, out)


# --------------------------------------------------------------------------- by what calibration items say


def _fitted(request: Request, file: Path, names: Sequence[str]) -> Path:
    """The file with those products in blocks, fitted to calibration items by a library."""
    import onnx

    options: _weights_only.FourBits = request.options
    if _beside(file):
        raise InputError(
            f"method = '{options.method}' holds the whole model in memory, which is too large; use 'nearest'"
        )
    batches = spread(request, options.samples)
    items = [dict(inputs_of(request, batch)) for batch in batches]
    model = block_weights.without_biases(onnx.load_model(file), names)
    fit = {"gptq": _gptq, "awq": _awq}[options.method]
    request.progress(0.1, options.method)
    try:
        with _nncf.quiet():
            fitted = fit(model, items, names, options)
    except Exception as error:  # the libraries' errors have no base of their own
        raise StageFailed(f"{options.method}: {first_line(error)}") from error
    onnx.save_model(fitted, file)
    return file


def _gptq(
    model: onnx.ModelProto,
    items: Sequence[Mapping[str, np.ndarray]],
    names: Sequence[str],
    options: _weights_only.FourBits,
) -> onnx.ModelProto:
    """By the part of Intel's Neural Compressor that ONNX Runtime has."""
    from onnxruntime.quantization.neural_compressor.weight_only import gptq_quantize

    config = {"bits": 4, "group_size": options.group, "scheme": "sym" if options.symmetric else "asym"}
    products = [node.name for node in model.graph.node if node.op_type == "MatMul"]
    fitted = gptq_quantize(
        model,
        [(each, None) for each in items],
        {name: config if name in names else "fp32" for name in products},
        n_samples=-1,
        percdamp=DAMPING,
        blocksize=options.group,  # larger ones find a group's scale before the errors of those ahead have come to it
        accuracy_level=block_weights.INT8_PRODUCTS,
    )
    return fitted.model


def _awq(
    model: onnx.ModelProto,
    items: Sequence[Mapping[str, np.ndarray]],
    names: Sequence[str],
    options: _weights_only.FourBits,
) -> onnx.ModelProto:
    """By NNCF."""
    nncf = _nncf.library()
    ignored = [node.name for node in model.graph.node if node.op_type in WEIGHTED and node.name not in names]
    fitted: onnx.ModelProto = nncf.compress_weights(
        model,
        mode=nncf.CompressWeightsMode.INT4_SYM if options.symmetric else nncf.CompressWeightsMode.INT4_ASYM,
        group_size=options.group,
        all_layers=True,
        awq=True,
        dataset=nncf.Dataset(items),
        subset_size=len(items),
        ignored_scope=nncf.IgnoredScope(names=ignored),
    )
    _pack_zeros(fitted.graph)
    return fitted


def _pack_zeros(graph: onnx.GraphProto) -> None:
    """Zero points two to a byte, as the kernel reads them: NNCF 3.4 writes one to a byte."""
    from onnx import numpy_helper

    known = {tensor.name: tensor for tensor in graph.initializer}
    for node in (n for n in graph.node if n.op_type == block_weights.KERNEL and len(n.input) > 3 and n.input[3]):
        zeros, scales = known[node.input[3]], known[node.input[2]]
        if list(zeros.dims) == list(scales.dims) and zeros.dims[1] > 1:
            codes = numpy_helper.to_array(zeros)
            zeros.CopyFrom(numpy_helper.from_array(codes[:, ::2] | codes[:, 1::2] << 4, zeros.name))
