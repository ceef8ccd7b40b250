"""A session of MNN's interpreter: tensors of ours that each call copies into its inputs, and out of its outputs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import engine_settings
from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.model import Artifact
from edgecompress.device import machine

if TYPE_CHECKING:
    import MNN
    import numpy as np

    from edgecompress.core.json import Json
    from edgecompress.core.protocols import OperatorTime, OperatorTimes

WARM_RUNS = 3  # of the per-operator pass, left out of its medians
SETTINGS: Mapping[str, Json] = {"precision": "high"}  # "low": half precision, where the CPU has its instructions
HALF = {"precision": "low"}
BOUNDLESS = 1e38  # numbers that stand for infinity, in masks: half precision may make it of them
INVALID = "Invalid model file"  # what MNN calls a file that is none
Shapes = Mapping[str, Sequence[int]]
See = Callable[[Sequence["MNN.Tensor"], "MNN.OpInfo"], bool]  # an operator, before or after it runs


class Net:
    """An .mnn file and the session that runs it on `threads` threads of the CPU.

    `inputs` and `outputs` are the session's tensors by name. Raises StageFailed for a file that MNN does not take.
    """

    def __init__(self, file: Path, threads: int, settings: Mapping[str, Json]) -> None:
        import MNN

        self.file = file
        try:
            self.interpreter = MNN.Interpreter(str(file))
            config = {"backend": "CPU", "numThread": threads, **settings}
            self.session = self.interpreter.createSession(config)
        except Exception as error:  # it raises no other class
            damaged = "not an MNN model, or truncated or damaged" if INVALID in str(error) else first_line(error)
            raise StageFailed(f"runtime mnn: {file.name}: {damaged}; deploy again") from error
        self.inputs: Mapping[str, MNN.Tensor] = self.interpreter.getSessionInputAll(self.session)
        self.outputs: Mapping[str, MNN.Tensor] = self.interpreter.getSessionOutputAll(self.session)

    def resize(self, shapes: Shapes) -> None:
        """Plans the session for inputs of other shapes."""
        for name, shape in shapes.items():
            self.interpreter.resizeTensor(self.inputs[name], tuple(shape))
        self.interpreter.resizeSession(self.session)

    def run(self, before: See | None = None, after: See | None = None) -> None:
        """One inference on what the inputs hold."""
        if before and after:
            code = self.interpreter.runSessionWithCallBackInfo(self.session, before, after)
        else:
            code = self.interpreter.runSession(self.session)
        if code:
            raise StageFailed(f"runtime mnn: {self.file.name}: its run ended with MNN's error {code}")


def dtype(tensor: MNN.Tensor) -> str:
    """numpy's name of what a tensor holds."""
    import MNN

    kinds = {"float32": MNN.Halide_Type_Float, "int32": MNN.Halide_Type_Int, "int64": MNN.Halide_Type_Int64}
    return next((name for name, kind in kinds.items() if tensor.getDataType() == kind), "uint8")


def _own(tensor: MNN.Tensor) -> tuple[MNN.Tensor, np.ndarray]:
    """A tensor of ours like one of the session's, and its memory, in the order of the axes."""
    import MNN
    import numpy as np

    zeros = np.zeros(tensor.getShape(), dtype(tensor))
    made = MNN.Tensor(tensor.getShape(), tensor.getDataType(), zeros, MNN.Tensor_DimensionType_Caffe)
    return made, made.getNumpyData()


def check_cpu(settings: Mapping[str, Json]) -> None:
    """Raises StageFailed for half precision on a 64-bit Arm CPU without its instructions: fp32 is computed there."""
    if settings != HALF:
        return
    here = machine.facts(machine.here())
    if here["machine"] == "aarch64" and here["features"] and "asimdhp" not in here["features"]:
        raise StageFailed(
            f"runtime mnn: {here['cpu'] or 'this CPU'} has no half-precision arithmetic (asimdhp); take the variant "
            "in fp32 there"
        )


class MnnSession:
    """An artifact opened by its settings."""

    def __init__(self, artifact: Artifact, threads: int) -> None:
        settings = engine_settings.of(artifact, SETTINGS)
        check_cpu(settings)
        self.net = Net(artifact.file(".mnn"), threads, settings)
        self.names = [spec.name for spec in artifact.inputs], [spec.name for spec in artifact.outputs]
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs: list[tuple[str, MNN.Tensor, MNN.Tensor, np.ndarray]] = []
        self.outputs: list[tuple[str, MNN.Tensor, MNN.Tensor, np.ndarray]] = []

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference."""
        self._fill(inputs)
        self.net.run()
        for _, tensor, own, _ in self.outputs:
            tensor.copyToHostTensor(own)
        return {name: array.copy() for name, _, _, array in self.outputs}

    def _fill(self, inputs: Mapping[str, np.ndarray]) -> None:
        shapes = {name: inputs[name].shape for name in self.names[0]}
        if shapes != self.shapes:
            net = self.net
            if any(tuple(net.inputs[name].getShape()) != shape for name, shape in shapes.items()):
                net.resize(shapes)
            self.shapes = shapes
            self.inputs = [(name, net.inputs[name], *_own(net.inputs[name])) for name in self.names[0]]
            self.outputs = [(name, net.outputs[name], *_own(net.outputs[name])) for name in self.names[1]]
        for name, tensor, own, array in self.inputs:
            array[...] = inputs[name]
            tensor.copyFrom(own)

    def peaks(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        """The largest magnitude that each operator answers in an inference, but for what stands for infinity."""
        import numpy as np

        found: dict[str, float] = {}

        def after(tensors: Sequence[MNN.Tensor], about: MNN.OpInfo) -> bool:
            for tensor in tensors:
                own, array = _own(tensor)
                if array.dtype == np.float32:
                    tensor.copyToHostTensor(own)
                    sizes = np.abs(array)
                    peak = float(sizes[sizes < BOUNDLESS].max(initial=0.0))
                    found[about.getName()] = max(found.get(about.getName(), 0.0), peak)
            return True

        self._fill(inputs)
        self.net.run(lambda tensors, about: True, after)
        return found

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """Median milliseconds of each operator over `runs` runs, from MNN's callbacks around it."""
        times: dict[str, list[float]] = {}
        kinds: dict[str, str] = {}
        start = 0

        def before(tensors: Sequence[MNN.Tensor], about: MNN.OpInfo) -> bool:
            nonlocal start
            start = time.perf_counter_ns()
            return True

        def after(tensors: Sequence[MNN.Tensor], about: MNN.OpInfo) -> bool:
            taken = time.perf_counter_ns() - start
            kinds[about.getName()] = about.getType()
            times.setdefault(about.getName(), []).append(taken / 1e6)
            return True

        if not runs:
            return {"ops": [], "why": "no runs were asked for", "fallback": []}
        self._fill(inputs)
        for _ in range(WARM_RUNS + runs):
            self.net.run(before, after)
        ops: list[OperatorTime] = [
            {"name": name, "type": kinds[name], "ms": statistics.median(each[-runs:]), "where": "CPU"}
            for name, each in times.items()
        ]
        return {"ops": ops, "why": "", "fallback": []}

    def close(self) -> None:
        """Frees it."""
        self.inputs, self.outputs = [], []
        del self.net
