"""OpenVINO on the CPU: converts ONNX, runs and profiles the result."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import engine_settings
from edgecompress.core.errors import InputError, StageFailed, first_line
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.data import declared_ends
from edgecompress.device.input_buffers import InputBuffers
from edgecompress.engines.openvino import ir, layer_outputs
from edgecompress.formats import empty_model

if TYPE_CHECKING:
    import numpy as np
    import openvino

    from edgecompress.core import operator_graph
    from edgecompress.core.json import Json
    from edgecompress.core.operations import Kernels, Operation
    from edgecompress.core.protocols import OperatorTime, OperatorTimes

REQUIRES = ("openvino",)
OPENS_WITH = ("openvino",)
IMPORTS = ("openvino",)  # what `open` needs: loaded before a session's memory and load time count
EXTRA = "openvino"
FORMAT = "openvino"
NO_ARENA = "OpenVINO's CPU plug-in does not report its memory plan"
READS: tuple[str, ...] = ("onnx",)

THREADS = "INFERENCE_NUM_THREADS"
WARM_RUNS = 3  # of the per-operator pass, left out of its medians
SETTINGS: Mapping[str, Json] = {
    "ENABLE_CPU_PINNING": False,  # else each process takes the first core, and two share it while others idle
    "INFERENCE_PRECISION_HINT": "f32",  # else bf16 where the CPU has it: another number than asked for
    "NUM_STREAMS": 1,
    "PERFORMANCE_HINT": "LATENCY",
}
EMPTY = """<?xml version="1.0"?>
<net name="empty" version="11">
<layers>
<layer id="0" name="x" type="Parameter" version="opset1">
<data shape="1" element_type="f32"/>
<output><port id="0" precision="FP32" names="x,y"><dim>1</dim></port></output>
</layer>
<layer id="1" name="y/sink" type="Result" version="opset1">
<input><port id="0" precision="FP32"><dim>1</dim></port></input>
</layer>
</layers>
<edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges>
</net>
"""  # a graph without operators


def export(request: Request) -> Artifact:
    """The ONNX model as `model.xml` and `model.bin` in fp32, its batch fixed to the context's where it was dynamic."""
    openvino, batch = _openvino(), request.context.batch
    shapes = {
        spec.name: [d if isinstance(d, int) else openvino.Dimension(d.min, d.max) for d in _fixed(spec, batch).shape]
        for spec in request.model.inputs
    }
    try:
        net = openvino.convert_model(request.model.file(".onnx"), input=shapes)
    except Exception as error:  # the converter raises its own classes, and plain Exception
        raise StageFailed(f"runtime openvino: it cannot read the ONNX model: {first_line(error)}") from error
    ir.save(net, request.out)
    inputs, outputs = ([_fixed(s, batch) for s in specs] for specs in (request.model.inputs, request.model.outputs))
    return Artifact(request.out, FORMAT, tuple(inputs), tuple(outputs)).write()


def _openvino() -> Any:
    """The library, its telemetry switched off: nothing of a user's work is sent anywhere."""
    import sys

    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # openvino then takes its own stub
    import openvino

    return openvino


def _fixed(spec: TensorSpec, batch: int) -> TensorSpec:
    import dataclasses

    shape = tuple(batch if not isinstance(d, int) and d.name == "batch" else d for d in spec.shape)
    return dataclasses.replace(spec, shape=shape)


def tapped(request: Request) -> Artifact:
    """The input "model" with what its layers answer as further outputs; facts: {"taps": [row]}."""
    core = _openvino().Core()
    try:
        net = core.read_model(request.model.file(".xml"))
        compiled = core.compile_model(net, "CPU", {THREADS: 1, **SETTINGS}).get_runtime_model()
    except RuntimeError as error:
        raise StageFailed(
            f"runtime openvino: the layer outputs cannot be added to the model: {first_line(error)}"
        ) from error
    return layer_outputs.tapped(request, net, compiled)


def watched(request: Request) -> Artifact:
    """The input "model" with every real number that it computes as a further output."""
    return layer_outputs.watched(request, _openvino().Core().read_model(request.model.file(".xml")))


FOREIGN_SUFFIX = ".xml"


