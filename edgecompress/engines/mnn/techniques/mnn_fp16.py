"""Half precision for MNN: weights of half the size, and arithmetic in fp16 on Arm CPUs that have it."""

from __future__ import annotations

from dataclasses import dataclass

from edgecompress.core.json import Json
from edgecompress.core.model import SETTINGS, Artifact, Promise, Request
from edgecompress.engines.mnn import convert, session
from edgecompress.techniques import _fp16_ranges
from edgecompress.techniques._calibration import inputs_of, spread, used

REQUIRES = ("mnn>=3.6",)
EXTRA = "mnn"
READS: tuple[str, ...] = ("mnn",)
WRITES = "mnn"
PROVIDES = "fp16"
NEEDS: tuple[str, ...] = ("samples",)


@dataclass(frozen=True)
class Options:
    """How near its end half precision may come: all of the net is in it, or nothing."""

    samples: int | None = 16  # calibration items at most, evenly spread over the split; None is all
    headroom: float = 4.0  # how many times larger than on the samples a number may get

    def __post_init__(self) -> None:
        _fp16_ranges.check(self.samples, self.headroom)


def promises(options: Options) -> Promise:
    """Half-precision weights; the CPU decides in what they are multiplied."""
    return Promise("fp16")


def apply(request: Request) -> Artifact:
    """The file with fp16 weights, opened with precision "low"; inputs: "model", "samples" (the calibrate split).

    facts: {"largest": {"tensor", "value"}, "samples"}; "lost" where an operator answers numbers that fp16 has not.
    """
    model, options = request.model, request.options
    convert.convert(model.file(".mnn"), "MNN", request.out, "--fp16")
    batches, peaks = spread(request, options.samples), dict[str, float]()
    full = session.MnnSession(model, threads=1)
    for batch in batches:
        for name, peak in full.peaks(inputs_of(request, batch)).items():
            peaks[name] = max(peak, peaks.get(name, 0.0))
    full.close()
    name = max(peaks, key=lambda each: peaks[each], default="")
    facts: dict[str, Json] = {
        SETTINGS: session.HALF,
        "largest": {"tensor": name, "value": peaks[name]} if name else {},
        "samples": used(batches),
    }
    if why := _fp16_ranges.too_large(peaks, options.headroom):
        facts["lost"] = why
    return Artifact(request.out, model.kind, model.inputs, model.outputs, facts).write()
