"""Nets of every precision, and what each holds: {weights: bytes}, {what operators compute in: their number}."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as Type
from onnx import helper, numpy_helper

from edgecompress.core.model import Artifact, TensorSpec

SIDE = 16
CELLS = SIDE * SIDE
Expected = tuple[dict[str, int], dict[str, int]]
Build = Callable[[Path], Artifact]

# --------------------------------------------------------------------------- ONNX


def matrix(dtype: Any = np.float32, shape: tuple[int, ...] = (SIDE, SIDE)) -> np.ndarray:
    """Numbers that half precision and int8 hold well."""
    numbers = np.random.default_rng(0).normal(size=shape)
    return (numbers * 30).astype(dtype) if np.dtype(dtype).kind == "i" else (numbers / 4).astype(dtype)


def node(kind: str, reads: str, writes: str, **attributes: Any) -> onnx.NodeProto:
    """`reads` and `writes`: names apart by spaces, "-" where one is left out."""
    names = [[name.replace("-", "") for name in side.split()] for side in (reads, writes)]
    return helper.make_node(kind, *names, writes.split()[0], **attributes)


def saved(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, Any],
    dtype: int = Type.FLOAT,
    shape: tuple[int, ...] = (1, SIDE),
    **how: Any,
) -> Artifact:
    """x -> y as an artifact. `how`: "ir" (3: constants are inputs too), "functions", "beside" (external data)."""
    tensors = [v if isinstance(v, onnx.TensorProto) else numpy_helper.from_array(v) for v in constants.values()]
    for name, tensor in zip(constants, tensors, strict=True):
        tensor.name = name
    x, y = (helper.make_tensor_value_info(name, dtype, size) for name, size in (("x", shape), ("y", shape)))
    inputs = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors] if "ir" in how else []
    graph = helper.make_graph(nodes, "net", [x, *inputs], [y], tensors)
    own = [helper.make_opsetid(name, 1) for name in ("com.microsoft", "own")]
    opset = helper.make_opsetid("", 9 if "ir" in how else 21)
    model = helper.make_model(
        graph, opset_imports=[opset, *own], ir_version=how.get("ir", 10), functions=how.get("functions", ())
    )
    folder.mkdir(exist_ok=True)
    beside = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0} if "beside" in how else {}
    onnx.save_model(model, folder / "model.onnx", **beside)
    name = {Type.FLOAT: "float32", Type.FLOAT16: "float16", Type.DOUBLE: "float64"}.get(dtype, "float32")
    specs = TensorSpec("x", shape, name), TensorSpec("y", shape, name)
    return Artifact(folder, "onnx", specs[:1], specs[1:]).write()


def packed(dtype: int, bits: int) -> onnx.TensorProto:
    """A matrix of a type that numpy does not know, of ones and zeros."""
    size = CELLS * bits // 8
    return onnx.TensorProto(data_type=dtype, dims=[SIDE, SIDE], raw_data=bytes(size))


PRODUCT = [node("MatMul", "x w", "y")]
SCALE = {"s": np.float32(0.1), "z": np.int8(0)}
QDQ = [
    node("QuantizeLinear", "x s z", "xq"),
    node("DequantizeLinear", "xq s z", "xd"),
    node("DequantizeLinear", "w s z", "wd"),
    node("MatMul", "xd wd", "y"),
]


def dense(dtype: Any, kind: int) -> Build:
    """One product in a precision."""
    return lambda folder: saved(folder, PRODUCT, {"w": matrix(dtype)}, kind)


def inputs_too(folder: Path) -> Artifact:
    """As old exporters wrote it."""
    constants = {"w": matrix(), "v": matrix()}
    return saved(
        folder, [node("MatMul", "x w", "h"), node("Relu", "h", "r"), node("MatMul", "r v", "y")], constants, ir=3
    )


def qdq(folder: Path) -> Artifact:
    """Static int8."""
    return saved(folder, QDQ, {"w": matrix(np.int8), **SCALE})


def weight_only(folder: Path) -> Artifact:
    """Int8 weights, float arithmetic."""
    return saved(folder, [QDQ[2], node("MatMul", "x wd", "y")], {"w": matrix(np.int8), **SCALE})


def qoperator(folder: Path) -> Artifact:
    """A product whose type says that it is one of integers."""
    nodes = [QDQ[0], node("QLinearMatMul", "xq s z w s z s z", "yq"), node("DequantizeLinear", "yq s z", "y")]
    return saved(folder, nodes, {"w": matrix(np.int8), **SCALE})


def dynamic(folder: Path) -> Artifact:
    """Activations quantized as they come."""
    nodes = [
        node("DynamicQuantizeLinear", "x", "xq xs xz"),
        node("MatMulInteger", "xq w xz", "yi"),
        node("Cast", "yi", "yf", to=Type.FLOAT),
        node("Mul", "yf xs", "y"),
    ]
    return saved(folder, nodes, {"w": matrix(np.int8)})


def narrow(folder: Path) -> Artifact:
    """ONNX Runtime's own product with weights of four bits."""
    nodes = [node("MatMulNBits", "x w s", "y", K=SIDE, N=SIDE, bits=4, block_size=16, domain="com.microsoft")]
    return saved(folder, nodes, {"w": np.zeros((SIDE, 1, 8), np.uint8), "s": np.ones(SIDE, np.float32)})


