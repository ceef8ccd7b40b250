"""ExecuTorch: lowers programs to XNNPACK, Core ML, Vulkan or no delegate; runs and profiles them on the CPU."""

from __future__ import annotations

import base64
import re
import statistics
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgecompress.core import plain_file
from edgecompress.core.errors import InputError, StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.data import declared_ends
from edgecompress.device.input_buffers import InputBuffers
from edgecompress.engines.executorch import coreml_delegate, etdump, layer_outputs, native, pte, xnnpack
from edgecompress.formats import (
    empty_model,
    torch_decompositions,
    torch_faults,
    torch_foresight,
    torch_paddings,
    torch_program,
    torch_shortcuts,
)

if TYPE_CHECKING:
    import numpy as np
    import torch

    from edgecompress.core.operations import Foreseen, Kernels, Operation
    from edgecompress.core.protocols import Arena, OperatorTime, OperatorTimes, Session

REQUIRES = ("torch", "executorch>=1.5")
IMPORTS = ("torch", "executorch.extension.pybindings._C", "executorch.kernels.quantized")  # what `open` needs
EXTRA = "executorch"
ACCELERATOR = "XNNPACK"
FORMAT = "pte"
READS: tuple[str, ...] = ("program",)

FILE = "model.pte"
METHOD = "forward"
LARGEST = 4 << 30  # bytes of a user's file
SCALARS = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "", "", "", "bool")
BESIDE = ("aten::max", "aten::min")  # what ExecuTorch takes, though it is not of torch's core
WARM_RUNS = 3  # of the per-operator pass, left out of its medians
SHAPES = "executorch_prim::"  # arithmetic on sizes and views without a copy: no delegate takes these, none needs to
CONTAINERS = ("DELEGATE_CALL", "OPERATOR_CALL", "Method::execute")  # events that hold other events
NATIVE = "native_call_"  # what an event of an operator outside of every delegate begins with
EMPTY = (
    "eNqtUE1Lw0AQfS0xxpBDLVJ6yCEsPXgoYsWL4lH/gbcQ/EhWGghpSDeoSP+fv0p82Q2yDfEgmOXtZObNvJmdEMDd/eqCBhPMeZ/QBvDg"
    "0AIhcU7cWPB4QN7cwAj730jntJyjeTse6r8ZTrFARG9u9ZuRWRCXFh6JjFgTn+10Y2BsaU4GepuY/6Pr0wss9PP7NtDz+zjq3thuBQdT"
    "THGsWU9nOvTbbRlev8t1dT+307E1zU7MPF63n1viiohXy+hDqPdKiuuobIpiGYl0Uyr5pqzAOi+yWpYP20qmDMfJLmHtV79ePDd5ofJy"
    "e6aaqpBiT0u0YmJI7d/q/zL/bnDuLE9Vr22ciN8kuIRD7uBlU78+1Rm+AfEbdEw="
)  # a program that answers its input, by no operator; zlib, base64
ELSEWHERE = {"CoreMLBackend": "on macOS and iOS", "VulkanBackend": "on Android, where a GPU has Vulkan"}


@dataclass(frozen=True)
class Options:
    """The backend that computes."""

    backend: Literal["xnnpack", "coreml", "vulkan", "portable"] = "xnnpack"  # portable: no delegate, 1000 times slower


# --------------------------------------------------------------------------- a program becomes a file


def export(request: Request) -> Artifact:
    """The program as `model.pte`, lowered to the backend. Raises StageFailed where ExecuTorch cannot.

    facts: {"backend", "delegates": [name], "fallback": [operators that no delegate took]}.
    """
    model, backend = request.model, request.options.backend
    program, rewritten = _program(model)
    facts = torch_decompositions.together(_lower(program, backend, request.out / FILE), rewritten)
    return Artifact(request.out, FORMAT, model.inputs, model.outputs, facts).write()


def tapped(request: Request) -> Artifact:
    """The input "before", the program that "model" was lowered from, lowered again with an output per layer.

    facts: those of an export, and "taps": [row]. Raises InputError without "before", StageFailed where it has no layer
    or ExecuTorch cannot lower it so.
    """
    model, before = request.model, request.inputs.get("before")
    if before is None:
        raise InputError(
            f"runtime executorch: {model.path}: layer outputs cannot be read from a .pte file; give the program "
            "that it was exported from"
        )
    program, _ = _program(before)
    specs, rows = layer_outputs.add(program, before)
    if not rows:
        raise StageFailed(
            f"runtime executorch: {before.path}: no layer output can be read: none is a float tensor computed from "
            "the inputs"
        )
    facts = _lower(program, model.facts["backend"], request.out / FILE)
    return Artifact(request.out, FORMAT, model.inputs, (*model.outputs, *specs), {**facts, "taps": rows}).write()


