"""`energy calibrate`: what a second, a MAC and a byte cost on a device that has a sensor, from small nets of one kind.

energy = busy_w * seconds + the sum over dtypes of pj_per_mac * MACs + pj_per_byte * bytes, with no coefficient below
zero, by least squares of the relative error. It is judged on what it has not seen: each fifth of the nets, some of
every family and of every size, is held out of the fit and predicted. The band is the cross-conformal quantile of those
errors (Vovk 2015): it holds for nets that are mixtures of these, which is why the sensor refuses work outside them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core import atomic_file, catalog, environments, output_place, registry
from edgecompress.core.errors import EdgeError, InputError, StageFailed
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.device import agent_client, machine
from edgecompress.device.agent.device_facts import DeviceFacts
from edgecompress.device.agent.energy import EnergyAnswer
from edgecompress.device.request import AgentRequest
from edgecompress.formats import op_counts
from edgecompress.pipeline.job import context
from edgecompress.stages import device_bench, energy

if TYPE_CHECKING:
    import numpy as np
    import onnx

RUNTIME = "onnx"
FORMAT = "onnx"  # of the nets
SENSOR = "calibrated"  # the one that reads what is written here
COVERS = 0.95  # of new nets that the band is to hold, where there are held-out errors enough
FOLDS = 5
ENOUGH = 3  # measured nets for each coefficient
DTYPES = ("float32", "int8")
ITEMS = 2
Says = Callable[[str], None]


# --------------------------------------------------------------------------- the nets


@dataclass(frozen=True)
class Micro:
    """A net of one operator: `family` says which, `sizes` are what its builder takes."""

    family: str
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """The family and the sizes."""
        return "-".join([self.family, *map(str, self.sizes)])


# Of each family one so small that its time is the runtime's own, one that leaves every cache, and some between.
CONVS = ((8, 8, 4), (16, 32, 32), (64, 64, 56), (128, 128, 28), (256, 128, 14))  # channels in, out; pixels a side
DEPTHWISE = ((32, 56), (64, 112), (256, 28), (512, 14))
LINEAR = ((32, 32), (256, 1024), (1024, 1024), (4096, 2048))
MICROS = (
    *(Micro("conv", sizes) for sizes in CONVS),
    *(Micro("pointwise", (4 * a, 4 * b, side)) for a, b, side in CONVS[:4]),
    *(Micro("depthwise", sizes) for sizes in DEPTHWISE),
    *(Micro("linear", sizes) for sizes in LINEAR),
    *(Micro("add", (values,)) for values in (2**6, 2**16, 2**19, 2**22)),
    *(Micro("conv_int8", sizes) for sizes in CONVS),
    *(Micro("linear_int8", sizes) for sizes in LINEAR),
)


@dataclass(frozen=True)
class _MicroOperator:
    """One operator of standard ONNX between an input and constant weights."""

    type: str
    taken: op_counts.Shape
    weights: op_counts.Shape
    out: op_counts.Shape
    attributes: Mapping[str, int | list[int]]


def build(micro: Micro, folder: Path) -> tuple[Artifact, Artifact]:
    """A net as an artifact, and samples for it; the same bytes each time."""
    import numpy as np
    import onnx
    from onnx import helper

    drawn, operator = np.random.default_rng(0), _operator(micro)
    dtype = "uint8" if micro.family.endswith("int8") else "float32"
    node, constants = _node(operator, dtype, drawn)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x, y = (helper.make_tensor_value_info(n, number, s) for n, s in (("x", operator.taken), ("y", operator.out)))
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], micro.name, [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    net, data = folder / micro.name, folder / f"{micro.name}-samples"
    net.mkdir(parents=True)
    onnx.save(model, net / "model.onnx")
    items = (ITEMS, *operator.taken[1:])
    tensors.write_split(data / "test", {"x": drawn.integers(0, 255, items).astype(dtype)})
    samples = Artifact(data, "samples", (TensorSpec("x", items, dtype),)).write()
    ends = (TensorSpec("x", operator.taken, dtype),), (TensorSpec("y", operator.out, dtype),)
    return Artifact(net, FORMAT, *ends).write(), samples


def _operator(micro: Micro) -> _MicroOperator:
    family, sizes = micro.family.removesuffix("_int8"), micro.sizes
    if family == "add":
        return _MicroOperator("Add", (1, *sizes), sizes, (1, *sizes), {})
    if family == "linear":
        return _MicroOperator("MatMul", (1, sizes[0]), sizes, (1, sizes[1]), {})
    kernel = 1 if family == "pointwise" else 3
    groups = sizes[0] if family == "depthwise" else 1
    inputs, outputs, side = sizes[0], sizes[-2], sizes[-1]
    how: dict[str, int | list[int]] = {"group": groups, "kernel_shape": [kernel, kernel], "pads": [kernel // 2] * 4}
    wide = (outputs, inputs // groups, kernel, kernel)
    return _MicroOperator("Conv", (1, inputs, side, side), wide, (1, outputs, side, side), how)


def _node(
    operator: _MicroOperator, dtype: str, drawn: np.random.Generator
) -> tuple[onnx.NodeProto, dict[str, np.ndarray]]:
    """The node, and its constants by name; of whole numbers its quantized form, all with scale 1 and zero point 0."""
    import numpy as np
    from onnx import helper

    if dtype == "float32":
        weights = {"w": drawn.standard_normal(operator.weights, dtype="float32")}
        return helper.make_node(operator.type, ["x", "w"], ["y"], **operator.attributes), weights
    steps = {"scale": np.float32(1), "zero": np.uint8(0), "w_zero": np.int8(0)}
    constants = {"w": drawn.integers(-127, 127, operator.weights).astype("int8")}
    reads = ["x", "scale", "zero", "w", "scale", "w_zero", "scale", "zero"]
    node = helper.make_node(f"QLinear{operator.type}", reads, ["y"], **operator.attributes)
    return node, {**constants, **{name: np.asarray(value) for name, value in steps.items()}}


# --------------------------------------------------------------------------- measuring them


@dataclass(frozen=True)
class MeasuredNet:
    """One net's inference: its time, its work and its energy."""

    name: str
    family: str
    seconds: float
    macs_of: Mapping[str, float]
    bytes: float
    joules: float
    scope: str


