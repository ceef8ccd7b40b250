"""Weights of matrix products in blocks of few bits, for ONNX Runtime's MatMulNBits; a large file is read in parts.

A block is `group` numbers of one column with a scale of their own, and a zero point where it is not symmetric:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.engines.onnx import external
from edgecompress.engines.onnx.external import Beside, Weights

if TYPE_CHECKING:
    import numpy as np
    import onnx

DOMAIN = "com.microsoft"
KERNEL, TABLE = "MatMulNBits", "GatherBlockQuantized"
PRODUCTS, LOOKUP = ("MatMul", "Gemm"), "Gather"
PART = 1 << 24  # numbers of a weight that are rounded at once
INT8_PRODUCTS = 4  # accuracy_level: activations are rounded to int8 as they come; 0 would compute in float


@dataclass(frozen=True)
class Blocks:
    """How a weight is rounded."""

    bits: int
    group: int
    symmetric: bool


@dataclass(frozen=True)
class Matrix:
    """The constant that a product multiplies with: [rows, columns], or the other way round where it is turned."""

    node: str
    tensor: str
    rows: int
    columns: int
    turned: bool


def matrices(model: onnx.ModelProto) -> Iterator[Matrix]:
    """What the products of the outermost graph multiply with: constants of two axes in float."""
    from onnx import TensorProto

    known = {t.name: t for t in model.graph.initializer}
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16)
    for node in model.graph.node:
        tensor = known.get(node.input[1]) if plain_product(node) else None
        if tensor is None or len(tensor.dims) != 2 or tensor.data_type not in floats:
            continue
        turned = any(a.name == "transB" and a.i for a in node.attribute)
        rows, columns = reversed(tensor.dims) if turned else tensor.dims
        yield Matrix(node.name, tensor.name, rows, columns, turned)


def plain_product(node: onnx.NodeProto) -> bool:
    """Whether it is x W or x W + b: a MatMul or Gemm that scales nothing, and transposes nothing but its weights."""
    if node.op_type not in PRODUCTS:
        return False
    numbers = {a.name: a.f if a.name in ("alpha", "beta") else a.i for a in node.attribute}
    return numbers.get("alpha", 1) == numbers.get("beta", 1) == 1 and not numbers.get("transA", 0)


def tables(model: onnx.ModelProto) -> Iterator[Matrix]:
    """The lookup tables in float32."""
    from onnx import TensorProto

    known = {t.name: t for t in model.graph.initializer}
    for node in model.graph.node:
        tensor = known.get(node.input[0]) if node.op_type == LOOKUP else None
        first = not any(a.name == "axis" and a.i for a in node.attribute)
        if tensor is not None and first and len(tensor.dims) == 2 and tensor.data_type == TensorProto.FLOAT:
            yield Matrix(node.name, tensor.name, tensor.dims[1], tensor.dims[0], True)


@dataclass
class Rounding:
    """A file being rewritten: weights in blocks take the place of those in float, one after the other."""

    model: onnx.ModelProto
    weights: Weights
    beside: Beside | None  # where they go at once, so that few are held
    made: dict[tuple[str, Blocks, bool], list[str]] = field(default_factory=dict)  # a weight that several read: once

    def product(self, node: onnx.NodeProto, matrix: Matrix, blocks: Blocks) -> list[onnx.NodeProto]:
        """What computes a product from then on: its bias is added by a node of its own."""
        from onnx import helper

        constants = self._constants(matrix, blocks)
        bias, made = _biased(node)
        numbers = {"K": matrix.rows, "N": matrix.columns, "bits": blocks.bits, "block_size": blocks.group}
        product = helper.make_node(
            *(KERNEL, [node.input[0], *constants], [made], node.name),
            domain=DOMAIN,
            accuracy_level=INT8_PRODUCTS,
            **numbers,
        )
        return [product, *bias]

    def lookup(self, node: onnx.NodeProto, matrix: Matrix, blocks: Blocks) -> list[onnx.NodeProto]:
        """What looks up rows of a table in blocks."""
        from onnx import helper

        numbers = {"bits": blocks.bits, "block_size": blocks.group, "gather_axis": 0, "quantize_axis": 1}
        codes, *scales = self._constants(matrix, blocks, table=True)
        return [
            helper.make_node(TABLE, [codes, node.input[1], *scales], node.output, node.name, domain=DOMAIN, **numbers)
        ]

    def _constants(self, matrix: Matrix, blocks: Blocks, *, table: bool = False) -> list[str]:
        """The names of the codes, the scales and the zero points; those of a table have a row for each of its own."""
        from onnx import numpy_helper

        known = self.made.get((matrix.tensor, blocks, table))
        if known is not None:
            return known
        arrays = rounded(self.weights.array(matrix.tensor), matrix, blocks)
        arrays = [array.reshape(matrix.columns, -1) for array in arrays] if table else arrays
        word = f"{matrix.tensor}_int{blocks.bits}{'_table' if table else ''}"
        known = [f"{word}{end}" for end, _ in zip(("", "_scales", "_zeros"), arrays, strict=False)]
        for name, array in zip(known, arrays, strict=True):
            tensor = numpy_helper.from_array(array, name)
            if self.beside and array.nbytes > external.SMALL:
                self.beside.put(tensor, [array])
            self.model.graph.initializer.append(tensor)
        self.made[matrix.tensor, blocks, table] = known
        return known


def rounded(weight: np.ndarray, matrix: Matrix, blocks: Blocks) -> list[np.ndarray]:
    """Codes [columns, blocks, bytes], scales [columns, blocks] and, unless symmetric, zero points, by ONNX Runtime."""
    import numpy as np
    from onnxruntime.quantization import matmul_nbits_quantizer as library

    logging.getLogger(library.__name__).setLevel(logging.WARNING)
    config = library.DefaultWeightOnlyQuantConfig(blocks.group, blocks.symmetric, bits=blocks.bits)
    work, at_once = library.DefaultWeightOnlyQuantizer(config), max(1, PART // matrix.rows)
    parts: list[tuple[np.ndarray, ...]] = []
    for begin in range(0, matrix.columns, at_once):
        part = weight[begin : begin + at_once].T if matrix.turned else weight[:, begin : begin + at_once]
        parts.append(work.qbits_block_quant(np.ascontiguousarray(part, np.float32)))
    codes, scales, zeros = (np.concatenate(each) for each in zip(*parts, strict=True))
    scales = scales.astype(weight.dtype)
    return [codes, scales] if blocks.symmetric else [codes, scales, zeros.reshape(-1)]


def without_biases(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """With those of the products that are a Gemm as a MatMul, which keeps the name, and the bias added behind it."""
    import numpy as np
    from onnx import helper, numpy_helper

    weights, nodes = Weights(model, Path()), []
    found = {m.node: m for m in matrices(model)}
    for node in model.graph.node:
        matrix = found.get(node.name) if node.op_type == "Gemm" and node.name in names else None
        if matrix is None:
            nodes.append(node)
            continue
        factor = matrix.tensor
        if matrix.turned:
            factor = f"{matrix.tensor}_turned"
            if factor not in weights.tensors:
                turned = numpy_helper.from_array(np.ascontiguousarray(weights.array(matrix.tensor).T), factor)
                model.graph.initializer.append(turned)
                weights.tensors[factor] = turned
        bias, made = _biased(node)
        nodes.append(helper.make_node("MatMul", [node.input[0], factor], [made], node.name))
        nodes += bias
    _replace(model.graph, nodes)
    _prune(model.graph)
    return model


def _prune(graph: onnx.GraphProto) -> None:
    """Takes away the constants that nothing reads."""
    read = _read(graph)
    for tensor in [t for t in graph.initializer if t.name not in read]:
        graph.initializer.remove(tensor)


def _biased(node: onnx.NodeProto) -> tuple[list[onnx.NodeProto], str]:
    """What adds the bias of a product, if it has one, and the name of the product before that."""
    from onnx import helper

    if node.op_type != "Gemm" or len(node.input) < 3 or not node.input[2]:
        return [], node.output[0]
    made = f"{node.output[0]}_product"
    return [helper.make_node("Add", [made, node.input[2]], list(node.output), f"{node.name}_bias")], made


def _replace(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    kept = [copy.deepcopy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def save(rounding: Rounding, nodes: Iterable[onnx.NodeProto], file: Path) -> None:
    """The file of those nodes and the constants that they read."""
    import onnx

    model = rounding.model
    _replace(model.graph, nodes)
    _prune(model.graph)
    if all(entry.domain != DOMAIN for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    external.save(model, rounding.weights, file, rounding.beside)


def _read(graph: onnx.GraphProto) -> set[str]:
    """What nodes read, those of inner graphs too, and what the graph answers."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                names |= _read(inner)
    return names
