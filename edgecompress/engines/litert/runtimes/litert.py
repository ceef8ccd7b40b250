"""LiteRT (TensorFlow Lite) on the CPU: converts programs and SavedModels, reads users' .tflite files."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import package_files, plain_file
from edgecompress.core.errors import InputError, MissingDependency, StageFailed, blamed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.core.operations import words
from edgecompress.data import declared_ends
from edgecompress.engines.litert import arena as litert_arena
from edgecompress.engines.litert import layer_outputs, model_edits, model_file, saved_model, session
from edgecompress.formats import (
    torch_decompositions,
    torch_faults,
    torch_foresight,
    torch_program,
    torch_shortcuts,
)
from edgecompress.formats.torch_replacements import pools

if TYPE_CHECKING:
    import numpy as np
    import torch

    from edgecompress.core import operator_graph
    from edgecompress.core.operations import Foreseen, Kernels, Operation
    from edgecompress.core.protocols import Arena

REQUIRES = ("litert-torch", "ai-edge-litert")
OPENS_WITH = ("ai-edge-litert",)
IMPORTS = ("ai_edge_litert.interpreter",)  # what `open` needs: loaded before a session's memory and load time count
EXTRA = "litert"
ACCELERATOR = "XNNPACK"
FORMAT = "tflite"
FIXED = True
SETTINGS = session.SETTINGS
READS: tuple[str, ...] = ("program", "savedmodel")
SUFFIX = ".tflite"

FILE = "model.tflite"
REFLECTED = 2  # how a sampled grid is padded: torch spells it out by int8, which no kernel compares
LARGEST_FILE = 2**31 - 1  # bytes: the furthest that an offset reaches


# --------------------------------------------------------------------------- a program or a SavedModel becomes a file


def export(request: Request) -> Artifact:
    """The model as `model.tflite`, its batch fixed to the context's, its ends named and ordered as in the specs.

    64-bit inputs and outputs are 32-bit in the file, and in its specs. Raises StageFailed where a converter cannot.
    """
    model = request.model
    for spec in model.inputs:
        free = [d.name for d in spec.shape if not isinstance(d, int) and d.name != "batch"]
        if free:
            raise InputError(
                f"runtime litert: axis '{free[0]}' of input '{spec.name}' is dynamic, but a TFLite file has fixed "
                "shapes; give it one size in the source"
            )
    convert = _from_program if model.kind == "program" else _from_savedmodel
    data, inputs, outputs, facts = convert(model, request.context.batch)
    data = model_edits.renamed(data, inputs, outputs)
    (request.out / FILE).write_bytes(data)
    specs = model_file.inputs_and_outputs(data, FILE)
    ends = model_file.as_written(model.inputs, specs[0]), model_file.as_written(model.outputs, specs[1])
    return Artifact(request.out, FORMAT, *ends, facts).write()


# the file; {name in it: the spec's} of inputs and of outputs; facts
Converted = tuple[bytes, dict[str, str], dict[str, str], dict[str, Json]]


def _from_program(model: Artifact, batch: int) -> Converted:
    import litert_torch
    import torch

    program = torch_program.load(model.file(".pt2"))
    program, spelled = torch_decompositions.simpler(program, _right)
    facts = torch_decompositions.together(torch_shortcuts.folded(program), spelled)
    example = tuple(torch.zeros(s.concrete(batch), dtype=getattr(torch, s.dtype)) for s in model.inputs)

    def convert(program: torch.export.ExportedProgram) -> bytes:
        net = _placed(_copied(_pooled(_attached(program.module(check_guards=False)))))
        how = _quantization(program)
        made: bytes = litert_torch.convert(_positional(net), example, quant_config=how).model_content()
        return model_edits.with_plain_scatters(made)

    try:
        data, simpler = torch_decompositions.retried(convert, program, _known, broken=_lacks_a_kernel)
    except Exception as error:
        why = torch_faults.told(error, program, refused=lambda: foreseen(model).refused)
        raise StageFailed(f"runtime litert: litert_torch.convert: {why}") from error
    facts = torch_decompositions.together(facts, simpler)
    ends = (("args", model.inputs), ("output", model.outputs))  # what the converter calls them
    inputs, outputs = ({f"{old}_{i}": s.name for i, s in enumerate(specs)} for old, specs in ends)
    return data, inputs, outputs, facts


# What no kernel reads as the converter writes it
WRONG = words(
    "sort argsort msort median nanmedian quantile nanquantile kthvalue floor_divide logical_xor conv_transpose3d "
    "adaptive_avg_pool3d unfold _safe_softmax col2im"
)


def _right(node: torch.fx.Node) -> bool:
    """Whether the converter makes of an operator what it computes, and what LiteRT has a kernel of.

    It takes the nearest number by half pixels, torch by rounding down. Where it moves a transpose behind a difference
    from a constant, or a quotient of one, it turns the two around. It pads no transposed convolution, tells no
    places of a maximum and turns axes around together that stand side by side alone.
    """
    name = node.target._opname
    if name in FROM_LEFT and node.target._overloadname != "Tensor_mode" and _turns_around(node, name):
        return False
    if name in ("conv_transpose1d", "conv_transpose2d"):  # padding, groups, dilation
        given = dict(enumerate(node.args))
        pad, groups, step = given.get(4, 0), given.get(6, 1), given.get(7, 1)
        return groups == 1 and pad in (0, [0], [0, 0]) and step in (1, [1], [1, 1])
    if name in ("grid_sampler", "grid_sampler_2d"):
        return bool(node.args[3] != REFLECTED)
    if name == "scatter_reduce":
        return bool(node.args[4] != "mean" and (node.args[5:] or [node.kwargs.get("include_self", True)])[0])
    if name in ("conv3d", "convolution") and node.args[0].meta["val"].dim() == 5:
        return _volume_is_right(*node.args, **node.kwargs)
    if name == "einsum":  # of five axes its compiler may not end
        return "..." not in node.args[0] and all(each.meta["val"].dim() < 5 for each in node.args[1])
    if name == "abs":
        return bool(node.meta["val"].is_floating_point())
    if name in ("bitwise_xor", "__xor__"):
        return bool(node.meta["val"].dtype.itemsize > 1)  # of truth values it writes none
    if name in ("add", "sub"):
        return bool(node.kwargs.get("alpha", 1) == 1)
    if name == "index_put":  # it knows no place whose number the data tells
        return all(each is None or each.meta["val"].dtype.itemsize > 1 for each in node.args[1])
    if name == "max_pool2d":
        return not node.args[5:]  # ceil_mode: it makes another number of windows
    if name in ("split", "unsafe_split"):
        return len(node.meta["val"]) > 1
    if name in ("pow", "square"):
        return bool(node.meta["val"].dim() < 5)
    if name in ("argmax", "argmin", "max", "min") and node.args[1:] and isinstance(node.args[1], int):
        return bool(node.args[0].meta["val"].shape[node.args[1]] != 1)  # it cannot write where the only number is
    if name == "flip":
        return len(node.args[1]) == 1
    if name.startswith("upsample_nearest"):
        before, after = node.args[0].meta["val"].shape[2:], node.meta["val"].shape[2:]
        return all(isinstance(b, int) and a % b == 0 for a, b in zip(after, before, strict=True))
    places = "max_pool" in name and torch_decompositions.places_are_read(node)
    return name not in WRONG and not places and not (name == "div" and node.kwargs.get("rounding_mode"))


FROM_LEFT = ("rsub", "reciprocal", "sub", "subtract", "div", "divide", "true_divide")
STRAIGHT = words("linear addmm mm bmm matmul softmax _softmax layer_norm embedding abs sin cos")
TURNED = words("permute transpose t movedim swapaxes swapdims moveaxis numpy_T mT mH adjoint")
AFTER_TURNED = words("exp sigmoid tanh sqrt rsqrt log")  # behind which it moves those alone


def _turns_around(node: torch.fx.Node, name: str) -> bool:
    """Whether a constant is on the left of what comes from a transpose, as it is behind a convolution, too."""
    import torch

    from_one = name in ("rsub", "reciprocal")
    if not from_one and not _is_constant(node.args[0]):
        return False
    todo = [(node.args[0 if from_one else 1], False)]
    while todo:
        each, alone = todo.pop()
        if getattr(each, "op", "") != "call_function" or each.meta["val"].dim() < 2:
            continue
        word = getattr(each.target, "_opname", "")
        if word in STRAIGHT:
            continue
        if torch.Tag.pointwise in getattr(each.target, "tags", ()) or word in ("contiguous", "clone"):
            todo += [(before, alone or word in AFTER_TURNED) for before in each.all_input_nodes]
        elif word in TURNED or not alone:
            return True
    return False


def _is_constant(value: Any) -> bool:
    """A number, a weight, or what is computed of such alone; an input is none."""
    kind = getattr(value, "op", "number" if isinstance(value, (int, float)) else "")
    if kind == "call_function":
        return all(map(_is_constant, value.all_input_nodes))
    return kind in ("number", "get_attr") or (kind == "placeholder" and value.name[:2] in ("p_", "b_", "c_"))


def _volume_is_right(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, pad: Any = 0, dilation: Any = 1, *more: Any, groups: int = 1
) -> bool:
    """Whether it converts a convolution of volumes; `more`: groups, or those of the general convolution."""
    transposed, groups = (more[0], more[2]) if len(more) == 3 else (False, *more, groups)[:2]
    if stride not in (1, [1], [1, 1, 1]) and dilation not in (1, [1], [1, 1, 1]):
        return False  # it makes another convolution
    sizes = [pools.each_axis(0 if isinstance(n, str) else n, 3) for n in (stride, pad, dilation)]
    axes = list(zip(*sizes, weight.meta["val"].shape[2:], strict=True))
    same = all(s == 1 and 2 * p == d * (k - 1) for s, p, d, k in axes)
    crashes = x.meta["val"].shape[1] == 1 and any(sizes[1]) and not same  # a padding of one channel by itself
    return not transposed and groups == 1 and not crashes


def _known(node: torch.fx.Node) -> bool:
    """Whether the converter has a lowering for an operator, and the right one."""
    from litert_torch.backend import lowerings

    return lowerings.lookup(node.target) is not None and _right(node)


def _lacks_a_kernel(data: bytes) -> bool:
    from ai_edge_litert.interpreter import Interpreter

    try:
        Interpreter(model_content=data).allocate_tensors()
    except (ValueError, RuntimeError):
        return True
    return False


def foreseen(program: Artifact) -> Foreseen:
    """What it replaces and refuses in a program."""
    import torch
    from litert_torch.fx_infra import decomp

    def known(node: torch.fx.Node) -> bool:
        return _known(node) and not torch_faults.is_complex(node)

    own = {**torch.export.default_decompositions(), **decomp.pre_convert_decomp()}
    return torch_foresight.foreseen(torch_program.load(program.file(".pt2")), known, own, _right)


def _positional(net: torch.fx.GraphModule) -> torch.nn.Module:
    """The net called by position: the converter takes no program that was exported with keywords."""
    import torch

    if not net._in_spec.children_specs[1].children_specs:
        return net

    class Positional(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, *leaves: torch.Tensor) -> object:
            return torch_program.call(self.net, leaves)

    net.train = lambda mode=True: net  # an exported net refuses it, and the converter asks for evaluation
    return Positional()


def _attached(net: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph module without `detach_`, which torch records of a tensor that forward makes: none follows it twice."""
    from torch.ops import aten

    for node in net.graph.find_nodes(op="call_function", target=aten.detach_.default):
        node.replace_all_uses_with(node.args[0])
        net.graph.erase_node(node)
    net.recompile()
    return net