def of_type(kind: int, bits: int) -> Build:
    """Weights of a type without numpy's, made real at load."""
    return lambda folder: saved(
        folder,
        [node("DequantizeLinear", "w s", "wd"), node("MatMul", "x wd", "y")],
        {"w": packed(kind, bits), "s": np.float32(0.1)},
    )


def cast(folder: Path) -> Artifact:
    """Half the bytes, all of the arithmetic."""
    nodes = [node("Cast", "w", "wf", to=Type.FLOAT), node("MatMul", "x wf", "y")]
    return saved(folder, nodes, {"w": matrix(np.float16)})


def fake(folder: Path) -> Artifact:
    """Weights in fp32 that are rounded where the file is loaded."""
    nodes = [node("QuantizeLinear", "w s z", "wq"), node("DequantizeLinear", "wq s z", "wd"), *QDQ[:2], QDQ[3]]
    return saved(folder, nodes, {"w": matrix(), **SCALE})


def wide_activations(folder: Path) -> Artifact:
    """Int8 weights with int16 activations."""
    nodes = [
        node("QuantizeLinear", "x s zw", "xq"),
        node("DequantizeLinear", "xq s zw", "xd"),
        *QDQ[2:],
    ]
    return saved(folder, nodes, {"w": matrix(np.int8), "zw": np.int16(0), **SCALE})


def tied(folder: Path) -> Artifact:
    """One matrix read by two products, once turned over."""
    nodes = [node("MatMul", "x w", "h"), node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "h t", "y")]
    return saved(folder, nodes, {"w": matrix()})


def mixed(folder: Path) -> Artifact:
    """A product of integers, then one of floats."""
    nodes = [*QDQ[:3], node("MatMul", "xd wd", "h"), node("MatMul", "h v", "y")]
    return saved(folder, nodes, {"w": matrix(np.int8), "v": matrix(), **SCALE})


def beside(folder: Path) -> Artifact:
    """Weights in a file of their own."""
    return saved(folder, PRODUCT, {"w": matrix()}, beside=True)


def branches(folder: Path) -> Artifact:
    """Two products in the branches of an If, one of which reads a matrix from outside."""
    y = helper.make_tensor_value_info("z", Type.FLOAT, None)
    own = numpy_helper.from_array(matrix(np.float16), "v")
    then = helper.make_graph([node("MatMul", "x w", "z")], "then", [], [y])
    or_else = helper.make_graph(
        [node("Cast", "v", "f", to=Type.FLOAT), node("MatMul", "x f", "z")], "else", [], [y], [own]
    )
    nodes = [node("If", "c", "y", then_branch=then, else_branch=or_else)]
    return saved(folder, nodes, {"w": matrix(), "c": np.bool_(True)})


def loop(folder: Path) -> Artifact:
    """A product in a loop: the state changes each turn, the matrix is handed on."""
    ends = [
        helper.make_tensor_value_info(n, t, None)
        for n, t in (("i", Type.INT64), ("c", Type.BOOL), ("h", Type.FLOAT), ("m", Type.FLOAT))
    ]
    nodes = [node("MatMul", "h m", "h2"), node("Identity", "m", "m2"), node("Identity", "c", "c2")]
    outs = [helper.make_tensor_value_info(n, t, None) for n, t in (("c2", Type.BOOL), ("h2", 1), ("m2", 1))]
    body = helper.make_graph(nodes, "body", ends, outs)
    nodes = [node("Loop", "n c h0 w", "y w2", body=body)]
    return saved(folder, nodes, {"n": np.int64(2), "c": np.bool_(True), "h0": matrix(shape=(1, SIDE)), "w": matrix()})