FOREIGN_SUFFIX = ".pte"


def foreign(request: Request) -> Artifact:
    """The user's program, copied; raises InputError for one that this build cannot run, or that takes no tensors."""
    file = Path(request.options["path"])
    (request.out / FILE).write_bytes(plain_file.read(file, LARGEST))
    try:
        program, _ = _loaded(request.out / FILE)
        meta = program.method_meta(METHOD)
        sides = [
            [tensor(i) for i in range(count)]
            for tensor, count in (
                (meta.input_tensor_meta, meta.num_inputs()),
                (meta.output_tensor_meta, meta.num_outputs()),
            )
        ]
    except (StageFailed, RuntimeError) as error:
        raise InputError(f"{file}: {first_line(error)}; export it again") from error
    inputs, outputs = (
        tuple(TensorSpec(f"{what}_{i}", tuple(t.sizes()), SCALARS[t.dtype()]) for i, t in enumerate(side))
        for what, side in zip(("input", "output"), sides, strict=True)
    )
    return Artifact(request.out, FORMAT, *declared_ends.of(inputs, outputs, {}, str(file))).write()


def _program(model: Artifact) -> tuple[torch.export.ExportedProgram, dict[str, Json]]:
    """The program to lower, and the facts of what was rewritten in it."""
    import torch

    file = model.file(".pt2")
    try:
        program = torch_program.load(file)
        # inputs whose axis of one has a stride of 0, as NumPy's x[:, None] leaves it, with the usual one
        for node in program.graph.nodes:
            value = node.meta.get("val") if node.op == "placeholder" else None
            if isinstance(value, torch.Tensor) and 0 in value.stride() and value.is_contiguous():
                node.meta["val"] = value.clone(memory_format=torch.contiguous_format)
        return program, torch_shortcuts.folded(program)
    except Exception as error:  # torch.export has no error of its own
        raise StageFailed(f"runtime executorch: {file}: {first_line(error)}") from error


def _lower(program: torch.export.ExportedProgram, backend: str, file: Path) -> dict[str, Json]:
    """Writes the program's file; the facts of it. What ExecuTorch, or its build here, lacks is spelled out."""
    lacking = set[str]()
    program, spelled = torch_decompositions.simpler(program, lambda node: backend == "coreml" or _right(node))

    def lowered(program: torch.export.ExportedProgram) -> bytes:
        data = _lowered(program, backend)
        file.write_bytes(data)
        lacking.clear()
        lacking.update(set(pte.read(file).operators) - set(_runtime()._get_operator_names()))
        return data

    try:
        data, simpler = torch_decompositions.retried(lowered, program, _known, broken=lambda data: bool(lacking))
        file.write_bytes(data)
    except Exception as error:  # of torch, the delegates' compilers, and plain Exception
        why = torch_faults.told(error, program, refused=lambda: _foreseen(program).refused)
        raise StageFailed(f"runtime executorch: lowering to {backend}: {why}") from error
    plan = pte.read(file)
    facts = {"backend": backend, "delegates": list(plan.delegate_calls.values()), "fallback": _left(plan)}
    return torch_decompositions.together(facts, spelled, simpler)


VOLUMES = ("conv3d", "conv_transpose3d")  # no kernel convolves them, of XNNPACK's or the portable ones
# These crash along an axis of a tensor that has none
SUMS = ("sum", "nansum", "nanmean", "logsumexp", "linalg_vector_norm", "unfold_copy")


def _right(node: torch.fx.Node) -> bool:
    """Whether a kernel here computes an operator, and rightly."""
    name, given = node.target._opname, node.args[0] if node.args else node
    alone = len(node.args) > 1 and hasattr(given, "meta") and not given.meta["val"].dim()
    volume = name == "convolution" and hasattr(given, "meta") and given.meta["val"].dim() > 4
    if name == "pad" and min(node.args[1]) < 0:
        return False
    return name not in (*VOLUMES, "col2im") and not volume and not (alone and name in SUMS)