def _pooled(net: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph module, its means over height and width as the pools that they are.

    The converter keeps a pool channels-last; before a mean it transposes, and no microcontroller's NPU takes that mean.
    """
    from torch.ops import aten

    for node in [n for n in net.graph.nodes if n.target is aten.mean.dim and _over_the_plane(n)]:
        with net.graph.inserting_before(node):
            pool = net.graph.call_function(aten.adaptive_avg_pool2d.default, (node.args[0], [1, 1]))
            if node.args[2:] != (True,):  # the plane is gone, not of size 1
                pool = net.graph.call_function(aten.flatten.using_ints, (pool, 1))
        node.replace_all_uses_with(pool)
        net.graph.erase_node(node)
    net.recompile()
    return net


def _copied(net: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph module, what it repeats and then transposes (a key that all heads share) as copies side by side.

    The converter repeats it, and forgets to transpose.
    """
    from torch.ops import aten

    for node in [n for n in net.graph.nodes if n.target in (aten.expand.default, aten.repeat.default)]:
        last, times = node.args[:2]
        own = [1] * (len(times) - last.meta["val"].dim()) + [*last.meta["val"].shape]
        if node.target is aten.expand.default:
            times = [
                m if isinstance(n, int) and n == 1 else 1 for n, m in zip(own, node.meta["val"].shape, strict=True)
            ]
        if not all(isinstance(count, int) for count in times) or max(times) == 1 or not _transposed(node):
            continue
        with net.graph.inserting_before(node):
            for _ in range(len(times) - node.args[0].meta["val"].dim()):
                last = net.graph.call_function(aten.unsqueeze.default, (last, 0))
            for axis, count in enumerate(times):
                if count > 1:
                    last = net.graph.call_function(aten.cat.default, ([last] * count, axis))
        node.replace_all_uses_with(last)
        net.graph.erase_node(node)
    net.recompile()
    return net


def _placed(net: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph module, the largest numbers taken by their places.

    Of such numbers whose places nothing reads the converter makes a sort, which no kernel computes.
    """
    from torch.ops import aten

    for node in net.graph.find_nodes(op="call_function", target=aten.topk.default):
        found = {user.args[1]: user for user in node.users if user.users}
        if [*found] != [0]:
            continue
        with net.graph.inserting_after(node):
            places = net.graph.call_function(operator.getitem, (node, 1))
        with net.graph.inserting_after(places):
            axis = node.args[2] if len(node.args) > 2 else -1
            taken = net.graph.call_function(aten.gather.default, (node.args[0], axis, places))
        found[0].replace_all_uses_with(taken)
    net.recompile()
    return net


def _transposed(node: torch.fx.Node) -> bool:
    """Whether what a node makes is transposed, before anything but its shape and each number for itself changes."""
    from torch.ops import aten

    reached, size = [node], node.meta["val"].numel()
    for each in reached:
        for user in each.users:
            if user.target in (aten.transpose.int, aten.permute.default, aten.t.default):
                return True
            value = user.meta.get("val")
            if hasattr(value, "numel") and value.numel() == size and user not in reached:
                reached.append(user)
    return False


def _over_the_plane(node: torch.fx.Node) -> bool:
    """Whether a mean is over the last two of four dimensions, and in the type that it is given."""
    tensor = node.args[0].meta["val"]
    return bool(tensor.dim() == 4 and not node.kwargs and {d % 4 for d in node.args[1] or ()} == {2, 3})


def _quantization(program: torch.export.ExportedProgram) -> object:
    """What the converter must be told of a program that was quantized (PT2E): else its weights become float again."""
    from litert_torch.quantize import pt2e_quantizer, quant_config

    used = {str(node.target) for node in program.graph.nodes}
    if not any(name.startswith("quantized_decomposed.") for name in used):
        return None
    dynamic = not any(name.startswith("quantized_decomposed.quantize_per_tensor") for name in used)
    config = pt2e_quantizer.get_symmetric_quantization_config(is_dynamic=dynamic)
    return quant_config.QuantConfig(pt2e_quantizer=pt2e_quantizer.PT2EQuantizer().set_global(config))


def _from_savedmodel(model: Artifact, batch: int) -> Converted:
    try:
        import tensorflow
    except ImportError as error:
        raise MissingDependency(
            f"a SavedModel needs tensorflow-cpu, not installed; run: {package_files.install('tensorflow')}"
        ) from error
    call, loaded = saved_model.call(model, batch)
    try:
        data = tensorflow.lite.TFLiteConverter.from_concrete_functions([call], loaded).convert()
    except Exception as error:
        raise StageFailed(f"runtime litert: TFLiteConverter: {saved_model.fault(error)}") from error
    data = model_edits.without_far_sames(data)
    return data, {s.name: s.name for s in model.inputs}, {s.name: s.name for s in model.outputs}, {}


# --------------------------------------------------------------------------- a stranger's file becomes an artifact


def read(request: Request) -> Artifact:
    """The user's `.tflite` file, checked and copied; raises InputError if it is invalid, or LiteRT cannot run it."""
    file = Path(request.options["path"])
    try:
        data = plain_file.read(file, LARGEST_FILE)
    except OSError as error:
        raise blamed(error)(f"{file}: {error.strerror or error}; give the path of a .tflite file") from error
    model_file.check(data, str(file))
    model_file.check_alone(data, str(file))
    inputs, outputs = model_file.inputs_and_outputs(data, str(file))
    if constants := [*request.options.get("constants", {})]:
        raise InputError(f"{file}: constants: a .tflite file keeps its inputs; convert it with {constants[0]} inside")
    inputs, outputs = declared_ends.of(inputs, outputs, request.options.get("state", {}), str(file))
    (request.out / FILE).write_bytes(data)
    _rehearse(request.out / FILE, file)
    return Artifact(request.out, FORMAT, inputs, outputs).write()


def _rehearse(copy: Path, file: Path) -> None:
    """One run on zeros. Raises InputError with what LiteRT says of the file."""
    from ai_edge_litert.interpreter import Interpreter

    try:
        interpreter = Interpreter(model_path=str(copy), num_threads=1)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            interpreter.tensor(detail["index"])()[...] = 0
        interpreter.invoke()
        for detail in interpreter.get_output_details():
            interpreter.get_tensor(detail["index"])
    except Exception as error:  # it has no class of its own
        if "Select TensorFlow op" in str(error):
            raise InputError(
                f"{file}: it holds operators of TensorFlow (Flex), which LiteRT alone does not run; convert it without "
                "SELECT_TF_OPS: the converter then names them"
            ) from error
        raise InputError(f"{file}: LiteRT cannot run it: {first_line(error)}; export it again") from error


# --------------------------------------------------------------------------- what the file tells


def count(artifact: Artifact, batch: int) -> operator_graph.Graph:
    """The operators of one run of `batch` items. Raises StageFailed where they cannot be counted."""
    from edgecompress.engines.litert import op_counts

    return op_counts.graph(artifact, batch)


def operations(artifact: Artifact) -> list[Operation]:
    """The operators of a file, in order."""
    from edgecompress.engines.litert import operations as litert_operations

    return litert_operations.operations(artifact)


def kernels(operation: Operation, precision: str) -> Kernels:
    """What it makes of an operator in a variant of that precision."""
    from edgecompress.engines.litert import kernels as litert_kernels

    return litert_kernels.kernels(operation, precision)


def precision(artifact: Artifact) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of the weights by precision, and the operators that multiply by what they compute in."""
    from edgecompress.engines.litert import precision as litert_precision
    from edgecompress.formats.precision import walk

    return walk.weights_and_computes(litert_precision.net(artifact.file(SUFFIX)))


def weights(artifact: Artifact) -> Iterator[tuple[str, np.ndarray]]:
    """Each weight of two or more axes, as torch lays it out."""
    from edgecompress.engines.litert import weights as litert_weights

    return litert_weights.of(artifact)


def stored(artifact: Artifact) -> Iterator[tuple[str, np.ndarray | None]]:
    """Each constant of two or more axes, as the file has it."""
    from edgecompress.engines.litert import weights as litert_weights

    return litert_weights.stored(artifact)


# --------------------------------------------------------------------------- a session


def empty(folder: Path) -> Artifact:
    """The smallest model, in an empty folder."""
    return session.empty(folder)


def tapped(request: Request) -> Artifact:
    """The file once more, with the outputs of its layers as further outputs (see `_tflite_taps`)."""
    return layer_outputs.tapped(request)


def watched(request: Request) -> Artifact:
    """The file once more, with every real number that it computes as a further output."""
    return layer_outputs.watched(request)


class LitertSession(session.TfliteSession):
    """A file opened by LiteRT."""

    def arena(self) -> Arena:
        """The memory that is planned for activations, or why it is not known."""
        return litert_arena.arena(self.interpreter, session.left(self.interpreter._get_ops_details()))


def open(artifact: Artifact, threads: int, profile: bool = False) -> LitertSession:
    """A session on `threads` threads of the CPU, by the artifact's settings. Raises StageFailed without a kernel."""
    from ai_edge_litert import interpreter

    try:
        return LitertSession(session.interpreter(interpreter, artifact, threads), artifact)
    except (ValueError, RuntimeError) as error:  # it has no class of its own
        kernel = re.search(r"builtin opcode '(\w+)'|Node number \d+ \((\w+)\) failed", str(error))
        lacks = (
            f"it has no kernel for {kernel[1] or kernel[2]} as the converter wrote it" if kernel else "it cannot run"
        )
        raise StageFailed(f"runtime litert: {artifact.path}: {lacks} ({first_line(error)})") from error