@dataclass(frozen=True)
class EnergyBench:
    """The device, the sensor that reads there, and where the nets are made."""

    bench: device_bench.DeviceBench
    sensor: str
    folder: Path

    def row(self, micro: Micro) -> tuple[MeasuredNet, list[float]]:
        """A net's energy, and the watts of the idle windows around it. Raises StageFailed where there is no figure."""
        artifact, samples = build(micro, self.folder)
        request = dataclasses.replace(self.bench.request, inputs={"net": artifact, "samples": samples})
        with tempfile.TemporaryDirectory() as scratch:
            bench = device_bench.DeviceBench(self.bench.shell, request)
            energy_request = dataclasses.replace(
                bench.agent_request("energy", "net"), sensors=(device_bench.named(self.sensor),)
            )
            answer: EnergyAnswer = bench.ask(energy_request, Path(scratch))
        gross = energy.per_inference(answer)[0] if not answer["why_not"] else None
        if gross is None or gross.value is None:
            raise StageFailed(f"{micro.name}: {gross.reason if gross else answer['why_not']}")
        work = op_counts.total(artifact)
        seconds = statistics.median(w["seconds"] / w["n"] for w in answer["windows"])
        idle_w = [energy.joules_of(w) / w["seconds"] for w in answer["idle"]]
        macs_of, moved = work["macs_of"] or {}, work["bytes"] or 0
        row = MeasuredNet(
            micro.name, micro.family, seconds, macs_of, moved, joules=gross.value * 1e-3, scope=gross.scope
        )
        return row, idle_w


