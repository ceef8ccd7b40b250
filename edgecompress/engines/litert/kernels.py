"""What LiteRT makes of an operator, and whether XNNPACK takes it: a table that tests/test_kernels.py holds to both."""

from __future__ import annotations

from collections.abc import Mapping

from edgecompress.core.operations import MULTIPLYING, Kernels, Operation, words

# TFLite operators that XNNPACK takes in float, and those of them in int8. Of others a kernel of TFLite's own runs.
FLOAT = words(
    "ABS ADD AVERAGE_POOL_2D BATCH_MATMUL CEIL CONCATENATION CONV_2D COS DEPTH_TO_SPACE DEPTHWISE_CONV_2D DEQUANTIZE "
    "DIV ELU EXP EXPAND_DIMS FLOOR FULLY_CONNECTED GELU HARD_SWISH LEAKY_RELU LOG LOGISTIC MAX_POOL_2D MAXIMUM MEAN "
    "MINIMUM MUL NEG PAD PRELU QUANTIZE REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR ROUND "
    "RSQRT SIN SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQRT SQUARE SQUARED_DIFFERENCE SQUEEZE SUB SUM TANH TRANSPOSE "
    "TRANSPOSE_CONV"
)
INT8 = words(
    "ADD CONCATENATION CONV_2D DEPTH_TO_SPACE DEPTHWISE_CONV_2D DEQUANTIZE ELU EXPAND_DIMS FULLY_CONNECTED "
    "LEAKY_RELU LOGISTIC MAX_POOL_2D MEAN MUL PAD QUANTIZE RESHAPE RESIZE_BILINEAR SLICE SPACE_TO_DEPTH SPLIT "
    "SQUEEZE SUB SUM TANH TRANSPOSE TRANSPOSE_CONV"
)
# Those that no quantizer of LiteRT makes int8: they stay in float
IN_FLOAT = words(
    "ABS ARG_MAX ATAN2 CEIL CONV_3D COS CUMSUM DIV EXP FLOOR FLOOR_MOD LOG POW REDUCE_MAX REVERSE_V2 ROUND SIGN SIN "
    "SQRT STABLEHLO_REDUCE_WINDOW STABLEHLO_SCATTER"
)
DYNAMIC = words("CONV_2D FULLY_CONNECTED TRANSPOSE_CONV")  # whose weights alone are int8
FUSED = words(
    "conv conv_grouped conv_depthwise convtranspose linear add sub mul batchnorm "
    "CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV FULLY_CONNECTED ADD SUB MUL"
)

