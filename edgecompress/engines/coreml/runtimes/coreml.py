"""Core ML: converts programs by coremltools; runs the file on macOS, and anywhere by an interpreter of its program."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.core.watched_graph import written
from edgecompress.data import declared_ends
from edgecompress.engines.coreml import convert, package, translations
from edgecompress.formats import (
    mlpackage,
    torch_decompositions,
    torch_faults,
    torch_foresight,
    torch_paddings,
    torch_program,
)

if TYPE_CHECKING:
    import numpy as np
    import torch
    from coremltools.models import MLModel

    from edgecompress.core.operations import Foreseen
    from edgecompress.core.protocols import OperatorTimes

REQUIRES = ("coremltools", "torch")
IMPORTS = ("torch",)  # what `open` needs: loaded before a session's memory and load time count
EXTRA = "coreml"
FORMAT = "mlpackage"
FIXED = True
READS: tuple[str, ...] = ("program",)

NATIVE = platform.system() == "Darwin"
SIMULATED = "" if NATIVE else "the MIL interpreter"  # what runs it here in Core ML's place: its speed says nothing
DTYPES = {"float16": "float16", "float32": "float32", "float64": "float32", "bfloat16": "float32"}  # others: int32
FILLED = {"new_ones": 1, "new_zeros": 0}  # what coremltools knows of no tensor, or of none but floats: their number
# Views: where the shape stays they are what they take
SAME = ("squeeze", "view", "reshape", "expand", "view_as", "expand_as", "contiguous", "alias", "flatten", "unflatten")
AGREE_DB = 40.0  # Core ML and the interpreter round at other places; a wrong operator is far below
NO_ARENA = "Core ML does not report its memory plan"
NO_EMPTY = "an empty model would have to be written by coremltools on the device"
NO_TIMES = "Core ML reports no time per operator"
NO_MACOS = "Core ML runs on Apple's systems only: here its program is interpreted, so its speed is not measured"


@dataclass(frozen=True)
class Options:
    """What the file may use."""

    minimum_os: Literal["iOS16", "iOS17", "iOS18"] = "iOS17"  # or the macOS of the same year: 13, 14, 15


# --------------------------------------------------------------------------- a program becomes a package


def export(request: Request) -> Artifact:
    """The program as an fp32 `model.mlpackage`, its batch fixed to the context's.

    Whole numbers and truth values become int32: Core ML has no other. Names keep letters, digits and underscores
    (`convert.names`). Raises StageFailed where coremltools cannot convert it.
    """
    model = request.model
    inputs = tuple(_fixed(spec, request.context.batch) for spec in model.inputs)
    program = torch_program.load(model.file(".pt2"))
    torch_paddings.spelled_out(program, *torch_paddings.CORE_ML)
    program, facts = torch_decompositions.simpler(program, translations.known)

    def converted(program: torch.export.ExportedProgram) -> tuple[MLModel, tuple[TensorSpec, ...]]:
        translations.require(program)
        traced, outputs = _traced(program, model, inputs)
        return _converted(traced, inputs, outputs, request.options.minimum_os), outputs

    try:
        (made, outputs), simpler = torch_decompositions.retried(converted, program, translations.known)
    except StageFailed:
        raise
    except Exception as error:  # coremltools' errors have no base of their own
        why = torch_faults.told(error, program, refused=lambda: foreseen(model).refused)
        raise StageFailed(f"runtime coreml: coremltools: {why}") from error
    facts = torch_decompositions.together(facts, simpler)
    convert.save(made, request.out)
    return Artifact(request.out, FORMAT, inputs, outputs, facts).write()


def foreseen(program: Artifact) -> Foreseen:
    """What it replaces and refuses in a program."""
    loaded = torch_program.load(program.file(".pt2"))
    torch_paddings.spelled_out(loaded, *torch_paddings.CORE_ML)
    return torch_foresight.foreseen(loaded, translations.known, {}, translations.known)


def _fixed(spec: TensorSpec, batch: int) -> TensorSpec:
    """As Core ML takes it."""
    for dim in spec.shape:
        if isinstance(dim, Dim) and dim.name != "batch":
            raise InputError(
                f"runtime coreml: input '{spec.name}' has the dynamic axis '{dim.name}', but Core ML files of this "
                "runtime have fixed shapes; remove it from 'dynamic'"
            )
    return replace(spec, shape=spec.concrete(batch), dtype=_dtype(spec.dtype))


def _dtype(name: str) -> str:
    return DTYPES.get(name, "int32")


def _traced(
    program: torch.export.ExportedProgram, model: Artifact, inputs: Sequence[TensorSpec]
) -> tuple[torch.jit.ScriptModule, tuple[TensorSpec, ...]]:
    """The program as TorchScript, which coremltools reads more of (LSTMs) than programs, and its outputs' specs."""
    import torch

    example = tuple(torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in inputs)
    try:
        with torch.no_grad():
            net = _flat(program, model)
            if any(isinstance(dim, Dim) for spec in model.inputs for dim in spec.shape):
                net = torch.export.export(net, example).module(check_guards=False)  # every size becomes a number
            traced = torch.jit.trace(net, example, check_trace=False, strict=False)
            answers = traced(*example)
    except Exception as error:
        raise StageFailed(f"runtime coreml: torch cannot trace it: {torch_faults.told(error, program)}") from error
    outputs = [
        replace(s, shape=tuple(a.shape), dtype=_dtype(s.dtype)) for s, a in zip(model.outputs, answers, strict=True)
    ]
    return traced, tuple(outputs)


