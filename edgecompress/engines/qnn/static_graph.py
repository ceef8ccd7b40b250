"""ONNX files as Qualcomm's compiler takes them: every size known, norms and GELUs as one operator each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.onnx import external
from edgecompress.engines.onnx.graph_edits import prepare

if TYPE_CHECKING:
    import onnx

OPSET, WIDE = 17, 21  # the first with LayerNormalization, which the HTP has as one operator; and with 16 bits
GELUS = "com.microsoft"  # whose Gelu is of every opset
NEAR = 1e-3  # of a constant

Ends = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]


def fixed(request: Request, out: Path) -> Ends:
    """Writes the model with the batch of the run and the data's sizes in place of open axes; returns its ends."""
    from onnxruntime.tools import onnx_model_utils

    model, samples = request.model, request.inputs["samples"]
    stored, known = tensors.check_inputs(model, samples), {spec.name: spec for spec in samples.inputs}
    batch, sizes = request.context.batch, dict[str, int]()
    for spec in model.inputs:
        given = known.get(stored.get(spec.name, ""), spec)  # of a state there need be no data
        seen = given.concrete(batch)
        for dim, size in zip(spec.shape, seen if len(seen) == len(spec.shape) else spec.concrete(batch), strict=True):
            if isinstance(dim, Dim):
                sizes.setdefault(dim.name, batch if dim.name == "batch" else size)
    proto = external.load(model.file(".onnx"))
    if bodies := sorted({node.op_type for node in proto.graph.node if any(a.HasField("g") for a in node.attribute)}):
        raise StageFailed(
            f"runtime qnn: the HTP has no {' and no '.join(bodies)}: write out what it repeats or chooses, or deploy "
            "for the CPU (--target android)"
        )
    inputs = tuple(_with(spec, sizes, batch) for spec in model.inputs)
    for spec in inputs:
        value = next(value for value in proto.graph.input if value.name == spec.name)
        for dim, size in zip(value.type.tensor_type.shape.dim, spec.concrete(), strict=True):
            if dim.dim_param:
                onnx_model_utils.make_dim_param_fixed(proto.graph, dim.dim_param, size)
            dim.dim_value = size
    del proto.graph.value_info[:]  # their open axes
    if external.size(proto) <= external.MOST:
        onnx_model_utils.fix_output_shapes(proto)
    external.save(proto, external.Weights(proto, model.path), out)
    found = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in proto.graph.output}
    outputs = (_with(spec, sizes, batch) for spec in model.outputs)
    return inputs, tuple(
        dataclasses.replace(spec, shape=tuple(found[spec.name])) if all(found.get(spec.name, ())) else spec
        for spec in outputs
    )


def _with(spec: TensorSpec, sizes: dict[str, int], batch: int) -> TensorSpec:
    whole = zip(spec.shape, spec.concrete(batch), strict=True)
    return dataclasses.replace(spec, shape=tuple(sizes.get(d.name, n) if isinstance(d, Dim) else n for d, n in whole))


def prepared(source: Path, out: Path, opset: int = OPSET) -> Path:
    """Such a file of at least that opset, simplified; each norm and GELU is one operator, however it is written."""
    import onnx
    from onnxruntime.quantization.execution_providers.qnn import qnn_preprocess_model

    model = onnx.load_model(prepare(source, out, opset))
    types = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    del model.metadata_props[:]  # with which it breaks
    qnn_preprocess_model(model, out, fuse_layernorm=True)
    model = onnx.load_model(out)
    for x, nodes in [*_gelus(model.graph)]:
        last = nodes[-1]
        gelu = onnx.helper.make_node("Gelu", [x], [last.output[0]], last.name, domain=GELUS)
        model.graph.node.insert(list(model.graph.node).index(last), gelu)
        for node in nodes:
            model.graph.node.remove(node)
        if not any(entry.domain == GELUS for entry in model.opset_import):
            model.opset_import.append(onnx.helper.make_opsetid(GELUS, 1))
    # ONNX tells no type of what an operator of another domain makes, and without one the calibrator looks past it
    told = {value.name for value in model.graph.value_info}
    made = (name for node in model.graph.node if node.domain == GELUS for name in node.output)
    model.graph.value_info.extend(types[name] for name in made if name in types and name not in told)
    onnx.save_model(model, out)
    return out