def function(folder: Path) -> Artifact:
    """A function of the model's own, called with two matrices."""
    body = [node("MatMul", "a b", "c")]
    own = helper.make_function("own", "Dense", ["a", "b"], ["c"], body, [helper.make_opsetid("", 21)])
    nodes = [node("Dense", "x w", "h", domain="own"), node("Dense", "h v", "y", domain="own")]
    return saved(folder, nodes, {"w": matrix(), "v": matrix()}, functions=[own])


def words(folder: Path) -> Artifact:
    """An embedding, a convolution, an LSTM."""
    nodes = [
        node("Cast", "x", "i", to=Type.INT64),
        node("Gather", "table i", "e"),
        node("Transpose", "e", "t", perm=[0, 2, 1]),
        node("Conv", "t k", "c", kernel_shape=[1]),
        node("Transpose", "c", "u", perm=[2, 0, 1]),
        node("LSTM", "u w r", "- h", hidden_size=4),
        node("Identity", "h", "y"),
    ]
    constants = {
        "table": matrix(shape=(32, 8)),
        "k": matrix(shape=(8, 8, 1)),
        "w": matrix(shape=(1, 16, 8)),
        "r": matrix(shape=(1, 16, 4)),
    }
    return saved(folder, nodes, constants)


def constants(folder: Path) -> Artifact:
    """Large constants that nothing multiplies: places in a table, and numbers that are added."""
    nodes = [*QDQ[:3], node("MatMul", "xd wd", "h"), node("Gather", "anchors places", "a"), node("Add", "h a", "y")]
    large = {"anchors": matrix(shape=(4096,)), "places": np.zeros((64, SIDE), np.int64)}
    return saved(folder, nodes, {"w": matrix(np.int8), **large, **SCALE})


def stated(folder: Path) -> Artifact:
    """A weight in a node."""
    value = numpy_helper.from_array(matrix(), "value")
    return saved(folder, [helper.make_node("Constant", [], ["w"], value=value), *PRODUCT], {})


def recurrent_dynamic(folder: Path) -> Artifact:
    """ONNX Runtime's LSTM with int8 weights."""
    nodes = [
        node("Unsqueeze", "x axes", "t"),
        node("DynamicQuantizeLSTM", "t w r - - - - - s z s z", "- h", hidden_size=4, domain="com.microsoft"),
        node("Identity", "h", "y"),
    ]
    cells = {"w": matrix(np.int8, (1, SIDE, 16)), "r": matrix(np.int8, (1, 4, 16))}
    return saved(folder, nodes, {**cells, "axes": np.array([0]), **SCALE})