@cache
def _kernels_here() -> frozenset[str]:
    """The operators that ExecuTorch's build here has kernels of."""
    return frozenset(name.partition(".")[0] for name in _runtime()._get_operator_names())


def _known(node: torch.fx.Node) -> bool:
    """Whether ExecuTorch takes an operator, and its build here computes it: a view by a copy, no convolved volume."""
    import torch

    name = node.target._schema.name
    known = torch.Tag.core in node.target.tags or name in BESIDE
    return known and _right(node) and not _kernels_here().isdisjoint((name, f"{name}_copy"))


def foreseen(program: Artifact) -> Foreseen:
    """What it replaces and refuses in a program."""
    return _foreseen(torch_program.load(program.file(".pt2")))


def _foreseen(program: torch.export.ExportedProgram) -> Foreseen:
    import torch

    def known(node: torch.fx.Node) -> bool:
        checks = node.target._opname == "_assert_async"  # which goes before the file is written
        return (_known(node) and not torch_faults.is_complex(node)) or checks

    own = torch.export.default_decompositions()
    return torch_foresight.foreseen(program, known, own, _right)


def _lowered(program: torch.export.ExportedProgram, backend: str) -> bytes:
    from executorch.exir import to_edge_transform_and_lower

    if backend == "coreml":
        torch_paddings.spelled_out(program, *torch_paddings.CORE_ML)
    partitioners, passes = list(_partitioners(backend)), xnnpack.passes() if backend == "xnnpack" else None
    around = {"coreml": coreml_delegate.reproducible, "xnnpack": xnnpack.patterns_where_needed}
    with around.get(backend, nullcontext)():
        lowered = to_edge_transform_and_lower(program, transform_passes=passes, partitioner=partitioners)
    return bytes(lowered.to_executorch().buffer)


def _partitioners(backend: str) -> Iterator[object]:
    """What decides which operators the backend takes."""
    if backend == "xnnpack":
        yield xnnpack.partitioner()
    elif backend == "coreml":
        yield coreml_delegate.partitioner()
    elif backend == "vulkan":
        from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

        yield VulkanPartitioner()


# --------------------------------------------------------------------------- what a file says of itself


def _kernels(plan: pte.Plan) -> dict[int, str]:
    """The operator of each instruction that calls one outside of delegates, numbered: "aten::relu.out #1"."""
    return dict(zip(plan.kernel_calls, _numbered(plan.kernel_calls.values()), strict=True))


def _left(plan: pte.Plan) -> list[str]:
    """The calls of operators that no delegate took."""
    return [name for name in _kernels(plan).values() if not name.startswith(SHAPES)]