class _Links:
    """Who makes and who reads each tensor of a graph, and which tensors are one number."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        from onnx import numpy_helper

        self.constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer if math.prod(t.dims) == 1}
        self.makers = {name: node for node in graph.node for name in node.output}
        self.ends = {value.name for value in graph.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def is_number(self, name: str, wanted: float) -> bool:
        return name in self.constants and abs(float(self.constants[name].flat[0]) - wanted) <= NEAR * wanted

    def maker(self, name: str, kind: str) -> onnx.NodeProto | None:
        node = self.makers.get(name)
        return node if node is not None and node.op_type == kind else None

    def only_reader(self, node: onnx.NodeProto, kind: str) -> onnx.NodeProto | None:
        read = self.readers.get(node.output[0], [])
        return read[0] if self.of_one_reader(node) and read[0].op_type == kind else None

    def of_one_reader(self, node: onnx.NodeProto | None) -> list[onnx.NodeProto]:
        """That node where nothing else reads it, so that it can go."""
        if node is None or node.output[0] in self.ends or len(self.readers.get(node.output[0], [])) != 1:
            return []
        return [node]


def _other(node: onnx.NodeProto, name: str) -> str:
    return next((each for each in node.input if each != name), name)


def _gelus(graph: onnx.GraphProto) -> Iterator[tuple[str, list[onnx.NodeProto]]]:
    """x * 0.5 * (1 + erf(x / sqrt 2)), or with 1 - erf(-x / sqrt 2), in any order: x, and the nodes, the last one last.

    Hendrycks and Gimpel 2016, arXiv:1606.08415.
    """
    links = _Links(graph)
    for erf in [node for node in graph.node if node.op_type == "Erf"]:
        sum_ = _one_plus_erf(links, erf)
        if sum_ is None:
            continue
        x, found = sum_
        left = {"x", "half"}
        while left and (times := links.only_reader(found[-1], "Mul")):
            factor = _other(times, found[-1].output[0])
            half = links.maker(factor, "Mul")
            if factor == x and "x" in left:
                left -= {"x"}
            elif links.is_number(factor, 0.5) and "half" in left:
                left -= {"half"}
            elif half is not None and x in half.input and links.is_number(_other(half, x), 0.5):
                left -= {"x", "half"}
                found += links.of_one_reader(half)
            else:
                break
            found.append(times)
        if not left:
            yield x, found


def _one_plus_erf(links: _Links, erf: onnx.NodeProto) -> tuple[str, list[onnx.NodeProto]] | None:
    """1 + erf(x / sqrt 2), or 1 - erf(-x / sqrt 2), around that Erf: x, and the nodes, the last one last."""
    scaled = links.makers.get(erf.input[0])
    if scaled is None or scaled.op_type not in ("Mul", "Div") or not links.of_one_reader(scaled):
        return None
    scale = math.sqrt(2) if scaled.op_type == "Div" else 1 / math.sqrt(2)
    x = next((name for name in scaled.input if links.is_number(_other(scaled, name), scale)), "")
    if not x or (scaled.op_type == "Div" and x != scaled.input[0]):
        return None
    minus = links.maker(x, "Neg")
    plus = links.only_reader(erf, "Add" if minus is None else "Sub")
    one = _other(plus, erf.output[0]) if plus is not None else ""
    if plus is None or not links.is_number(one, 1.0) or (minus is not None and plus.input[0] != one):
        return None
    return (x if minus is None else minus.input[0]), [*links.of_one_reader(minus), scaled, erf, plus]