def run(device: str, out: Path | None = None, profile: str = "quick", threads: int = 1, says: Says = print) -> Path:
    """Measures the nets on a device that has a sensor and writes the calibration; returns the file.

    `out`: DEVICE-energy.toml in the working folder. Raises InputError for a device without a sensor that measures.
    """
    place, how = catalog.device(device), catalog.profile(profile)
    module = registry.load("runtimes", RUNTIME)
    environments.require(module, "energy calibrate")
    file = out or Path(f"{place.name}-energy.toml")
    output_place.check_file(file, "--out")  # before minutes are spent on it
    known = context(place.name, place.value, {"threads": threads})
    options = {"profile": dataclasses.asdict(how.value), "runtimes": {"net": RUNTIME}}
    with tempfile.TemporaryDirectory() as scratch:
        request = Request({}, Path(scratch), options, known)
        with device_bench.connected(request) as bench:
            measured = EnergyBench(bench, _sensor(bench, place.name), Path(scratch))
            rows, idle_w, left_out = _rows(measured, says)
            around = device_bench.environment(bench, bench.shell.facts(), {})
        table = {
            "format": registry.load("sensors", SENSOR).FORMAT,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "device": place.name,
            "device_class": registry.load("sensors", SENSOR).device_class(bench.device),
            "sensor": measured.sensor,
            "scope": rows[0].scope,
            "runtime": RUNTIME,
            "threads": threads,
            "profile": how.name,
            **fitted(rows, statistics.fmean(idle_w)),
            "nets": {"left_out": left_out, "measured": [row.name for row in rows]},
            "environment": {"versions": environments.versions(module), **around},
        }
    return write(table, file)


def _sensor(bench: device_bench.DeviceBench, device: str) -> str:
    """The first of the device's sensors that reads there and does not only estimate. Raises InputError."""
    sensors = tuple(device_bench.named(sensor) for sensor in bench.sensors)
    request = AgentRequest("facts", sensors=sensors, device=bench.device, root=str(machine.root()))
    with tempfile.TemporaryDirectory() as scratch:
        facts: DeviceFacts = agent_client.ask(bench.shell, request, Path(scratch), device_bench.START_S)
    answers = facts["sensors"]
    why_not = {}
    for sensor in bench.sensors:
        status = registry.load("sensors", sensor).STATUS
        if not answers[sensor] and status == "measured":
            return sensor
        why_not[sensor] = answers[sensor] or f"it is {status}"
    reasons = "; ".join(f"{sensor}: {why}" for sensor, why in why_not.items()) or "it names none"
    raise InputError(f"device {device}: no sensor measures its energy ({reasons}); calibrate a device that has one")


def _rows(bench: EnergyBench, says: Says) -> tuple[list[MeasuredNet], list[float], list[str]]:
    """Each net that gave a figure, the watts of every idle window, and why the others gave none."""
    rows, idle_w, left_out = [], list[float](), []
    for number, micro in enumerate(MICROS, 1):
        try:
            row, idle = bench.row(micro)
        except EdgeError as error:
            left_out.append(str(error))
            says(f"{number}/{len(MICROS)} {micro.name}: left out: {error}")
            continue
        rows.append(row)
        idle_w += idle
        says(f"{number}/{len(MICROS)} {row.name}: {1e3 * row.seconds:.4g} ms, {1e3 * row.joules:.4g} mJ")
    if len(rows) < ENOUGH * (2 + len(DTYPES)):
        raise StageFailed(
            f"only {len(rows)} of {len(MICROS)} nets have a measured energy; the first failure: {left_out[0]}"
        )
    return rows, idle_w, left_out


# --------------------------------------------------------------------------- the fit


class Coefficients(TypedDict):
    """Watts while it computes, picojoules of a byte and of a MAC by dtype."""

    busy_w: float
    pj_per_byte: float
    pj_per_mac: dict[str, float]


def fitted(rows: Sequence[MeasuredNet], idle_w: float) -> dict[str, Json]:
    """Coefficients, held-out error and hull, as the file has them."""
    solved = fit(rows)
    errors = sorted(map(abs, cross_validated(rows)))
    rank = min(math.ceil((len(errors) + 1) * COVERS), len(errors))
    error = {
        "folds": FOLDS,
        "nets": len(rows),
        "rms": math.sqrt(statistics.fmean(e * e for e in errors)),
        "band": errors[rank - 1],
        "covers": min(COVERS, rank / (len(errors) + 1)),
    }
    coefficients = {"idle_w": idle_w, "busy_w": solved["busy_w"], "pj_per_byte": solved["pj_per_byte"]}
    return {"coefficients": {**coefficients, "pj_per_mac": solved["pj_per_mac"]}, "error": error, "hull": _hull(rows)}


