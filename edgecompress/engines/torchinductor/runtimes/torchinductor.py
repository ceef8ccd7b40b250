"""AOTInductor: a program compiled ahead of time to machine code of a CPU or an NVIDIA GPU, run by PyTorch."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgecompress.core.errors import MissingDependency, StageFailed, first_line
from edgecompress.core.model import Artifact, Request
from edgecompress.device.input_buffers import InputBuffers
from edgecompress.formats import torch_program

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.autograd.profiler_util import FunctionEvent

    from edgecompress.core.json import Json
    from edgecompress.core.protocols import OperatorTime, OperatorTimes

REQUIRES = ("torch",)
IMPORTS = (
    "torch",
    "torch._inductor.package",
)  # what `open` needs: loaded before a session's memory and load time count
EXTRA = "torch"
FORMAT = "aoti"
NO_ARENA = "the compiled library allocates its buffers at run time and does not report them"
NO_EMPTY = "an empty package would have to be compiled on the device"
NOT_OPENED = "is machine code; if you trust its author, run `edgecompress verify`"
READS: tuple[str, ...] = ("program",)

DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # what NVIDIA's driver shows on Linux, and on Windows' Linux
FILE = "model.pt2"
NAME = "model"  # of the generated files: a hash would hold the folder they were made in
WARM_RUNS = 3  # of the per-operator pass, left out of its medians
COMPILE = {
    "aot_inductor.package": True,
    "aot_inductor.model_name_for_generated_files": NAME,
    "aot_inductor.enable_line_tables": False,
    "aot_inductor.precompile_headers": False,  # they outlive the compilation, outside its folder
    "compile_threads": 1,
    "cpp.dynamic_threads": True,  # else the package holds the number of threads it was made with
    "cpp.enable_kernel_profile": True,  # a name for each kernel, for `ops`
    "fx_graph_cache": False,
}


@dataclass(frozen=True)
class Options:
    """What it is compiled for: the CPU or the GPU of this machine."""

    device: Literal["cpu", "cuda"] = "cpu"


def unavailable(options: Mapping[str, Json]) -> str:
    """Why this machine cannot export with these options, or ""; PyTorch is not loaded for it."""
    nvidia = any(Path(device).exists() for device in DRIVERS)
    on_gpu = options.get("device") == "cuda"
    return "a package for a GPU must be compiled on a machine with a GPU" if on_gpu and not nvidia else ""


# --------------------------------------------------------------------------- a program becomes a package


def export(request: Request) -> Artifact:
    """The program as `model.pt2`, compiled for this machine. Raises StageFailed where it cannot be, with the reason."""
    import torch

    options: Options = request.options or Options()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise StageFailed(
            'runtime torchinductor: device "cuda": PyTorch finds no GPU; use a machine with one, or set device = "cpu"'
        )
    program = torch_program.load(request.model.file(".pt2"))
    # torch splits its own command lines at spaces
    with tempfile.TemporaryDirectory(dir="/tmp" if " " in str(request.out) else request.out, prefix="work-") as folder:
        _package(_moved(program, options.device), Path(folder), request.out / FILE)
    facts = {"device": options.device}
    return Artifact(request.out, FORMAT, request.model.inputs, request.model.outputs, facts).write()


def _moved(program: torch.export.ExportedProgram, device: str) -> torch.export.ExportedProgram:
    from torch.export.passes import move_to_device_pass

    return program if device == "cpu" else move_to_device_pass(program, device)


def _package(program: torch.export.ExportedProgram, folder: Path, file: Path) -> None:
    """The same bytes each time: no path, no counter of this process, no source code."""
    from torch._inductor import aot_compile, compile_fx
    from torch._inductor.package import package_aoti

    net = program.module(check_guards=False)
    for node in net.graph.nodes:
        node.meta.pop("stack_trace", None)  # lines of this machine's files would be kept
    compile_fx._graph_counter = itertools.count()  # in the names of kernels
    how = {**COMPILE, "cpp.cxx": (str(_compiler(folder)),)}
    arguments, keywords = program.example_inputs
    try:
        with _cache(folder / "cache"):
            made = aot_compile(net, tuple(arguments), dict(keywords), options=how)
        package_aoti(str(file), {NAME: [part for part in made if not str(part).endswith(".cpp")]})
    except Exception as error:  # inductor's own, the compiler's, the operating system's
        raise StageFailed(f"runtime torchinductor: {first_line(error)}") from error


def _compiler(folder: Path) -> Path:
    """The C++ compiler, told to leave the paths of this machine out of what it makes."""
    import torch

    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise MissingDependency(
            "runtime torchinductor needs a C++ compiler, and g++ is not installed; install it (Debian: apt-get "
            "install g++) or set the environment variable CXX to yours"
        )
    hidden = (folder, Path(torch.__file__).parents[1])
    command = shlex.join([compiler, *(f"-ffile-prefix-map={path}=." for path in hidden)])
    script = folder / "g++"
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    script.chmod(0o700)
    return script


@contextlib.contextmanager
def _cache(folder: Path) -> Iterator[None]:
    """inductor's own files go into `folder`."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    os.environ[name] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(name)
        os.environ.update({} if before is None else {name: before})


