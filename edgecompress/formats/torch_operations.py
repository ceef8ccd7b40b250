"""The operators of a program of torch.export, in the words of core.operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgecompress.core.model import Artifact
from edgecompress.core.operations import Operation, convolution
from edgecompress.formats import torch_program

if TYPE_CHECKING:
    import torch

# What moves nothing, or is no operator of the net
STILL = {
    *("dropout", "alias", "detach", "clone", "contiguous", "lift_fresh_copy", "sym_size", "sym_constrain_range"),
    *("_assert_scalar", "_assert_tensor_metadata", "getitem", "feature_dropout", "native_dropout", "identity"),
}
# Words, and the operators that they stand for where these have another name
NAMES = {
    "matmul": "mm bmm baddbmm dot mv",
    "linear": "addmm",
    "attention": "scaled_dot_product_attention",
    "batchnorm": "batch_norm _native_batch_norm_legit_no_training",
    "layernorm": "layer_norm native_layer_norm",
    "groupnorm": "group_norm native_group_norm",
    "instancenorm": "instance_norm",
    "rmsnorm": "rms_norm _fused_rms_norm",
    "rnn": "rnn_tanh rnn_relu",
    "leakyrelu": "leaky_relu",
    "softmax": "_softmax _safe_softmax",
    "logsoftmax": "log_softmax _log_softmax",
    "maxpool": "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices",
    "averagepool": "avg_pool1d avg_pool2d avg_pool3d",
    "adaptivemaxpool": "adaptive_max_pool1d adaptive_max_pool2d",
    "resize_nearest": "upsample_nearest2d upsample_nearest1d _upsample_nearest_exact2d",
    "resize_bilinear": "upsample_bilinear2d _upsample_bilinear2d_aa",
    "resize_cubic": "upsample_bicubic2d _upsample_bicubic2d_aa",
    "reshape": "view flatten unflatten _unsafe_view unsqueeze squeeze view_as",
    "transpose": "permute t movedim swapaxes",
    "slice": "narrow unfold_copy",
    "split": "chunk split_with_sizes unbind tensor_split",
    "concat": "cat concatenate",
    "tile": "repeat",
    "expand": "expand_as broadcast_to",
    "depthtospace": "pixel_shuffle",
    "spacetodepth": "pixel_unshuffle",
    "gather": "index_select take",
    "cast": "to _to_copy type_as",
    "reducesum": "sum",
    "reducemax": "amax max",
    "reducemin": "amin min",
    "reduceprod": "prod",
    "norm": "linalg_vector_norm frobenius_norm",
    "var": "var_mean std",
    "sub": "rsub",
    "maximum": "clamp_min",
    "minimum": "clamp_max",
    "equal": "eq ne",
    "comparison": "gt ge lt le",
    "where": "masked_fill",
    "mod": "remainder fmod",
    "trilu": "tril triu",
    "onehot": "one_hot",
    "unfold": "im2col",
    "gridsample": "grid_sampler grid_sampler_2d",
    "indexput": "index_put slice_scatter select_scatter copy",
    "scatter": "scatter_add scatter_reduce index_add",
    "sort": "argsort",
    "div": "true_divide floor_divide",
    "logical": "logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not",
    "constant": "zeros ones full arange zeros_like ones_like full_like new_zeros new_ones new_full scalar_tensor "
    "empty eye linspace",
}
WORDS = {name: word for word, names in NAMES.items() for name in names.split()}


def operations(program: Artifact) -> list[Operation]:
    """The operators of a "program" in its order; what a quantizer put between them is left out."""
    import torch

    exported = torch_program.load(program.file(".pt2"))
    given = set(exported.graph_signature.user_inputs)
    known = {node.name for node in exported.graph.nodes if node.op == "placeholder" and node.name not in given}
    constants = {**exported.state_dict, **exported.constants}
    held = {spec.arg.name: spec.target for spec in exported.graph_signature.input_specs if spec.target}
    words: dict[str, str] = {}
    found = []
    for node in exported.graph.nodes:
        if node.op == "placeholder" and node.name in held:
            node.meta["constant"] = constants.get(held[node.name])
        if node.op != "call_function":
            continue
        if node.all_input_nodes and all(each.name in known for each in node.all_input_nodes):
            known.add(node.name)
        name = str(getattr(node.target, "__name__", node.target)).split(".")[0].rstrip("_")
        first = next((a for a in node.args if isinstance(a, torch.fx.Node)), None)
        behind = words.get(first.name, "") if first is not None else ""
        if name in STILL or _casts_nothing(name, node) or str(node.target).startswith("quantized_decomposed."):
            words[node.name] = behind
            continue
        word = _word(name, node, known)
        words[node.name] = word
        kind = str(getattr(node.target, "__name__", name)).removesuffix(".default")
        found.append(Operation(kind, word, _dtype(node), behind))
    return found


def _casts_nothing(name: str, node: torch.fx.Node) -> bool:
    return (
        WORDS.get(name, name) == "cast"
        and bool(node.all_input_nodes)
        and _dtype(node.all_input_nodes[0]) == _dtype(node)
    )


def _dtype(node: torch.fx.Node) -> str:
    value = node.meta.get("val")
    value = value[0] if isinstance(value, tuple | list) and value else value
    return str(getattr(value, "dtype", "")).removeprefix("torch.")


def _word(name: str, node: torch.fx.Node, known: set[str]) -> str:
    if name == "index":  # by constants, or by what is computed
        constant = all(i is None or i.name in known for i in node.args[1] or ())
        return "gather" if constant else "gather_dynamic"
    if name in REFINED:
        return REFINED[name](node)
    return WORDS.get(name, name)


def _shape(node: torch.fx.Node, place: int) -> tuple[int, ...]:
    value = node.args[place].meta.get("val") if hasattr(node.args[place], "meta") else None
    return tuple(value.shape) if value is not None else ()


def _arg(node: torch.fx.Node, place: int, key: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(key, default)


def _convolution(node: torch.fx.Node) -> str:
    """The general one: transposed in its seventh argument, groups in its last."""
    weights, groups = _shape(node, 1), int(node.args[8])
    if node.args[6]:
        return "convtranspose3d" if len(weights) == 5 else "convtranspose"
    return convolution(groups, weights)


def _pad(node: torch.fx.Node) -> str:
    return {"reflect": "pad_reflect", "replicate": "pad_edge"}.get(str(_arg(node, 2, "mode", "constant")), "pad")


def _pow(node: torch.fx.Node) -> str:
    power = node.args[1]
    if hasattr(power, "meta"):  # a constant of the program
        value = power.meta.get("constant")
        power = float(value) if value is not None and value.numel() == 1 else None
    return "mul" if power == 2 else "sqrt" if power == 0.5 else "pow"


def _between(low: object, high: object) -> str:
    """A clamp by its limits: some are activations that engines have of their own."""
    known = {(0, 6): "relu6", (0, 1): "relu1", (-1, 1): "hardtanh", (0, None): "relu"}
    one_sided = "maximum" if high is None else "minimum" if low is None else "clip"
    return next((word for limits, word in known.items() if limits == (low, high)), one_sided)


def _mean(node: torch.fx.Node) -> str:
    """Over height and width, as pools are; whether these axes stay, of size 1, decides who takes it."""
    axes = _arg(node, 1, "dim", None)
    shape = _shape(node, 0)
    plane = len(shape) == 4 and isinstance(axes, list | tuple) and {a % 4 for a in axes} == {2, 3}
    if not plane:
        return "reducemean"
    return "globalaveragepool" if _arg(node, 2, "keepdim", False) else "planemean"


def _adaptive(node: torch.fx.Node) -> str:
    size = _arg(node, 1, "output_size", None)
    sizes = set(size) if isinstance(size, list | tuple) else {size}
    return "globalaveragepool" if sizes == {1} else "adaptivepool"


def _maxpool(node: torch.fx.Node) -> str:
    padding = _arg(node, 3, "padding", 0)
    return "maxpool_pad" if any(padding if isinstance(padding, list | tuple) else [padding]) else "maxpool"


REFINED: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d"), lambda node: convolution(int(_arg(node, 6, "groups", 1)), _shape(node, 1))
    ),
    "convolution": _convolution,
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d"), lambda node: "convtranspose"),
    "conv_transpose3d": lambda node: "convtranspose3d",
    "pad": _pad,
    "pow": _pow,
    "hardtanh": lambda node: _between(_arg(node, 1, "min_val", -1), _arg(node, 2, "max_val", 1)),
    **dict.fromkeys(("clamp", "clip"), lambda node: _between(_arg(node, 1, "min", None), _arg(node, 2, "max", None))),
    "mean": _mean,
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), _adaptive),
    **dict.fromkeys(("max_pool1d", "max_pool2d"), _maxpool),
    "slice": lambda node: "slice_step" if _arg(node, 4, "step", 1) != 1 else "slice",
    "gather": lambda node: "gatherelements",
    "grid_sampler": lambda node: "gridsample" if len(_shape(node, 0)) == 4 else "gridsample_volume",
}