def fit(rows: Sequence[MeasuredNet]) -> Coefficients:
    """Watts while it computes, picojoules of a byte and of a MAC, none below zero; least squares of relative errors."""
    import numpy as np

    columns = [[row.seconds, row.bytes, *(row.macs_of.get(dtype, 0.0) for dtype in DTYPES)] for row in rows]
    table = np.array(columns) / np.array([[row.joules] for row in rows])
    scale = np.linalg.norm(table, axis=0)
    solved = non_negative(table / scale, np.ones(len(rows))) / scale
    busy_w, per_byte, *per_mac = map(float, solved)
    by_dtype = dict(zip(DTYPES, (1e12 * m for m in per_mac), strict=True))
    return Coefficients(busy_w=busy_w, pj_per_byte=1e12 * per_byte, pj_per_mac=by_dtype)


def non_negative(table: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """The x >= 0 with the least |table x - goal|.

    It is the plain least squares of the columns where it is above zero: of few columns, every set can be tried.
    """
    import numpy as np

    best, least = np.zeros(table.shape[1]), float(np.linalg.norm(goal))
    for size in range(1, table.shape[1] + 1):
        for chosen in map(list, itertools.combinations(range(table.shape[1]), size)):
            tried = np.zeros(table.shape[1])
            tried[chosen] = np.linalg.lstsq(table[:, chosen], goal, rcond=None)[0]
            distance = float(np.linalg.norm(table @ tried - goal))
            if (tried >= 0).all() and distance < least:
                best, least = tried, distance
    return best


def predicted(coefficients: Coefficients, row: MeasuredNet) -> float:
    """Joules of a row by the coefficients."""
    macs = sum(coefficients["pj_per_mac"][dtype] * count for dtype, count in row.macs_of.items())
    return float(coefficients["busy_w"] * row.seconds + 1e-12 * (coefficients["pj_per_byte"] * row.bytes + macs))


def cross_validated(rows: Sequence[MeasuredNet]) -> list[float]:
    """The relative error of each row, predicted from the rows of the other folds."""
    # the fold of each row: families are dealt out in turn, each from another fold on, so that sizes mix too
    families = list(dict.fromkeys(row.family for row in rows))
    dealt = {family: itertools.count(number) for number, family in enumerate(families)}
    fold = [next(dealt[row.family]) % FOLDS for row in rows]
    rest = {f: fit([row for row, other in zip(rows, fold, strict=True) if other != f]) for f in set(fold)}
    return [predicted(rest[f], row) / row.joules - 1 for row, f in zip(rows, fold, strict=True)]


def _hull(rows: Sequence[MeasuredNet]) -> dict[str, Json]:
    """The ranges of work a second: the model has no constant, so work and time may grow together."""

    def span(rates: Sequence[float]) -> list[float]:
        return [min(rates), max(rates)]

    macs = {dtype: span([row.macs_of.get(dtype, 0.0) / row.seconds for row in rows]) for dtype in DTYPES}
    return {"macs_per_s": macs, "bytes_per_s": span([row.bytes / row.seconds for row in rows])}


# --------------------------------------------------------------------------- the file


def write(calibration: Mapping[str, Json], file: Path) -> Path:
    """A calibration as TOML, whole or not at all."""
    head = "# Written by `edgecompress energy calibrate`; name it in a device's options: calibrated = { file = ... }\n"
    try:
        atomic_file.make_folder(file.parent)
        atomic_file.write(file, (head + "\n".join(_toml(calibration, "")) + "\n").encode())
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error}; give another --out") from error
    return file


def _toml(table: Mapping[str, Json], place: str) -> Iterator[str]:
    """Lines of a table and of the tables in it; what is not known is left out: TOML has no word for it."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if place:
        yield f"\n[{place}]"
    yield from (f"{_key(k)} = {_value(v)}" for k, v in table.items() if k not in inner and v is not None)
    for key, value in inner.items():
        yield from _toml(value, f"{place}.{_key(key)}" if place else _key(key))


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _value(name)


def _value(plain: Json) -> str:
    """JSON is TOML but for one control character that it leaves bare."""
    return json.dumps(plain, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