# Words that TFLite has too
SAME = words(
    "abs add cast ceil cos cumsum div equal exp floor gelu log maximum minimum mul pad pow relu relu6 reshape round "
    "rsqrt sign sin slice softmax sqrt sub tanh transpose"
)
NORM = "MEAN SQUARED_DIFFERENCE ADD~ RSQRT MUL SUB~"
SAMPLING = "BROADCAST_TO CONCATENATION! GATHER_ND MUL ADD"
# Words to what the converter writes for them. "!": XNNPACK does not take this one (of indices, of many parts); "~": it
# does not in int8 (of a number or a row of them, whose scale is too far from the other's)
BECOMES: Mapping[str, str] = {
    **dict.fromkeys(("conv", "conv_grouped"), "CONV_2D"),
    "conv_depthwise": "DEPTHWISE_CONV_2D",
    "conv3d": "CONV_3D",
    "convtranspose": "TRANSPOSE_CONV",
    "linear": "FULLY_CONNECTED",
    **dict.fromkeys(("matmul", "einsum"), "BATCH_MATMUL"),
    "attention": "MUL BATCH_MATMUL SOFTMAX BATCH_MATMUL",
    # Steps are joined, more of them than XNNPACK joins
    **dict.fromkeys(("lstm", "rnn"), "FULLY_CONNECTED SLICE LOGISTIC TANH MUL ADD CONCATENATION!"),
    "gru": "FULLY_CONNECTED SLICE LOGISTIC TANH MUL ADD SUB~ CONCATENATION!",
    "embedding": "EMBEDDING_LOOKUP",
    "batchnorm": "MUL ADD",
    "layernorm": NORM,
    "groupnorm": "MEAN SUB MUL ADD~ RSQRT BROADCAST_TO",
    "instancenorm": "MEAN SUB MUL ADD~ RSQRT",
    "rmsnorm": "MUL MEAN ADD~ RSQRT",
    "hardtanh": "RELU_N1_TO_1",
    "relu1": "RELU_0_TO_1",
    "leakyrelu": "LEAKY_RELU",
    "celu": "EXP SUB GREATER SELECT",
    **dict.fromkeys(("elu", "selu"), "EXP SUB GREATER_EQUAL SELECT"),
    "silu": "LOGISTIC MUL",
    "mish": "EXP ADD LOG GREATER SELECT TANH MUL",
    "softplus": "EXP ADD LOG GREATER SELECT",
    "hardswish": "HARD_SWISH",
    "hardsigmoid": "ADD MUL",
    "sigmoid": "LOGISTIC",
    "softsign": "ABS ADD DIV",
    "neg": "MUL",
    "erf": "GELU",  # of which it is a part wherever nets have it
    "reciprocal": "DIV",
    "square": "MUL",
    "clip": "MAXIMUM MINIMUM",
    "logsoftmax": "REDUCE_MAX MAXIMUM SUB EXP SUM LOG",
    "logsumexp": "REDUCE_MAX ABS EQUAL SELECT SUB EXP SUM LOG ADD",
    **dict.fromkeys(("reducemean", "planemean", "globalaveragepool"), "MEAN"),
    "reducesum": "SUM",
    "reducemax": "REDUCE_MAX",
    "reducemin": "REDUCE_MIN",
    "reduceprod": "REDUCE_PROD",
    "norm": "ABS MUL SUM SQRT",
    "var": "MEAN SUB MUL SUM",
    "argmax": "ARG_MAX",
    "argmin": "ARG_MIN",
    "maxpool": "MAX_POOL_2D",
    "maxpool_pad": "PADV2 MAX_POOL_2D",
    **dict.fromkeys(("averagepool", "adaptivepool"), "AVERAGE_POOL_2D"),
    "resize_nearest": "RESIZE_NEAREST_NEIGHBOR",
    "resize_bilinear": "RESIZE_BILINEAR",
    **dict.fromkeys(("resize_cubic", "unfold"), SAMPLING),
    "gridsample": f"{SAMPLING} ADD! FLOOR GREATER_EQUAL LESS SELECT LOGICAL_AND CAST",
    **dict.fromkeys(("pad_reflect", "pad_edge"), "MIRROR_PAD"),
    "slice_step": "STRIDED_SLICE",
    "split": "SLICE",
    "select": "SLICE RESHAPE",
    "concat": "CONCATENATION",
    "stack": "CONCATENATION RESHAPE",
    **dict.fromkeys(("tile", "expand"), "BROADCAST_TO"),
    "roll": "SLICE CONCATENATION",
    "flip": "REVERSE_V2",
    **dict.fromkeys(("depthtospace", "spacetodepth"), "RESHAPE TRANSPOSE"),
    **dict.fromkeys(("gather", "gather_dynamic", "gatherelements"), "GATHER_ND"),
    "isnan": "NOT_EQUAL",
    "trilu": "SELECT",
    "glu": "SLICE LOGISTIC MUL",
    "atan": "ATAN2",
    "mod": "FLOOR_MOD",
    "where": "SELECT",
    "comparison": "GREATER",
    "logical": "LOGICAL_AND",
    "indexput": "PAD SELECT",
    "scatter": "STABLEHLO_SCATTER",
    "prelu": "RELU MUL SUB",
    "lrn": "STABLEHLO_REDUCE_WINDOW POW DIV",
    "topk": "TRANSPOSE! TOPK_V2 LESS ADD! SELECT CONCATENATION! GATHER_ND",
    "sort": "NEG TOPK_V2 LESS ADD! SELECT CONCATENATION! GATHER_ND",
    "adaptivemaxpool": "SLICE REDUCE_MAX CONCATENATION",
    "constant": "",
    **{word: word.upper() for word in SAME},
}
LOOP = "TensorFlow's converter does not calibrate a loop, as the steps of an LSTM or GRU are; unroll=True has none"


def made_of(operation: Operation) -> list[str]:
    """The TFLite operators that the converter writes for one; none where it is fused into the one before it."""
    if operation.word.lower() in ("relu", "relu6", "hardtanh") and operation.behind in FUSED:
        return []
    return BECOMES.get(operation.word, operation.word).split()


def kernels(operation: Operation, precision: str) -> Kernels:
    """What becomes of an operator in a variant of that precision ("fp32", "fp16", "int8", "int8-dynamic")."""
    word = operation.word
    if word == "WHILE":
        return Kernels(unable=LOOP if precision == "int8" and operation.type != word else "", known=False)
    if word not in BECOMES and not word.isupper():
        return Kernels(known=False)
    made = made_of(operation)
    if word == "embedding" and precision == "fp16":
        made.append("DEQUANTIZE!")
    if not operation.real:
        whole = operation.dtype in ("int8", "uint8")  # a file that came quantized
        return Kernels(outside=[name.rstrip("!~") for name in made if not whole or name not in INT8])
    if precision != "int8":
        made = [name.rstrip("~") for name in made]
    taken, floats = FLOAT, list[str]()
    if precision == "int8":
        floats = [name for name in made if name in IN_FLOAT]
        taken = INT8 | FLOAT.intersection(floats)
    elif precision == "int8-dynamic" and word in MULTIPLYING and DYNAMIC.isdisjoint(made):
        floats = made
    return Kernels([name.rstrip("!~") for name in made if name not in taken], floats)
