"""What XNNPACK leaves to ExecuTorch's portable kernels: a table that tests/test_kernels.py holds to the partitioner."""

from __future__ import annotations

from collections.abc import Mapping

from edgecompress.core.operations import MULTIPLYING, Kernels, Operation, words

# Words that the edge dialect has too
SAME = words("argmax argmin topk cumsum flip atan tan asin sinh isnan where embedding erf round sign reciprocal pow")
# Words to the operators that stay outside, where any does
OUTSIDE: Mapping[str, str] = {
    "conv3d": "convolution select",  # one plane after another
    "convtranspose3d": "convolution",
    **dict.fromkeys(("lstm", "gru", "rnn"), "full"),
    "layernorm": "native_layer_norm",
    "groupnorm": "native_group_norm",
    "instancenorm": "native_batch_norm_legit",
    "rmsnorm": "mean add",
    "attention": "mul expand eq logical_not any where full_like",
    "matmul": "expand",
    **dict.fromkeys(("elu", "selu"), "elu"),
    "celu": "expm1 gt where",
    **dict.fromkeys(("mish", "softplus"), "gt log1p where"),
    "logsoftmax": "log_softmax",
    **dict.fromkeys(("reducemean", "planemean"), "mean"),
    "reducesum": "sum",
    "reducemax": "amax",
    "reducemin": "amin",
    "reduceprod": "prod",
    "norm": "sum pow",
    "logsumexp": "scalar_tensor amax eq where sum",
    "var": "var",
    "adaptivepool": "adaptive_avg_pool2d",
    "resize_nearest": "upsample_nearest2d",
    "resize_cubic": "arange add clamp index sub",
    "pad_reflect": "arange abs sub index",
    "pad_edge": "arange clamp index",
    "gridsample": "grid_sampler_2d",
    "indexput": "copy slice_scatter",
    "slice_step": "slice",
    "select": "select",
    "tile": "repeat",
    "expand": "expand",
    "roll": "arange add fmod index_select",
    **dict.fromkeys(("gather", "gather_dynamic"), "index"),
    "gatherelements": "gather",
    "trilu": "arange sub le where",
    "unfold": "arange add index",
    "cast": "to_dim_order",
    "sort": "topk",
    "adaptivemaxpool": "amax cat",
    **{word: word for word in SAME},
}
# What XNNPACK takes whole
INSIDE = words(
    "conv conv_grouped conv_depthwise convtranspose linear batchnorm relu relu1 relu6 hardtanh leakyrelu prelu gelu "
    "silu hardswish hardsigmoid sigmoid tanh softsign exp log sqrt rsqrt abs neg floor ceil sin cos square clip "
    "softmax maxpool maxpool_pad averagepool globalaveragepool resize_bilinear split stack depthtospace "
    "spacetodepth glu add sub mul div maximum minimum reshape transpose slice concat pad constant"
)
INT8 = ("conv", "conv_grouped", "conv_depthwise", "convtranspose", "linear")  # of what multiplies
OWN = ("comparison", "equal", "logical", "mod")  # many operators under one word: each stays, under its own name


def kernels(operation: Operation, precision: str) -> Kernels:
    """What becomes of an operator in a variant of that precision ("fp32", "fp16", "int8")."""
    word = operation.word
    if word in OWN or (word == "constant" and operation.type.startswith("arange")):
        return Kernels(outside=[operation.type.split(".")[0]])
    if word not in OUTSIDE and word not in INSIDE:
        return Kernels(known=False)
    if not operation.real and word != "reshape":
        return Kernels(outside=OUTSIDE.get(word, operation.type.split(".")[0]).split())
    floats = precision == "int8" and word in MULTIPLYING and word not in INT8
    return Kernels(OUTSIDE.get(word, "").split(), [operation.type] if floats else ())
