"""Static int8 of a torch program by PyTorch's own quantizer (PT2E): ranges of activations from real samples."""

from __future__ import annotations

import dataclasses
import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.techniques import _activation_ranges, _int8, _pt2e, _skipped_layers
from edgecompress.techniques._calibration import check_samples, spread, used

if TYPE_CHECKING:
    pass

REQUIRES = ("torch", "torchao", "executorch>=1.5")
EXTRA = "executorch"
READS: tuple[str, ...] = ("program",)
WRITES = "program"
PROVIDES = "int8"
NEEDS: tuple[str, ...] = ("samples",)

WEIGHTED = ("conv", "linear", "addmm")  # types of layers that are a module of their own


@dataclass(frozen=True)
class Options:
    """How the program is quantized."""

    quantizer: _pt2e.Quantizer = "xnnpack"  # whose kernels it is for: ExecuTorch's XNNPACK delegate, or LiteRT
    per_channel: bool = True  # of weights
    calibrator: Literal["minmax", "mse"] = "mse"  # the extremes, or torchao's histogram: the range of the least error
    samples: int | None = 512  # calibration items at most, evenly spread over the split; None is all
    # Modules kept in float, with what reads their outputs, as patterns of their names; or nodes of the graph
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_samples(self.samples)


promises = _int8.promises


def rungs(options: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less: torchao's other observer, and a scale for each channel where there is one for all."""
    finer: list[tuple[str, dict[str, Json]]] = (
        [] if options.get("per_channel", Options.per_channel) else [("per channel", {"per_channel": True})]
    )
    return _activation_ranges.rungs(options.get("calibrator", Options.calibrator), ("minmax", "mse")) + finer


def kept(options: Mapping[str, Json], layers: Sequence[_skipped_layers.SensitiveLayer]) -> dict[str, Json]:
    """The options with those layers of a diagnosis left in float: the module where it is the layer's own, or its node.

    What a module that holds others computes between them (the sum of a shortcut) is a node of the graph.
    """
    return _skipped_layers.skipping(options, (name for layer in layers if (name := _name(layer))))


def _name(layer: _skipped_layers.SensitiveLayer) -> str:
    own = layer["type"].startswith(WEIGHTED)
    return glob.escape(layer["module"]) if own and layer["module"] else layer["node"]


def apply(request: Request) -> Artifact:
    """The program in int8; inputs: "model", "samples" (the calibrate split); facts: {"samples": used}."""
    from torchao.quantization.pt2e.observer import MinMaxObserver

    options: Options = request.options
    library = _pt2e.library(options.quantizer)
    config = library.get_symmetric_quantization_config(is_per_channel=options.per_channel)
    if options.calibrator == "minmax":
        # activations with a range that is all that was seen
        observer = MinMaxObserver.with_args(eps=2**-12)
        spec = dataclasses.replace(config.input_activation, observer_or_fake_quant_ctr=observer)
        config = dataclasses.replace(config, input_activation=spec, output_activation=spec)
    batches = spread(request, options.samples)
    facts = _pt2e.quantized(request, _pt2e.made(library, config), batches, options.skip)
    return _pt2e.ends(request, {**facts, "samples": used(batches)})