def foreign(request: Request) -> Artifact:
    """The user's IR, its .bin beside it; raises InputError for one that OpenVINO cannot read."""
    openvino, file = _openvino(), Path(request.options["path"])
    try:
        net = openvino.Core().read_model(file)
        openvino.Core().compile_model(net, "CPU", {THREADS: 1, **SETTINGS})
    except RuntimeError as error:
        raise InputError(
            f"{file}: OpenVINO cannot read it: {first_line(error)}; its .bin must lie beside it"
        ) from error
    for number, port in enumerate((*net.inputs, *net.outputs)):
        if not port.get_names():
            port.get_tensor().set_names({f"value_of_{number}"})
    inputs, outputs = (tuple(map(_spec, side)) for side in (net.inputs, net.outputs))
    ir.save(net, request.out)
    return Artifact(request.out, FORMAT, *declared_ends.of(inputs, outputs, {}, str(file))).write()


def _spec(port: openvino.Output) -> TensorSpec:
    dtype = str(port.get_element_type().to_dtype().name)
    return TensorSpec(port.get_any_name(), layer_outputs.shape_of(port), dtype)


def count(artifact: Artifact, batch: int) -> operator_graph.Graph:
    """The operators of one run of `batch` items. Raises StageFailed where they cannot be counted."""
    from edgecompress.engines.openvino import op_counts

    return op_counts.graph(artifact, batch)


def kernels(operation: Operation, precision: str) -> Kernels:
    """What it makes of an operator in a variant of that precision."""
    from edgecompress.engines.openvino import kernels as openvino_kernels

    return openvino_kernels.kernels(operation, precision)


def precision(artifact: Artifact) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of the weights by precision, and the operators that multiply by what they compute in."""
    from edgecompress.engines.openvino import precision as openvino_precision
    from edgecompress.formats.precision import walk

    return walk.weights_and_computes(openvino_precision.net(artifact.file(".xml")))


def empty(folder: Path) -> Artifact:
    """The smallest model, in an empty folder."""
    return empty_model.written(folder, FORMAT, {"model.xml": EMPTY.encode(), "model.bin": b""})


def open(artifact: Artifact, threads: int, profile: bool = False) -> OpenvinoSession:
    """A session on `threads` threads of the CPU, by the artifact's settings."""
    return OpenvinoSession(artifact, threads, profile)


def _word(value: Any) -> Json:
    """A property as it is written in SETTINGS."""
    if isinstance(value, (str, int)):
        return value
    return str(value.to_string() if hasattr(value, "to_string") else value.name)


class OpenvinoSession:
    """A model compiled by OpenVINO."""

    def __init__(self, artifact: Artifact, threads: int, profile: bool) -> None:
        openvino = _openvino()
        config = {THREADS: threads, "PERF_COUNT": profile, **engine_settings.of(artifact, SETTINGS)}
        net = openvino.Core().read_model(artifact.file(".xml"))
        self.names = [spec.name for spec in artifact.outputs]
        self.profile, self.tensor = profile, openvino.Tensor
        compiled = openvino.Core().compile_model(net, "CPU", config)
        self.in_effect = {name: _word(compiled.get_property(name)) for name in SETTINGS}
        self.request = compiled.create_infer_request()
        self.inputs = InputBuffers([spec.name for spec in artifact.inputs])
        self.same_shapes = not any(compiled.output(name).partial_shape.is_dynamic for name in self.names)
        self.outputs: dict[str, np.ndarray] = {}  # views of the request's own memory

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference."""
        if self.inputs.fill(inputs):
            for name, array in self.inputs.arrays.items():
                self.request.set_tensor(name, self.tensor(array, shared_memory=True))
            self.outputs = {}
        self.request.infer(share_outputs=True)  # else it copies them too
        if not (self.outputs and self.same_shapes):
            self.outputs = {name: self.request.get_tensor(name).data for name in self.names}
        return {name: array.copy() for name, array in self.outputs.items()}

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """Median milliseconds of each operator over `runs` runs, from OpenVINO's counters; the kernel says where."""
        if not self.profile:
            return {"ops": [], "why": "the session was opened without its profile", "fallback": []}
        times: dict[str, list[float]] = {}
        about: dict[str, openvino.ProfilingInfo] = {}
        for index in range(WARM_RUNS + runs):
            self.run(inputs)
            for op in self.request.get_profiling_info() if index >= WARM_RUNS else ():
                if op.status == op.Status.EXECUTED:
                    each = times.setdefault(op.node_name, [0.0] * runs)
                    each[index - WARM_RUNS] += op.real_time.total_seconds() * 1000
                    about[op.node_name] = op
        ops: list[OperatorTime] = [
            {"name": name, "type": about[name].node_type, "ms": statistics.median(each), "where": about[name].exec_type}
            for name, each in times.items()
        ]
        return {"ops": ops, "why": "", "fallback": []}

    def close(self) -> None:
        """Frees it."""
        self.outputs = {}
        self.request = None