F32, F16, I8 = 4 * CELLS, 2 * CELLS, CELLS
ONNX: dict[str, tuple[Build, Expected]] = {
    "fp32": (dense(np.float32, Type.FLOAT), ({"fp32": F32}, {"fp32": 1})),
    "initializers as inputs": (inputs_too, ({"fp32": 2 * F32}, {"fp32": 2})),
    "fp16": (dense(np.float16, Type.FLOAT16), ({"fp16": F16}, {"fp16": 1})),
    "double": (dense(np.float64, Type.DOUBLE), ({"fp64": 8 * CELLS}, {"fp64": 1})),
    "fp16 weights, fp32 arithmetic": (cast, ({"fp16": F16}, {"fp32": 1})),
    "QDQ": (qdq, ({"int8": I8}, {"int8": 1})),
    "QDQ of weights alone": (weight_only, ({"int8": I8}, {"fp32": 1})),
    "QOperator": (qoperator, ({"int8": I8}, {"int8": 1})),
    "dynamic": (dynamic, ({"int8": I8}, {"int8-dynamic": 1})),
    "dynamic LSTM": (recurrent_dynamic, ({"int8": 16 * 20}, {"int8-dynamic": 1})),
    "int4 in bytes": (narrow, ({"int4": CELLS // 2}, {"fp32": 1})),
    "int4": (of_type(Type.INT4, 4), ({"int4": CELLS // 2}, {"fp32": 1})),
    "fp8": (of_type(Type.FLOAT8E4M3FN, 8), ({"fp8": CELLS}, {"fp32": 1})),
    "bf16": (
        lambda f: saved(f, PRODUCT, {"w": packed(Type.BFLOAT16, 16)}, Type.BFLOAT16),
        ({"bf16": F16}, {"bf16": 1}),
    ),
    "rounded at load": (fake, ({"fp32": F32}, {"int8": 1})),
    "int16 activations": (wide_activations, ({"int8": I8}, {"int16": 1})),
    "tied": (tied, ({"fp32": F32}, {"fp32": 2})),
    "mixed": (mixed, ({"int8": I8, "fp32": F32}, {"int8": 1, "fp32": 1})),
    "external data": (beside, ({"fp32": F32}, {"fp32": 1})),
    "If": (branches, ({"fp32": F32, "fp16": F16}, {"fp32": 2})),
    "Loop": (loop, ({"fp32": F32}, {"fp32": 1})),
    "function": (function, ({"fp32": 2 * F32}, {"fp32": 1})),
    "embedding, convolution, LSTM": (words, ({"fp32": 4 * (256 + 64 + 128 + 64)}, {"fp32": 2})),
    "constants that are no weights": (constants, ({"int8": I8}, {"int8": 1})),
    "constants in nodes": (stated, ({"fp32": F32}, {"fp32": 1})),
}

# --------------------------------------------------------------------------- TFLite

FLOAT32, FLOAT16, INT16, INT8, INT4 = 0, 1, 7, 9, 17
FULLY_CONNECTED, DEQUANTIZE, WHILE = 9, 6, 119


def lite(folder: Path, weight: tuple[int, bytes], ends: int = FLOAT32, **how: Any) -> Artifact:
    """A fully connected layer. `how`: "old" (codes in the deprecated field), "real" (weights made fp32 at load)."""
    from ai_edge_litert import schema_py_generated as schema
    from flatbuffers import Builder

    model = schema.ModelT()
    model.version, model.buffers = 3, [schema.BufferT(), schema.BufferT()]
    model.buffers[1].data = np.frombuffer(weight[1], np.uint8)
    graph = schema.SubGraphT()
    kinds = [("x", ends, [1, SIDE], 0), ("w", weight[0], [SIDE, SIDE], 1), ("y", ends, [1, SIDE], 0)]
    graph.tensors = [_tensor(schema, *kind) for kind in (*kinds, ("f", FLOAT32, [SIDE, SIDE], 0))]
    real = bool(how.get("real"))
    codes = [FULLY_CONNECTED, *([DEQUANTIZE] if real else [])]
    model.operatorCodes = [_code(schema, code, bool(how.get("old"))) for code in codes]
    layer = _operator(schema, 0, [0, 3 if real else 1, -1], [2])
    graph.operators = [*([_operator(schema, 1, [1], [3])] if real else []), layer]
    graph.inputs, graph.outputs = [0], [2]
    model.subgraphs = [graph]
    builder = Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    folder.mkdir(exist_ok=True)
    (folder / "model.tflite").write_bytes(bytes(builder.Output()))
    specs = TensorSpec("x", (1, SIDE)), TensorSpec("y", (1, SIDE))
    return Artifact(folder, "tflite", specs[:1], specs[1:]).write()


def _tensor(schema: Any, name: str, kind: int, shape: list[int], buffer: int) -> Any:
    tensor = schema.TensorT()
    tensor.name, tensor.type, tensor.shape, tensor.buffer = name, kind, shape, buffer
    if kind in (INT8, INT4, INT16):
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [0.1], [0]
    return tensor


def _code(schema: Any, number: int, old: bool) -> Any:
    code = schema.OperatorCodeT()
    code.deprecatedBuiltinCode, code.version = number, 1
    code.builtinCode = 0 if old else number
    return code


def _operator(schema: Any, code: int, reads: list[int], writes: list[int]) -> Any:
    op = schema.OperatorT()
    op.opcodeIndex, op.inputs, op.outputs = code, reads, writes
    if code == 0:
        op.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
        op.builtinOptions = schema.FullyConnectedOptionsT()
    return op


def of_lite(kind: int, dtype: Any, ends: int = FLOAT32, **how: Any) -> Build:
    """One layer with weights of a type."""
    data = matrix(dtype).tobytes() if dtype else bytes(CELLS // 2)
    return lambda folder: lite(folder, (kind, data), ends, **how)


TFLITE: dict[str, tuple[Build, Expected]] = {
    "tflite fp32": (of_lite(FLOAT32, np.float32), ({"fp32": F32}, {"fp32": 1})),
    "tflite of TF 2.3": (of_lite(FLOAT32, np.float32, old=True), ({"fp32": F32}, {"fp32": 1})),
    "tflite fp16": (of_lite(FLOAT16, np.float16, real=True), ({"fp16": F16}, {"fp32": 1})),
    "tflite int8": (of_lite(INT8, np.int8, INT8), ({"int8": I8}, {"int8": 1})),
    "tflite int8 of TF 2.3": (of_lite(INT8, np.int8, INT8, old=True), ({"int8": I8}, {"int8": 1})),
    "tflite dynamic": (of_lite(INT8, np.int8), ({"int8": I8}, {"int8-dynamic": 1})),
    "tflite int8 weights alone": (of_lite(INT8, np.int8, real=True), ({"int8": I8}, {"fp32": 1})),
    "tflite int16 activations": (of_lite(INT8, np.int8, INT16), ({"int8": I8}, {"int16": 1})),
    "tflite int4": (of_lite(INT4, None, INT8), ({"int4": I8 // 2}, {"int8": 1})),
}

# --------------------------------------------------------------------------- OpenVINO

PORT = '<port id="{0}" precision="{1}"><dim>16</dim><dim>16</dim></port>'


def ir(layers: Sequence[tuple[str, str, str, str]]) -> Build:
    """A model.xml of (type, attributes of its data, precision of its output, numbers of what it reads)."""

    def build(folder: Path) -> Artifact:
        lines, edges = [], []
        for number, (kind, data, precision, reads) in enumerate(layers):
            places = list(enumerate(map(int, reads.split())))
            ports = "".join(PORT.format(i, "FP32") for i, _ in places)
            edges += [f'<edge from-layer="{s}" from-port="9" to-layer="{number}" to-port="{i}"/>' for i, s in places]
            out = "" if kind == "Result" else f"<output>{PORT.format(9, precision)}</output>"
            lines.append(
                f'<layer id="{number}" name="l{number}" type="{kind}"><data {data}/><input>{ports}</input>{out}</layer>'
            )
        folder.mkdir(exist_ok=True)
        text = f"<net><layers>{''.join(lines)}</layers><edges>{''.join(edges)}</edges></net>"
        (folder / "model.xml").write_text(text, encoding="utf-8")
        spec = TensorSpec("x", (SIDE, SIDE))
        return Artifact(folder, "openvino", (spec,), (spec,)).write()

    return build


def const(kind: str, size: int, offset: int = 0, shape: str = "16,16") -> tuple[str, str, str, str]:
    """A constant of a type."""
    return ("Const", f'element_type="{kind}" shape="{shape}" offset="{offset}" size="{size}"', kind.upper(), "")


X = ("Parameter", "", "FP32", "")
MATMUL, RESULT = "MatMul", ("Result", "", "", "3")
OPENVINO: dict[str, tuple[Build, Expected]] = {
    "openvino fp32": (ir([X, const("f32", F32), (MATMUL, "", "FP32", "0 1")]), ({"fp32": F32}, {"fp32": 1})),
    "openvino fp16 weights": (
        ir([X, const("f16", F16), ("Convert", "", "FP32", "1"), (MATMUL, "", "FP32", "0 2")]),
        ({"fp16": F16}, {"fp32": 1}),
    ),
    "openvino int4 weights": (
        ir(
            [
                X,
                const("u4", CELLS // 2),
                ("Convert", "", "FP16", "1"),
                const("f16", 32, 999, "16,1"),
                ("Multiply", "", "FP16", "2 3"),
                ("Convert", "", "FP32", "4"),
                (MATMUL, "", "FP32", "0 5"),
            ]
        ),
        ({"int4": CELLS // 2}, {"fp32": 1}),
    ),
    "openvino int8": (
        ir(
            [
                X,
                const("f32", 4, 990, "1"),
                ("FakeQuantize", 'levels="256"', "FP32", "0 1 1 1 1"),
                const("i8", I8),
                ("Convert", "", "FP32", "3"),
                const("f32", 64, 994, "16,1"),
                ("Multiply", "", "FP32", "4 5"),
                (MATMUL, "", "FP32", "2 6"),
            ]
        ),
        ({"int8": I8}, {"int8": 1}),
    ),
}

EVERY = {**ONNX, **TFLITE, **OPENVINO}