def _flat(program: torch.export.ExportedProgram, model: Artifact) -> torch.nn.Module:
    """The program with tensors of Core ML's types in, and a tuple of them out."""
    import torch
    from torch.utils import _pytree as pytree

    inner = _unshared(_folded(program.module(check_guards=False)))
    takes = [getattr(torch, spec.dtype) for spec in model.inputs]
    gives = [getattr(torch, _dtype(spec.dtype)) for spec in model.outputs]

    class TypedProgram(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            leaves = [_cast(tensor, dtype) for tensor, dtype in zip(inputs, takes, strict=True)]
            args, kwargs = pytree.tree_unflatten(leaves, inner._in_spec)
            outputs = [leaf for leaf in pytree.tree_leaves(inner(*args, **kwargs)) if leaf is not None]
            place = id if torch.compiler.is_exporting() else torch.Tensor.data_ptr  # an export has no memory
            places = [place(tensor) for tensor in (*inputs, *outputs)]
            for i, tensor in enumerate(outputs):  # Core ML has no second name for an input, nor for an output
                outputs[i] = tensor * 1 if places[len(inputs) + i] in places[: len(inputs) + i] else tensor.clone()
            return tuple(_cast(tensor, dtype) for tensor, dtype in zip(outputs, gives, strict=True))

    return TypedProgram()


def _folded(net: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph module with what depends on no input and no weight computed: masks made of `arange` and the like.

    coremltools would compute it as well, but does not know all operators that such parts are made of.
    """
    import torch

    calls = [node for node in net.graph.nodes if node.op == "call_function"]
    for node in calls:
        if (kind := getattr(node.target, "_opname", "")) in FILLED:  # it reads a tensor for its type alone
            node.args, node.kwargs = (node.args[1], FILLED[kind]), {"dtype": node.meta["val"].dtype}
            node.target = torch.ops.aten.full.default
        if node.target is torch.ops.aten.view.default:  # which wants what it reads in one piece of memory
            node.target = torch.ops.aten.reshape.default
        _real_numbers(node)
    net.recompile()
    if any(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in calls):
        return net  # what is written into is no constant
    known: dict[torch.fx.Node, torch.Tensor] = {}
    for node in calls:
        if getattr(node.target, "_opname", "") in SAME and _alike(node.meta.get("val"), node.args[0].meta.get("val")):
            node.replace_all_uses_with(node.args[0])
        if all(read in known for read in node.all_input_nodes):
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
    for index, node in enumerate(n for n, value in known.items() if isinstance(value, torch.Tensor)):
        net.register_buffer(f"folded_{index}", known[node].clone())
        with net.graph.inserting_before(node):
            node.replace_all_uses_with(net.graph.get_attr(f"folded_{index}"))
    net.graph.eliminate_dead_code()
    net.recompile()
    return net


def _alike(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    return a is not None and b is not None and a.shape == b.shape and a.dtype == b.dtype


def _real_numbers(node: torch.fx.Node) -> None:
    """Whole numbers beside real tensors as real ones: `clamp_min`, `where` and others of coremltools take none."""
    schema, made = getattr(node.target, "_schema", None), node.meta.get("val")
    if schema is None or not hasattr(made, "is_floating_point") or not made.is_floating_point():
        return
    for i, (told, given) in enumerate(zip(schema.arguments, node.args, strict=False)):
        if str(told.type) == "number" and isinstance(given, int) and not isinstance(given, bool):
            node.update_arg(i, float(given))


def _unshared(net: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The module with a copy wherever a weight has a second name: TorchScript takes none, coremltools joins them."""
    seen: set[int] = set()
    for module in net.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if id(tensor) in seen:
                    held[name] = type(tensor)(tensor.detach().clone())
                seen.add(id(tensor))
    return net


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _converted(
    traced: torch.jit.ScriptModule, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], minimum_os: str
) -> MLModel:
    import numpy

    ct = convert.coremltools()
    translations.teach()
    words = mlpackage.names([s.name for s in inputs], [s.name for s in outputs])
    takes = [
        ct.TensorType(name=word, shape=spec.shape, dtype=numpy.dtype(spec.dtype).type)
        for word, spec in zip(words["inputs"], inputs, strict=True)
    ]
    gives = [
        ct.TensorType(name=word, dtype=numpy.dtype(spec.dtype).type)
        for word, spec in zip(words["outputs"], outputs, strict=True)
    ]
    return ct.convert(
        traced,
        inputs=takes,
        outputs=gives,
        convert_to="mlprogram",
        compute_precision=ct.precision.FLOAT32,
        minimum_deployment_target=ct.target[minimum_os],
        skip_model_load=True,
    )


def tapped(request: Request) -> Artifact:
    """The input "model" with the outputs of its layers as further outputs; facts: {"taps": [row]}.

    An answer has its batch on axis 0; one that has none is left out. Raises StageFailed where nothing is left.
    """
    from edgecompress.engines.coreml import mil

    model = request.model
    batch = model.batch
    assert isinstance(batch, int)  # the export fixes it
    specs, rows = [], []
    for layer in mil.write_with_layer_outputs(model.path / convert.FILE, request.out / convert.FILE):
        if (shape := _batch_first(layer.shape, batch)) is not None:
            specs.append(TensorSpec(layer.output, shape, layer.dtype))
            words = {"operator": layer.operator, "type": layer.type, "dtype": layer.held}
            rows.append({"output": layer.output, **words, "layout": "", "module": ""})
    if not rows:
        raise StageFailed(
            f"runtime coreml: {model.path}: no layer output can be read: none is a float tensor computed from the "
            "inputs"
        )
    return Artifact(request.out, FORMAT, model.inputs, (*model.outputs, *specs), {"taps": rows}).write()


def watched(request: Request) -> Artifact:
    """The input "model" with every real number that it computes as a further output."""
    from edgecompress.engines.coreml import mil

    model = request.model
    added, operators, constants = mil.write_watched(model.path / convert.FILE, request.out / convert.FILE)
    specs = tuple(TensorSpec(each.output, each.shape, each.dtype) for each in added)
    values = [(each.output, each.operator) for each in added]
    words = mlpackage.names([s.name for s in model.inputs], [s.name for s in model.outputs])["outputs"]
    ends = [(spec.name, word) for spec, word in zip(model.outputs, words, strict=True)]
    told = written(request.out, values, ends, operators, constants)
    return Artifact(request.out, FORMAT, model.inputs, (*model.outputs, *specs), {**told}).write()


FOREIGN_SUFFIX = ".mlpackage"


def foreign(request: Request) -> Artifact:
    """The user's package, copied; raises InputError for one that is damaged or no program of fixed shapes."""
    from edgecompress.engines.coreml import mil

    folder = Path(request.options["path"])
    program = mil.load(folder)
    sides = []
    for ports in (program.inputs, program.outputs):
        if name := next((name for name, port in ports.items() if None in port.shape), ""):
            raise InputError(f"{folder}: '{name}' has an axis of no fixed size; convert it with fixed shapes")
        sides.append([TensorSpec(n, tuple(d or 1 for d in p.shape), p.dtype) for n, p in ports.items()])
    for part in ("Manifest.json", mlpackage.MODEL, mlpackage.MODEL.parent / package.WEIGHTS):
        if (file := package.inside(folder, Path(part))).is_file():
            copy = request.out / convert.FILE / part
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    return Artifact(request.out, FORMAT, *declared_ends.of(sides[0], sides[1], {}, str(folder))).write()


def _batch_first(shape: Sequence[int], batch: int) -> tuple[int, ...] | None:
    """The shape with the batch on axis 0, what it was times beside it; None where it has none."""
    if shape[:1] == (batch,):
        return tuple(shape)
    rows = shape[0] if shape else 1
    rest = (rows // batch, *shape[1:]) if shape else ()
    return (batch, *rest) if rows % batch == 0 else None


# --------------------------------------------------------------------------- what the file tells


def precision(artifact: Artifact) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of the weights by precision, and the operators that multiply by what they compute in."""
    from edgecompress.engines.coreml import precision as coreml_precision
    from edgecompress.formats.precision import walk

    packages = sorted(artifact.path.glob(f"*.{FORMAT}"))
    if len(packages) != 1:
        raise StageFailed(f"{artifact.path}: expected one *.{FORMAT}, found {len(packages)}")
    return walk.weights_and_computes(coreml_precision.net(packages[0]))


# --------------------------------------------------------------------------- a session


def open(artifact: Artifact, threads: int, profile: bool = False) -> CoremlSession:
    """A session: Core ML's own on macOS, which the interpreter then checks once; else the interpreter's."""
    import torch

    torch.set_num_threads(threads)
    return CoremlSession(artifact)


class CoremlSession:
    """A package opened by the interpreter, and by Core ML where there is one."""

    def __init__(self, artifact: Artifact) -> None:
        from edgecompress.engines.coreml import mil

        file = artifact.path / convert.FILE
        words = mlpackage.names([s.name for s in artifact.inputs], [s.name for s in artifact.outputs])
        self.inputs = dict(zip(words["inputs"], artifact.inputs, strict=True))
        self.outputs = dict(zip(words["outputs"], artifact.outputs, strict=True))
        self.program: Any = mil.load(file)
        self.native: Any = convert.coremltools().models.MLModel(str(file)) if NATIVE else None
        self.checked = False

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference. On macOS the first answer is held against the interpreter's."""
        arrays = self._arrays(inputs)
        if self.native is None:
            return self._named(self.program.run(arrays))
        answer = self._named(self.native.predict(arrays))
        if not self.checked:
            check_agreement(answer, self._named(self.program.run(arrays)))
            self.checked = True
        return answer

    def trace(self, inputs: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
        """(name, type, array) of what each operator gives, by the interpreter."""
        operators: Iterator[tuple[str, str, np.ndarray]] = self.program.trace(self._arrays(inputs))
        return operators

    def _arrays(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        import numpy

        return {word: numpy.asarray(inputs[spec.name], spec.dtype) for word, spec in self.inputs.items()}

    def _named(self, answer: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {spec.name: answer[word].reshape(spec.concrete()) for word, spec in self.outputs.items()}

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """No times, and why."""
        return {"ops": [], "why": NO_TIMES if self.native else NO_MACOS, "fallback": []}

    def close(self) -> None:
        """Frees it."""
        self.program = self.native = None


def check_agreement(answer: Mapping[str, np.ndarray], interpreted: Mapping[str, np.ndarray]) -> None:
    """Raises StageFailed naming the first output in which Core ML and the interpreter differ beyond half precision."""
    import numpy

    for name, right in interpreted.items():
        finite = numpy.isfinite(right)  # where the program itself says NaN or infinite, Core ML may say either
        right = numpy.asarray(right, "float64")[finite]
        wrong = numpy.asarray(answer[name], "float64")[finite] - right
        if not (wrong**2).sum() <= (right**2).sum() / 10 ** (AGREE_DB / 10):
            raise StageFailed(
                f"runtime coreml: output '{name}': Core ML's results differ from those of its program (by up to "
                f"{abs(wrong).max():.3g} off); run the model on the CPU only, or keep its operators in fp32"
            )
