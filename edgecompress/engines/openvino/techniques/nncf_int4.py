"""Weights of 4 bits for OpenVINO by NNCF; activations stay in float."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.core.settings import Knob
from edgecompress.engines.openvino import weights_only
from edgecompress.techniques import _skipped_layers, _weights_only

REQUIRES = ("openvino", "nncf")
EXTRA = "openvino"
READS: tuple[str, ...] = ("openvino",)
WRITES = "openvino"
PROVIDES = "int4"
NEEDS: tuple[str, ...] = ("samples",)
PREPARED = False
KNOBS = {"group": Knob(choices=(32, 64, 128))}

BITS = 4
METHODS = ("scale_estimation", "awq", "gptq")


@dataclass(frozen=True)
class Options(_weights_only.FourBits):
    """How weights are rounded, and which."""

    # gptq and awq as for the other runtimes; scale_estimation: scales of the least error of what the layer answers
    method: Literal["nearest", "scale_estimation", "awq", "gptq"] = "nearest"  # type: ignore[assignment]  # all but nearest fit the weights to calibration items


def rungs(options: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less."""
    return _weights_only.rungs(options, METHODS)


def promises(_: Options) -> Promise:
    """Weights of 4 bits."""
    return _weights_only.promise(BITS)


kept = partial(_skipped_layers.kept_as_expressions, option="int8")
FINER = {8: kept, 32: _skipped_layers.kept_as_expressions}
goal = _weights_only.goal


def apply(request: Request) -> Artifact:
    """See `weights_only.apply`."""
    return weights_only.apply(request, BITS)
