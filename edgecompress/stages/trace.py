"""From the user's code to artifacts: a torch factory or a .pt2 becomes a module or a program with named specs."""

from __future__ import annotations

import contextlib
import inspect
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import source as sources
from edgecompress.core import user_code
from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.core.model import DETECT, OPEN, WARNINGS, Artifact, Dim, Request, Shape, TensorSpec
from edgecompress.core.settings import Source
from edgecompress.data import channel_axis, declared_ends, dynamic_axes, states, tensors
from edgecompress.data.dynamic_axes import Dims
from edgecompress.formats import box_heads, torch_edits, torch_faults, torch_module, torch_outputs, torch_program
from edgecompress.formats.torch_module import Named
from edgecompress.stages import keras_net

if TYPE_CHECKING:
    import sympy  # type: ignore[import-untyped]
    import torch

REQUIRES = ("torch", "safetensors")
EXTRA = "torch"

ITEMS = 8  # that the graph of a Keras net is compared with the net by


# --------------------------------------------------------------------------- stages


def load(request: Request) -> Artifact:
    """The user's model as a "module" (a factory `pkg.mod:fn`) or a "program" (a `.pt2` file); input: "samples".

    options: "source" (see core.source), of which "model", "kind", "dynamic", "constants" and "state" count. The user's
    folders are on sys.path already.
    Raises InputError when it cannot be built, holds NaN or Inf, or does not take the samples.
    """
    source = sources.read(request.options)
    return _load_program(request, source) if source.kind == "program" else _load_module(request, source)


def run(request: Request) -> Artifact:
    """The module as a "program" by torch.export; inputs: "model", "samples".

    The batch is fixed to the context's, and every other axis to the samples', unless options["dynamic"] names it.
    """
    import torch

    model, samples = request.model, request.inputs["samples"]
    dims = dynamic_axes.declared(request.options.get("dynamic") or {}, [spec.name for spec in model.inputs])
    batched = any(dim.name == "batch" for axes in dims.values() for dim in axes.values())
    net = torch_module.rebuild(model)
    batch = max(request.context.batch, 2) if batched else request.context.batch  # 1 would be taken for a constant
    named = torch_module.example(model, samples, batch)
    if batch_dim := next((dim for axes in dims.values() for dim in axes.values() if dim.name == "batch"), None):
        # that of the data is dynamic: so is the one of each state
        fed = [spec for spec in model.inputs if spec.name in states.names(model)]
        dims |= {spec.name: {spec.batch_axis: batch_dim} for spec in fed if spec.batch_axis is not None}
    flat = torch_module.flat(net, list(named), [spec.name for spec in model.outputs])
    try:
        program = torch.export.export(flat, tuple(named.values()), dynamic_shapes=_torch_dims(named, dims))
        if torch_program.doubles(program.state_dict):
            flat = torch_module.settled(torch_program.in_single_precision(program), {})
            program = torch.export.export(flat, tuple(named.values()), dynamic_shapes=_torch_dims(named, dims))
    except Exception as error:
        raise InputError(
            f"{torch_module.reference(model)}: torch.export cannot trace it: "
            f"{torch_faults.told(error, says=user_code.error_line(error))}"
        ) from error
    torch.export.save(program, request.out / torch_module.PROGRAM)
    inputs, outputs = _program_specs(program, [list(named), [spec.name for spec in model.outputs]], dims)
    return Artifact(request.out, "program", _like(inputs, model.inputs), _like(outputs, model.outputs)).write()


def _in_float32(weights: Sequence[str]) -> list[str]:
    """What is said of a source that has weights in float64."""
    if not weights:
        return []
    return [
        f"{len(weights)} weights, '{weights[0]}' first, are in float64, which devices do not compute in: each variant "
        "has them in float32, and the target's limits judge the difference"
    ]


