"""Static int8 for ONNX Runtime: weights per channel, activations by ranges calibrated on real samples, as QDQ."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgecompress.errors import StageFailed
from edgecompress.model import Artifact, Request
from edgecompress.techniques._calibration import inputs_of, spread
from edgecompress.techniques._onnx_graph import matching, prepare

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

REQUIRES = ("onnx", "onnxruntime>=1.31", "sympy")
EXTRA = "onnx"
READS: tuple[str, ...] = ("onnx",)
WRITES = "onnx"
PROVIDES = "int8"
NEEDS: tuple[str, ...] = ("samples",)

BINS = 2048  # of a histogram of activations
LEVELS = 128  # that the entropy search quantizes a histogram to, as TensorRT does
CHUNK = 16  # items whose extremes are held at once
MASK = -1000.0  # what goes so far below, and not above, is a mask (-1e4, the least float): it leaves no scale to others
MASKING = {"Add", "Mul", "Sub", "Where"}  # what makes or lays on one

Ranges = dict[str, tuple[float, float]]  # tensor -> lowest, highest
Items = Callable[[], Iterator[Mapping[str, Any]]]  # the model's inputs, batch by batch, from the start


@dataclass(frozen=True)
class Options:
    """How the ranges of activations are found and what is quantized."""

    calibrator: Literal["minmax", "percentile", "entropy"] = "minmax"
    percentile: float = 99.99  # of the values kept inside the range, for "percentile"
    samples: int | None = 512  # calibration items at most, evenly spread over the split; None is all
    per_channel: bool = True  # of weights
    activation: Literal["uint8", "int8"] = "uint8"  # int8 is half as fast on x86 with VNNI, and what Arm likes
    symmetric: bool = False  # activations with their zero in the middle
    skip: tuple[str, ...] = ()  # nodes kept in float, as patterns of their names ("node_conv2d*")

    def __post_init__(self) -> None:
        if not 50 < self.percentile <= 100:
            raise ValueError("percentile is above 50 and at most 100")
        if self.samples is not None and self.samples < 1:
            raise ValueError("samples is at least 1")


def apply(request: Request) -> Artifact:
    """The ONNX model with int8 weights and activations; inputs: "model", "samples" (the calibrate split).

    facts: {"calibrator", "samples": items used, "skipped": [node]}. Raises StageFailed where a tensor is not finite.
    """
    options: Options = request.options
    batches = spread(request, options.samples)

    def items() -> Iterator[Mapping[str, Any]]:
        return (inputs_of(request, batch) for batch in batches)

    with tempfile.TemporaryDirectory(dir=request.out, prefix="work-") as folder:
        prepared = prepare(request.model.file(".onnx"), Path(folder) / "prepared.onnx")
        skipped = matching(prepared, options.skip)
        ranges = calibrate(prepared, items, options, lambda done: request.progress(0.9 * done, "calibrating"))
        skipped += [name for name in _masking(prepared, ranges) if name not in skipped]
        _quantize(prepared, request.out / "model.onnx", (options, ranges, skipped))
    used = len({item for batch in batches for item in batch})
    facts = {"calibrator": options.calibrator, "samples": used, "skipped": skipped}
    return Artifact(request.out, WRITES, request.model.inputs, request.model.outputs, facts).write()


def _masking(file: Path, ranges: Ranges) -> Iterator[str]:
    """The nodes that make an attention mask or lay it on: these stay in float."""
    import onnx

    for node in onnx.load_model(file).graph.node:
        low, high = ranges.get(node.output[0], (0.0, 0.0))
        if node.op_type in MASKING and low < MASK and -low > 100 * high:
            yield node.name


def _quantize(prepared: Path, out: Path, how: tuple[Options, Ranges, list[str]]) -> None:
    import numpy as np
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.calibrate import TensorData, TensorsData, save_tensors_data

    options, ranges, skipped = how
    found = {
        name: TensorData(lowest=np.array(low, np.float32), highest=np.array(high, np.float32))
        for name, (low, high) in ranges.items()
    }
    cache = prepared.with_suffix(".json")  # quantize_static's own door for ranges found elsewhere
    save_tensors_data(TensorsData(CalibrationMethod.MinMax, found), cache)
    quantize_static(
        prepared,
        out,
        quant_format=QuantFormat.QDQ,
        per_channel=options.per_channel,
        activation_type=QuantType.QUInt8 if options.activation == "uint8" else QuantType.QInt8,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=skipped,
        calibration_cache_path=cache,
        extra_options={"ActivationSymmetric": options.symmetric},
    )
    if skipped:
        _free(out, skipped)


def _free(file: Path, nodes: Sequence[str]) -> None:
    """Takes away what quantizes the outputs of `nodes`: between two such pairs ONNX Runtime makes a float node int8."""
    import onnx

    model = onnx.load_model(file)
    graph = model.graph
    made = {output for node in graph.node if node.name in nodes for output in node.output}
    ends = {value.name for value in graph.output}
    pairs: dict[str, str] = {}
    for quantize in [n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] in made]:
        back = [n for n in graph.node if n.input and n.input[0] == quantize.output[0]]
        if ends.isdisjoint(name for n in back for name in n.output):
            pairs |= {n.output[0]: quantize.input[0] for n in back}
            for node in (*back, quantize):
                graph.node.remove(node)
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = pairs.get(name, name)
    onnx.save_model(model, file)


# --------------------------------------------------------------------------- the ranges


def calibrate(file: Path, items: Items, options: Options, progress: Callable[[float], None]) -> Ranges:
    """The range of every activation: the extremes, or where a histogram between them is cut.

    One pass finds the extremes; "percentile" and "entropy" take a second one that fills histograms with fixed edges.
    Both add up item by item, so memory does not grow with the items and the order does not matter.
    """
    extremes = _extremes(file, items)
    progress(0.4)
    if options.calibrator == "minmax":
        return extremes
    histograms = _histograms(file, items, extremes)
    progress(0.9)
    if options.calibrator == "percentile":
        return {name: percentile_range(h, extremes[name], options.percentile) for name, h in histograms.items()}
    return {name: entropy_range(h, extremes[name]) for name, h in histograms.items()}


def _extremes(file: Path, items: Items) -> Ranges:
    """The lowest and highest value of each tensor, reduced inside the graph by ONNX Runtime's own calibrator."""
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    augmented = str(file.with_name("augmented.onnx"))
    calibrator = create_calibrator(file, augmented_model_path=augmented, calibrate_method=CalibrationMethod.MinMax)
    for chunk in _chunks(items()):
        calibrator.collect_data(_Reader(chunk))  # folds the chunk into the ranges so far
    data = calibrator.compute_data()
    found = {n: (float(data[n].lowest.min()), float(data[n].highest.max())) for n in _in_order(file) if n in data}
    for name, (low, high) in found.items():
        if not (abs(low) < 3e38 and abs(high) < 3e38):  # NaN and infinity, and masks of the smallest float
            raise StageFailed(
                f"int8: the tensor '{name}' takes values from {low} to {high} on the calibration data; "
                "keep its nodes in float with the option skip"
            )
    return found


