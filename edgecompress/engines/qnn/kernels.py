"""Which operators the HTP takes in which precision: the compiler's answer of a file, and a table of such answers.

The table is for machines without the compiler; it knows types of operators, not their arguments and sizes.
"""

from __future__ import annotations

from edgecompress.core.model import Artifact
from edgecompress.core.operations import Kernels, Operation
from edgecompress.engines.onnx import operations
from edgecompress.engines.qnn.htp import FILE, HALF, SCALING
from edgecompress.engines.qnn.placed import TYPES, TYPES_LEFT, WORDS, WORDS_LEFT

BITS = {"int8": 8, "int8-a16": 16}  # of activations
BODIES = ("If", "Loop", "Scan")
LIKE = {"Flatten": "Reshape", "Squeeze": "Reshape", "Identity": "Reshape"}  # types of ONNX that move as another does
NAMED = {"cumsum": "CumSum", "logsumexp": "ReduceLogSumExp", "prelu": "PRelu"}  # words of the types in HALF


def kernels(operation: Operation, precision: str) -> Kernels:
    """What becomes of an operator: on the HTP in whole numbers or in half precision, or on the CPU beside it."""
    asked = precision if precision in BITS else "fp16"  # floats are of half precision there
    if operation.type in BODIES:
        return Kernels(unable=f"the HTP has no {operation.type}")
    kind = LIKE.get(operation.type, operation.type)
    by_type = kind in TYPES
    if not by_type and operation.word not in WORDS:
        return Kernels(known=False)
    left = kind in TYPES_LEFT[asked] if by_type else operation.word in WORDS_LEFT[asked]
    half = NAMED.get(operation.word, operation.type) in HALF[BITS[asked]] if asked in BITS else False
    return Kernels([operation.type] if left else (), [operation.type] if half else ())


def compiled(artifact: Artifact) -> list[tuple[Operation, Kernels]]:
    """What the compiler made of each operator of an artifact; one with an end without a scale is in half precision."""
    import onnx

    real = onnx.TensorProto.FLOAT
    graph = onnx.shape_inference.infer_shapes(onnx.load_model(artifact.file(FILE))).graph
    shapes = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
    makers = {name: node.op_type for node in graph.node for name in node.output}
    scaled, ops = set[str](), list[tuple[Operation, Kernels]]()
    for node in reversed(graph.node):
        closes = node.op_type in ("Relu", "Clip") and node.output[0] in scaled  # it gives its scale to what it closes
        if node.op_type == SCALING[0] or closes:
            scaled.add(node.input[0])
        if node.op_type in ("Constant", *SCALING):
            continue
        kind = types.get(node.output[0], real)
        outside = [node.op_type] if node.name in artifact.facts["fallback"] else []
        raw = [n for n in node.input if n in makers and makers[n] not in SCALING and types.get(n, real) == real]
        half = kind == real and (node.output[0] not in scaled or bool(raw and not closes))
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind).name
        op = Operation(node.op_type, operations.word(node, shapes), dtype)
        ops.append((op, Kernels(outside, [node.op_type] if half and not outside else [])))
    return [(op, found if scaled else Kernels(found.outside)) for op, found in reversed(ops)]
