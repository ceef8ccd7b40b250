"""The range of every activation of an ONNX model over real samples, found by ONNX Runtime's own calibrators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from edgecompress.core.errors import StageFailed
from edgecompress.engines.onnx import safe_names
from edgecompress.techniques import _activation_ranges

if TYPE_CHECKING:
    import numpy as np

CHUNK = 16  # items whose extremes are held at once
HUGE = 3e38  # NaN and infinity, and masks of the smallest float

Ranges = dict[str, tuple[float, float]]  # tensor -> lowest, highest
Items: TypeAlias = (
    "Callable[[], Iterator[Mapping[str, np.ndarray]]]"  # the model's inputs, batch by batch, from the start
)


class Calibrating(Protocol):
    """Options of a technique that cuts ranges."""

    @property
    def calibrator(self) -> _activation_ranges.Calibrator: ...

    @property
    def percentile(self) -> float: ...


def calibrate(file: Path, items: Items, options: Calibrating, progress: Callable[[float], None]) -> Ranges:
    """The range of every activation: the extremes, or where a histogram between them is cut.

    One run over the items finds the extremes; all but "minmax" take a second one for histograms with fixed edges.
    Both add up item by item, so memory does not grow with the items and the order does not matter.
    Raises StageFailed: an input is not finite.
    """
    safe, own = safe_names.safe_copy(file)
    inputs = {old: new for new, old in own.items()}

    def named() -> Iterator[Mapping[str, np.ndarray]]:
        return ({inputs[name]: array for name, array in item.items()} for item in items())

    ranges = _extremes(safe, named)
    if not ranges:  # all of it is of whole numbers
        return {}
    name, (low, high) = next(iter(ranges.items()))
    if not is_finite((low, high)):
        raise StageFailed(f"int8: the input '{own[name]}' takes values from {low} to {high} on the calibration data")
    progress(0.4)
    if options.calibrator != "minmax":
        fine = {name: ends for name, ends in ranges.items() if is_finite(ends)}
        histograms = _histograms(safe, named, fine)
        progress(0.9)
        how, share = options.calibrator, options.percentile
        ranges |= {n: _activation_ranges.calibrated(how, counts, fine[n], share) for n, counts in histograms.items()}
    return {own[name]: ends for name, ends in ranges.items()}


def _extremes(file: Path, items: Items) -> Ranges:
    """The lowest and highest value of each tensor, reduced inside the graph by ONNX Runtime's own calibrator."""
    import onnx
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    augmented = str(file.with_name("augmented.onnx"))
    calibrator = create_calibrator(file, augmented_model_path=augmented, calibrate_method=CalibrationMethod.MinMax)
    for chunk in _chunks(items()):
        calibrator.collect_data(_CalibrationReader(chunk))  # folds the chunk into the ranges so far
    data, graph = calibrator.compute_data(), onnx.load_model(file).graph
    # from the inputs on: the first tensor that goes wrong is where it went wrong
    names = [value.name for value in graph.input] + [output for node in graph.node for output in node.output]
    return {n: (float(data[n].lowest.min()), float(data[n].highest.max())) for n in names if n in data}


def is_finite(ends: tuple[float, float]) -> bool:
    """Whether a range holds no infinity, NaN, or mask of the least float."""
    return all(abs(end) < HUGE for end in ends)


def _chunks(items: Iterator[Mapping[str, np.ndarray]]) -> Iterator[list[Mapping[str, np.ndarray]]]:
    while chunk := [item for _, item in zip(range(CHUNK), items, strict=False)]:
        yield chunk


class _CalibrationReader:
    """ONNX Runtime's way to be handed a list of inputs."""

    def __init__(self, items: Sequence[Mapping[str, np.ndarray]]) -> None:
        self.items = iter(items)

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return next(self.items, None)


def _histograms(file: Path, items: Items, extremes: Ranges) -> dict[str, np.ndarray]:
    """Counts of each tensor's values; the edges are known from the first run, so items just add up."""
    import numpy as np
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    augmented = str(file.with_name("augmented.onnx"))
    session = create_calibrator(
        file, augmented_model_path=augmented, calibrate_method=CalibrationMethod.Percentile
    ).infer_session
    counts = {name: np.zeros(_activation_ranges.BINS, np.int64) for name in extremes}
    names = [output.name for output in session.get_outputs() if output.name in extremes]
    for item in items():
        for name, values in zip(names, session.run(names, item), strict=True):
            counts[name] += _activation_ranges.histogram(values, extremes[name])
    return counts