def _in_order(file: Path) -> list[str]:
    """The tensors of a graph, from its inputs on: the first one that goes wrong is where it went wrong."""
    import onnx

    graph = onnx.load_model(file).graph
    return [value.name for value in graph.input] + [output for node in graph.node for output in node.output]


def _chunks(items: Iterator[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    while chunk := [item for _, item in zip(range(CHUNK), items, strict=False)]:
        yield chunk


class _Reader:
    """ONNX Runtime's way to be handed a list of inputs."""

    def __init__(self, items: Sequence[Mapping[str, Any]]) -> None:
        self.items = iter(items)

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self.items, None)


def _histograms(file: Path, items: Items, extremes: Ranges) -> dict[str, Array]:
    """Counts of each tensor's values; the edges are known from the first pass, so items just add up."""
    import numpy as np
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    augmented = str(file.with_name("augmented.onnx"))
    session = create_calibrator(
        file, augmented_model_path=augmented, calibrate_method=CalibrationMethod.Percentile
    ).infer_session
    found = {name: np.zeros(BINS, np.int64) for name in extremes}
    names = [output.name for output in session.get_outputs() if output.name in extremes]
    for item in items():
        for name, values in zip(names, session.run(names, item), strict=True):
            found[name] += histogram(values, extremes[name])
    return found


def histogram(values: Array, extremes: tuple[float, float]) -> Array:
    """Counts of `values` in BINS equal bins from -reach to reach, reach being the larger extreme."""
    import numpy as np

    reach = max(map(abs, extremes)) or 1.0
    counts, _ = np.histogram(values, BINS, range=(-reach, reach))
    return counts


def percentile_range(counts: Array, extremes: tuple[float, float], percentile: float) -> tuple[float, float]:
    """The range that holds `percentile` % of the values, as many cut off on either side."""
    import numpy as np

    reach = max(map(abs, extremes)) or 1.0
    edges = np.linspace(-reach, reach, len(counts) + 1)
    share = np.cumsum(counts) / counts.sum()
    outside = (100 - percentile) / 200
    low = edges[np.searchsorted(share, outside, side="right")]
    high = edges[min(int(np.searchsorted(share, 1 - outside)) + 1, len(counts))]
    return max(float(low), extremes[0]), min(float(high), extremes[1])


def entropy_range(counts: Array, extremes: tuple[float, float]) -> tuple[float, float]:
    """The symmetric range, within the extremes, whose quantized magnitudes diverge least from the real ones.

    After Migacz, "8-bit inference with TensorRT" (GTC 2017), with the two habits of NVIDIA's pytorch-quantization:
    magnitudes, and a first bin that counts as much as the second (else the zeros of a ReLU outweigh all the rest).
    """
    reach = max(map(abs, extremes)) or 1.0
    half = len(counts) // 2
    sizes = counts[half:] + counts[:half][::-1]
    sizes[0] = sizes[1]
    cuts = range(LEVELS, half + 1, LEVELS // 16)
    best = max(cuts, key=lambda i: (-divergence(sizes, i), i))
    limit = reach * best / half
    return max(-limit, extremes[0]), min(limit, extremes[1])


def divergence(sizes: Array, cut: int) -> float:
    """KL(p || q): p is the histogram clipped to its first `cut` bins, q the same bins in LEVELS equal levels."""
    import numpy as np

    inside = sizes[:cut].astype(np.float64)
    level = np.arange(cut) * LEVELS // cut
    filled = np.bincount(level, inside > 0, LEVELS)
    q = np.where(inside > 0, (np.bincount(level, inside, LEVELS) / np.maximum(filled, 1))[level], 0.0)
    p = inside.copy()
    p[-1] += sizes[cut:].sum()
    if p.sum() == 0 or q.sum() == 0:
        return 0.0 if p.sum() == 0 else float("inf")
    some = p > 0
    p, q = p[some] / p.sum(), np.maximum(q[some] / q.sum(), 1e-12)
    return float((p * np.log(p / q)).sum())