# --------------------------------------------------------------------------- a session


def precision(artifact: Artifact) -> tuple[dict[str, int], dict[str, int]]:
    """Raises StageFailed: nothing in a compiled library tells it."""
    raise StageFailed(f"{FILE} is machine code that contains its weights; they cannot be read")


def open(artifact: Artifact, threads: int, profile: bool = False) -> AotiSession:
    """A session on `threads` threads, on the device that the package was compiled for."""
    return AotiSession(artifact, threads, profile)


class AotiSession:
    """A package loaded by PyTorch."""

    def __init__(self, artifact: Artifact, threads: int, profile: bool) -> None:
        import torch
        from torch._inductor import aoti_load_package

        torch.set_num_threads(threads)
        self.inputs = InputBuffers([spec.name for spec in artifact.inputs])
        self.outputs = [spec.name for spec in artifact.outputs]
        self.tensors: list[tuple[torch.Tensor, torch.Tensor]] = []  # of each buffer, and what the device reads
        self.profile = profile
        try:
            self.loader: Any = aoti_load_package(str(artifact.file(".pt2"))).loader
        except Exception as error:  # plain RuntimeError: another CPU, no GPU, a damaged file
            raise StageFailed(f"runtime torchinductor cannot load the package: {first_line(error)}") from error
        self.device = self.loader.get_metadata()["AOTI_DEVICE_KEY"]

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference, the way to the device and back included."""
        if self.inputs.fill(inputs):
            import torch

            buffers = map(torch.from_numpy, self.inputs.arrays.values())
            self.tensors = [(buffer, buffer.to(self.device)) for buffer in buffers]
        elif self.device != "cpu":
            for buffer, there in self.tensors:
                there.copy_(buffer)
        answers = self.loader.boxed_run([there for _, there in self.tensors])
        outputs = zip(self.outputs, answers, strict=True)  # one may be an input's own memory
        return {name: answer.to("cpu", copy=True).numpy() for name, answer in outputs}

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """Median milliseconds of each kernel over `runs` runs, from PyTorch's profiler; none leaves its device."""
        from torch import profiler

        if not self.profile:
            return {"ops": [], "why": "the session was opened without its profile", "fallback": []}
        for _ in range(WARM_RUNS):
            self.run(inputs)
        what = getattr(profiler.ProfilerActivity, self.device.upper())
        with profiler.profile(activities=[what]) as seen:
            for _ in range(runs):
                self.run(inputs)
        ops = _operators([e for e in seen.events() if self._counts(e)], runs, self.device)
        return {"ops": ops, "why": "" if ops else "PyTorch's profiler saw no kernel", "fallback": []}

    def _counts(self, event: FunctionEvent) -> bool:
        """A kernel of the device; on a CPU the outermost, and not our own copies to and fro."""
        mine = event.device_type.name.lower() == self.device
        return mine and (self.device != "cpu" or (event.cpu_parent is None and not event.name.startswith("aten::")))

    def close(self) -> None:
        """Frees it."""
        self.loader = None


def _operators(events: Sequence[FunctionEvent], runs: int, device: str) -> list[OperatorTime]:
    """Each run has the same kernels in the same order: their medians, a name that comes again numbered."""
    each = len(events) // runs
    counts: dict[str, int] = {}
    operators: list[OperatorTime] = []
    for index, event in enumerate(events[:each]):
        kind = event.name.removeprefix("graph_0_").removeprefix("aoti_torch_")
        counts[kind] = counts.get(kind, 0) + 1
        times = [e.time_range.elapsed_us() / 1000 for e in events[index::each]]
        place = f"{device} {'aten' if event.name.startswith('aoti_torch_') else 'inductor'}"
        name = f"{kind}_{counts[kind]}" if counts[kind] > 1 else kind
        operators.append({"name": name, "type": kind, "ms": statistics.median(times), "where": place})
    return operators