def _like(specs: Sequence[TensorSpec], model: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Layout and state as the module's specs have them."""
    return tuple(replace(s, layout=m.layout, feeds=m.feeds) for s, m in zip(specs, model, strict=True))


# --------------------------------------------------------------------------- a factory becomes a module


def _load_module(request: Request, source: Source) -> Artifact:
    reference = source.model
    net = torch_module.factory(reference)
    by_keras = keras_net.is_one(net)
    net = keras_net.called(net, reference) if by_keras else net
    edits, facts, told = torch_edits.bound(net, source.constants, reference), dict[str, Json](), list[str]()
    torch_edits.apply(net, edits)
    if source.decode and by_keras:
        raise InputError(f"{reference}: decode is for torch and ONNX sources; export the Keras net as .onnx")
    if source.decode:
        bare = Artifact(request.out, "module", *module_specs(net, request, source))
        size = channel_axis.picture(spec.concrete() for spec in bare.inputs) or ()
        answers = outputs_of(net, torch_module.example(bare, request.inputs["samples"], 1), reference)
        how, told = box_heads.settled(source.decode, {name: tensor.numpy() for name, tensor in answers.items()})
        shapes = {spec.name: spec.concrete() for spec in bare.outputs}
        decode: torch_edits.Edit = {"edit": "decode", "how": asdict(how), "shapes": shapes, "size": size}
        torch_edits.apply(net, [decode])
        edits.append(decode)
        facts = {DETECT: box_heads.detect(how)}
    if why := torch_module.unsound(net):
        raise InputError(f"{reference}: {why}; train or save it again")
    kept = {name: tensor.clone() for name, tensor in net.named_buffers()}
    draft = Artifact(request.out, "module", *module_specs(net, request, source))
    _check_buffers(net, kept, torch_module.example(draft, request.inputs["samples"], 1), reference)
    if by_keras:
        example = torch_module.example(draft, request.inputs["samples"], ITEMS)
        place, edits = (request.out / torch_module.GRAPH, reference), []
        net = keras_net.graph(net, example, [spec.name for spec in draft.outputs], place)
        reference = torch_module.GRAPH
    torch_module.write(net, request.out, reference, edits)
    wide = torch_program.doubles(net.state_dict())
    if told := [*told, *_in_float32(wide)]:
        facts[WARNINGS] = told
    return replace(draft, facts=facts).write()


def _check_buffers(net: torch.nn.Module, kept: Named, example: Named, reference: str) -> None:
    """Gives the buffers that forward wrote what they held, `kept`.

    Raises InputError where its answers change with what it writes.
    """
    import torch

    written = [name for name, now in net.named_buffers() if name in kept and not torch.equal(now, kept[name])]
    if not written:
        return
    with torch.inference_mode():
        first, second = (torch_outputs.flatten(torch_module.call(net, example)) for _ in range(2))
    if not all(torch.equal(first[name], second[name]) for name in first):
        raise InputError(
            f"{reference}: forward writes its buffer '{written[0]}', so its answers change from run to run; a file "
            "keeps nothing between two runs: write it in training alone (`if self.training`), or make it an input and "
            "an output of forward, and declare both as state"
        )
    for name in written:
        path, _, leaf = name.rpartition(".")
        net.get_submodule(path)._buffers[leaf] = kept[name]


def input_specs(net: torch.nn.Module, samples: Artifact, source: Source, reference: str) -> list[TensorSpec]:
    """The samples' specs under the names of forward's parameters, in forward's order; state and constants left out."""
    parameters = [p for p in inspect.signature(net.forward).parameters.values() if p.name not in source.constants]
    state = {name.partition(".")[0] for name in source.state}
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    names = [p.name for p in named if p.name not in state]
    required = {p.name for p in named if p.default is p.empty}
    available = {spec.name.partition(".")[0] for spec in samples.inputs}
    if lacking := sorted(required & state - available):
        raise InputError(
            f"{reference}: state: forward takes no call without '{lacking[0]}'; give it the default None, and begin "
            "with zeros there"
        )
    required -= state
    if required <= available and (available <= {*names, *state} or any(p.kind == p.VAR_KEYWORD for p in parameters)):
        order = {name: i for i, name in enumerate(names)}
        return sorted(samples.inputs, key=lambda spec: order.get(spec.name.partition(".")[0], len(names)))
    nameless = [spec.name for spec in samples.inputs] == tensors.unnamed(len(samples.inputs))
    if len(required) <= len(samples.inputs) <= len(names) and (nameless or len(samples.inputs) == 1):
        return [replace(spec, name=name) for spec, name in zip(samples.inputs, names, strict=False)]
    raise InputError(tensors.misnamed(names, [spec.name for spec in samples.inputs], f"{reference}: forward"))


def module_specs(
    net: torch.nn.Module, request: Request, source: Source
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Input and output specs from running a batch of one, and one more item, to see which axes are the batch's."""
    samples, reference = request.inputs["samples"], source.model
    specs = input_specs(net, samples, source, reference)
    dims = dynamic_axes.declared(source.dynamic, [spec.name for spec in specs])
    draft = Artifact(request.out, "module", tuple(specs))
    one = outputs_of(net, torch_module.example(draft, samples, 1), reference)
    try:
        two = outputs_of(net, torch_module.example(draft, samples, 2), "") or one
    except InputError:  # its batch is fixed to one
        two = one
    batch = Dim("batch", 1, OPEN)
    inputs = [replace(s, shape=_dims(s, dims.get(s.name, {}), 1 if two is one else batch)) for s in specs]
    outputs = [
        TensorSpec(n, tuple(batch if a != b else a for a, b in zip(t.shape, two[n].shape, strict=True)), _dtype(t))
        for n, t in one.items()
    ]
    # the inputs that hold state and have no data: each is as the output that feeds it
    by_name, known = {spec.name: spec for spec in outputs}, [spec.name for spec in inputs]
    inputs += [
        replace(by_name[out], name=name) for name, out in source.state.items() if name not in known and out in by_name
    ]
    ends = declared_ends.of(inputs, outputs, source.state, reference)
    whole = replace(draft, inputs=ends[0], outputs=ends[1])
    if len(inputs) > len(specs):  # the state goes in too
        outputs_of(net, torch_module.example(whole, samples, 1), reference)
    return whole.inputs, whole.outputs


def _dims(spec: TensorSpec, axes: Mapping[int, Dim], batch: int | Dim) -> Shape:
    if axes and max(axes) >= len(spec.shape):
        raise InputError(f"dynamic.{spec.name}: it has {len(spec.shape)} axes, there is no axis {max(axes)}")
    return tuple(axes.get(i, batch if i == 0 else size) for i, size in enumerate(spec.shape))


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def outputs_of(net: torch.nn.Module, named: Named, reference: str) -> dict[str, torch.Tensor]:
    import torch

    try:
        with torch.inference_mode():
            outputs = torch_module.call(net, named)
    except Exception as error:
        shapes = ", ".join(f"{name} {_dtype(t)} {list(t.shape)}" for name, t in named.items())
        raise InputError(
            f"{reference}: its forward does not take the data ({shapes}): {user_code.error_line(error)}; "
            f"{_advice(net, error, named)}"
        ) from error
    return torch_outputs.flatten(outputs)


def _advice(net: torch.nn.Module, error: Exception, named: Named) -> str:
    """What to do about data that a forward does not take: what it does take is tried."""
    if torch_module.needs_gpu(error):
        return torch_module.ON_CPU
    typed = {n: t.float() if _dtype(t) in ("uint8", "float64") else t for n, t in named.items()}
    says = [f"'{n}': {tensors.converting(_dtype(t))}" for n, t in named.items() if typed[n] is not t]
    if says and _takes(net, typed):
        return "; ".join(says)
    for name, tensor in typed.items():
        for other in _reshaped(tensor):
            if _takes(net, {**typed, name: other}):
                return "; ".join([f"'{name}': {tensors.remedy(tensor.shape[1:], other.shape[1:])}", *says])
    for name, tensor in named.items():
        if "type" in str(error) and _dtype(tensor) in ("uint8", "float64"):
            return f"'{name}': {tensors.converting(_dtype(tensor))}"
        if tensor.ndim == 4 and tensor.shape[3] in tensors.CHANNELS and tensor.shape[1] not in tensors.CHANNELS:
            return f"'{name}' has its channels last: {tensors.CHANNELS_FIRST}"
        if tensor.ndim == 1:
            return f"'{name}': {tensors.SWAPPED}"
    return "check the data's shape and [preprocess]"


def _takes(net: torch.nn.Module, named: Named) -> bool:
    import torch

    with torch.inference_mode(), contextlib.suppress(Exception):
        torch_module.call(net, named)
        return True
    return False


def _reshaped(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """One item [1, ...] as it would be without a usual mistake."""
    if tensor.ndim == 4:
        yield from (tensor.movedim(3, 1), tensor.movedim(1, 3))
        yield from (tensor.repeat_interleave(3, axis) for axis in (1, 3) if tensor.shape[axis] == 1)
        for first in (tensor, tensor.movedim(3, 1)):
            if first.shape[1] == 1:
                yield first.repeat_interleave(3, 1)
            if first.shape[1] in (3, tensors.ALPHA):
                yield from (first[:, :takes] for takes in tensors.CHANNELS if takes < first.shape[1])
    if tensor.ndim == 3:
        yield tensor.movedim(2, 1)
    if tensor.shape[1:2] == (1,) or tensor.ndim not in (1, 2, 4):  # of four axes it might be the channels
        yield tensor[:, 0]


# --------------------------------------------------------------------------- programs


def _torch_dims(named: Named, dims: Dims) -> dict[str, tuple[dict[int, torch.export.Dim], ...]]:
    """torch.export's dynamic shapes of a forward(*inputs)."""
    import torch

    known: dict[str, torch.export.Dim] = {}

    def of(dim: Dim) -> torch.export.Dim:
        return known.setdefault(dim.name, torch.export.Dim(dim.name, min=dim.min, max=dim.max))

    return {"inputs": tuple({axis: of(dim) for axis, dim in dims.get(name, {}).items()} for name in named)}


def _load_program(request: Request, source: Source) -> Artifact:
    import torch

    file = Path(source.model)
    try:
        program = torch_program.load(file)
    except FileNotFoundError as error:
        raise InputError(f"{file}: no such file; give the path of a .pt2 file") from error
    except Exception as error:
        raise InputError(
            f"{file}: not a program of torch.export: {user_code.error_line(error)}; export it again"
        ) from error
    settled, names = _settled(program, source.constants, str(file))
    for name, tensor in program.state_dict.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise InputError(f"{file}: weight '{name}' holds NaN or infinite values; train or save it again")
    wide = torch_program.doubles(settled.state_dict)
    if wide:
        net = torch_module.settled(torch_program.in_single_precision(settled), {})
        free = [node.meta["val"] for node in settled.graph.nodes if node.name in settled.graph_signature.user_inputs]
        settled = _exported_again(net, free, str(file))
    if settled is program:
        shutil.copyfile(file, request.out / torch_module.PROGRAM)
    else:
        torch.export.save(settled, request.out / torch_module.PROGRAM)
    inputs, outputs = _program_specs(settled, names, {})
    ends = declared_ends.of(inputs, outputs, source.state, str(file), request.inputs["samples"].inputs)
    draft = Artifact(request.out, "program", *ends, {WARNINGS: _in_float32(wide)} if wide else {})
    samples, batch = request.inputs["samples"], draft.batch
    named = torch_module.example(draft, samples, batch if isinstance(batch, int) else max(batch.min, 2))
    try:
        torch_program.call(settled.module(), list(named.values()))
    except Exception as error:
        raise InputError(
            f"{file}: it does not take the data: {user_code.error_line(error)}; check the data's shape"
        ) from error
    return draft.write()


def _settled(
    program: torch.export.ExportedProgram, constants: Mapping[str, object], where: str
) -> tuple[torch.export.ExportedProgram, list[list[str]]]:
    """The program with tensors alone in and out, and their names: what else goes in, and `constants`, is inside."""
    import torch
    from torch.export.graph_signature import InputKind
    from torch.utils import _pytree as pytree

    signature = program.graph_signature
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    given = [spec.arg for spec in signature.input_specs if spec.kind == InputKind.USER_INPUT]
    declared_ends.check_constants(constants, [arg.name for arg in given], where)
    inside: dict[int, object] = {}
    for index, arg in enumerate(given):
        value = values[arg.name]
        if arg.name in constants:
            inside[index] = torch_module.constant(arg.name, constants[arg.name], value, where)
        elif not isinstance(value, torch.Tensor):
            inside[index] = value
    answers = [values.get(str(out), out) for out in signature.user_outputs]
    outputs = torch_outputs.flatten(pytree.tree_unflatten(answers, program.call_spec.out_spec))
    free = [arg.name for index, arg in enumerate(given) if index not in inside]
    if inside or len(outputs) < len(answers):
        net = torch_module.settled(program.module(check_guards=False), inside)
        program = _exported_again(net, [values[name] for name in free], where)
    return program, [free, list(outputs)]


def _exported_again(net: torch.nn.Module, inputs: Sequence[torch.Tensor], where: str) -> torch.export.ExportedProgram:
    """The changed net of a program as a program again; `inputs`: as its graph has them."""
    import torch

    dims = [{i: torch.export.Dim.AUTO for i, n in enumerate(v.shape) if not isinstance(n, int)} for v in inputs]
    try:
        example = tuple(
            torch.zeros([n if isinstance(n, int) else int(n.node.hint) for n in value.shape], dtype=value.dtype)
            for value in inputs
        )
        return torch.export.export(net, example, dynamic_shapes={"inputs": tuple(dims)})
    except Exception as error:
        raise InputError(
            f"{where}: torch.export cannot put its constants inside: {user_code.error_line(error)}; export it without "
            "the inputs that are constants"
        ) from error


def _program_specs(
    program: torch.export.ExportedProgram, names: Sequence[Sequence[str]], dims: Dims
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The specs of a program's inputs and outputs; where `names` are missing the graph's own are taken."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    signature = program.graph_signature
    sides = []
    for order, words in zip((signature.user_inputs, signature.user_outputs), names, strict=True):
        if unlike := next((g for g in order if not hasattr(values.get(str(g)), "shape")), None):
            raise InputError(f"the program's '{unlike}' is not a tensor; export it with tensors only")
        sides.append([(n, values[str(g)]) for n, g in zip(words or order, order, strict=True)])
    makers = {symbol: node for node in program.graph.nodes for symbol in node.meta.get("unbacked_bindings") or ()}
    for name, value in sides[1]:
        told = {symbol for size in value.shape if hasattr(size, "node") for symbol in size.node.expr.free_symbols}
        if told & makers.keys():
            maker = next(node for symbol, node in makers.items() if symbol in told)
            raise InputError(
                f"output '{name}' is as long as the data says, by the operator {maker.target}"
                f"{torch_faults.layer(maker)}, but files have outputs of fixed shapes: give a mask, or as many "
                "places as there can be, by topk or padding"
            )
    known = _known_symbols(program, sides[0], dims)
    specs = [
        tuple(TensorSpec(n, tuple(_named(s, known) for s in v.shape), _dtype(v)) for n, v in side) for side in sides
    ]
    return specs[0], specs[1]


def _known_symbols(
    program: torch.export.ExportedProgram, inputs: Sequence[tuple[str, torch.Tensor]], dims: Dims
) -> dict[sympy.Expr, Dim]:
    """Each symbol of the inputs as it was declared, else with the program's range; a first axis is then the batch."""
    symbols: dict[sympy.Expr, Dim] = {}
    axes = [(name, axis, size) for name, value in inputs for axis, size in enumerate(value.shape)]
    for name, axis, size in sorted(axes, key=lambda each: each[1] > 0):
        if isinstance(size, int) or not size.node.expr.is_symbol or size.node.expr in symbols:
            continue
        limits = program.range_constraints[size.node.expr]
        own = Dim("batch" if axis == 0 else f"{name}_{axis}", max(int(limits.lower), 1), int(min(limits.upper, OPEN)))
        symbols[size.node.expr] = dims.get(name, {}).get(axis, own)
    return symbols


def _named(size: int | torch.SymInt, known: Mapping[sympy.Expr, Dim]) -> int | Dim:
    """A size as a number or a named dimension; one computed from others has their range put through it."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression in known:
        return known[expression]
    low, high = (int(expression.subs({s: getattr(d, end) for s, d in known.items()})) for end in ("min", "max"))
    text = str(expression.subs({s: type(s)(d.name, integer=True) for s, d in known.items()})).replace(" ", "")
    return Dim(text, min(low, high), max(low, high))