def _numbered(names: Iterable[str]) -> Iterator[str]:
    """Each name with a number, for one comes many times: "relu #1", "relu #2"."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield f"{name} #{seen[name]}"


def kernels(operation: Operation, precision: str) -> Kernels:
    """What it makes of an operator in a variant of that precision."""
    from edgecompress.engines.executorch import kernels as executorch_kernels

    return executorch_kernels.kernels(operation, precision)


def precision(artifact: Artifact) -> tuple[dict[str, int], dict[str, int]]:
    """Raises StageFailed: delegates hold weights in forms of their own, and operators without one do not say which."""
    raise StageFailed(
        "the weights of a .pte file are held by delegates in forms of their own, or among all other tensors of the "
        "program; it does not tell their precision"
    )


# --------------------------------------------------------------------------- a session


def empty(folder: Path) -> Artifact:
    """The smallest model, in an empty folder."""
    return empty_model.written(folder, FORMAT, {FILE: zlib.decompress(base64.b64decode(EMPTY))})


def open(artifact: Artifact, threads: int, profile: bool = False) -> Session:
    """A session on `threads` threads of the CPU. Raises StageFailed where this machine cannot run the program."""
    if library := native.library():
        return native.NativeSession(library, artifact, threads)
    return ExecutorchSession(artifact, threads, profile)


class ExecutorchSession:
    """A program loaded by ExecuTorch's runtime."""

    def __init__(self, artifact: Artifact, threads: int, profile: bool) -> None:
        self.file, self.profile = artifact.file(".pte"), profile
        self.inputs = InputBuffers([spec.name for spec in artifact.inputs])
        self.outputs = [spec.name for spec in artifact.outputs]
        self.tensors: list[torch.Tensor] = []  # of the inputs' buffers
        _runtime()._unsafe_reset_threadpool(threads)
        self.program, self.method = _loaded(self.file)

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference."""
        return self._run(self.method, inputs)

    def _run(self, method: Any, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self.inputs.fill(inputs):
            import torch

            self.tensors = [torch.from_numpy(array) for array in self.inputs.arrays.values()]
        try:
            answers = method(self.tensors, clone_outputs=False)  # views of memory that the next run writes
        except RuntimeError as error:
            raise StageFailed(f"runtime executorch: {self.file.name}: {first_line(error)}") from error
        return {name: answer.numpy().copy() for name, answer in zip(self.outputs, answers, strict=True)}

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """Median milliseconds of each operator over `runs` runs, in delegates too, from ExecuTorch's event trace."""
        plan = pte.read(self.file)
        if not self.profile:
            return {"ops": [], "why": "the session was opened without its profile", "fallback": _left(plan)}
        program, method = _loaded(self.file, events=True)
        if not program.has_etdump():
            return {"ops": [], "why": "this build of ExecuTorch records no events", "fallback": _left(plan)}
        for _ in range(WARM_RUNS + runs):
            self._run(method, inputs)
        with tempfile.TemporaryDirectory() as folder:
            program.write_etdump_result_to_file(f"{folder}/events")
            events = etdump.read(Path(folder, "events"))
        return {"ops": _operators(events, plan, runs), "why": "", "fallback": _left(plan)}

    def arena(self) -> Arena:
        """The program's own plan; not known where delegates plan memory of their own beside it."""
        plan = pte.read(self.file)
        if others := ", ".join(sorted(set(plan.delegate_calls.values()))):
            reason = (
                f"the program plans {plan.planned_bytes:,} bytes, and {others} more, which the file does not describe"
            )
            return {"arena_bytes": None, "arena_reason": reason, "arena_peak": ""}
        return {"arena_bytes": plan.planned_bytes, "arena_reason": "", "arena_peak": ""}

    def close(self) -> None:
        """Frees it."""
        self.program = self.method = None


def _runtime() -> Any:
    """ExecuTorch's runtime, without the exporter that its Python wrapper drags in (6 s, 150 MB)."""
    import executorch.kernels.quantized  # noqa: F401
    import torch  # noqa: F401 (its libraries are the runtime's)
    from executorch.extension.pybindings import _C

    return _C


def _loaded(file: Path, events: bool = False) -> tuple[Any, Any]:
    """The program, which must outlive its method, and the method."""
    runtime = _runtime()
    try:
        check = runtime.Verification.InternalConsistency
        program = runtime._load_program(str(file), enable_etdump=events, program_verification=check)
        return program, program.load_method(METHOD)
    except RuntimeError as error:
        raise StageFailed(f"runtime executorch: {file.name}: {_why_not(file) or first_line(error)}") from error


def _why_not(file: Path) -> str:
    """What the program needs and this build has not: a delegate, an operator; else nothing."""
    runtime = _runtime()
    try:
        plan = pte.read(file)
    except InputError:  # what the runtime said of a broken file says more
        return ""
    for name in sorted(set(plan.delegate_calls.values()) - set(runtime._get_registered_backend_names())):
        there = ELSEWHERE.get(name, "elsewhere")
        return f"{name} is not in this build of ExecuTorch: the program runs {there}, not here"
    lacking = sorted(set(plan.operators) - set(runtime._get_operator_names()))
    return f"it has no kernel for {', '.join(lacking)}; write the model without it" if lacking else ""


# --------------------------------------------------------------------------- events


def _operators(events: Mapping[etdump.Event, Sequence[float]], plan: pte.Plan, runs: int) -> list[OperatorTime]:
    """Events as one median per operator, in the order in which they ran first; first runs left out."""
    operators = [event for event in events if event.name not in CONTAINERS]
    kernels = _kernels(plan)
    inner = _numbered(_type(event) for event in operators if event.delegated)
    return [
        {
            "name": next(inner) if event.delegated else kernels[event.instruction],
            "type": _type(event),
            "ms": statistics.median(events[event][-runs:]),
            "where": plan.delegate_calls.get(event.instruction, "portable"),
        }
        for event in operators
    ]


def _type(event: etdump.Event) -> str:
    """What it computes: "native_call_relu.out" is a relu, "Mean (ND) #2" a Mean (ND)."""
    return re.sub(r" #\d+$", "", event.name.removeprefix(NATIVE).partition(".")[0])
