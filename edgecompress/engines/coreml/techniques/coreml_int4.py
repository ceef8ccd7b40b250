"""Int4 weights in Core ML, in groups with a scale each; arithmetic stays in the precision of the program."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgecompress.core.json import Json
from edgecompress.core.model import CARD, Artifact, Promise, Request
from edgecompress.core.settings import Knob
from edgecompress.engines.coreml import compression, convert
from edgecompress.techniques import _skipped_layers, _weights_only

if TYPE_CHECKING:
    from coremltools.models import MLModel

REQUIRES = ("coremltools",)
EXTRA = "coreml"
READS: tuple[str, ...] = ("mlpackage",)
WRITES = "mlpackage"
PROVIDES = "int4"
NEEDS: tuple[str, ...] = ()
PREPARED = False
KNOBS = {"group": Knob(choices=(32, 64, 128))}

IOS18 = 9  # the version of a specification since which weights have scales by groups
OLDER = "int4 needs a package for iOS 18; add to the variant: export = { minimum_os = 'iOS18' }"


@dataclass(frozen=True)
class Options:
    """How weights are rounded, and which. The package must be exported for iOS18 (minimum_os)."""

    group: Literal[32, 64, 128] = 32  # numbers along the inputs that share a scale
    symmetric: bool = True  # no zero points
    min_size: int = 2048  # weights of fewer numbers stay as they are
    skip: tuple[str, ...] = ()  # operators or weights left as they are, as patterns of their names
    int8: tuple[str, ...] = ()  # those with 8 bits, a scale for each output channel


def promises(_: Options) -> Promise:
    """Weights of 4 bits."""
    return _weights_only.promise(4)


def kept(options: Mapping[str, Json], layers: Sequence[_skipped_layers.SensitiveLayer]) -> dict[str, Json]:
    """The options with these layers of a diagnosis in 8 bits."""
    return _skipped_layers.skipping(options, (compression.plain(layer["operator"]) for layer in layers), "int8")


def apply(request: Request) -> Artifact:
    """The package with int4 weights; inputs: "model"; facts: {"compressed": weights}; "lost" before iOS 18."""
    model = request.model
    if convert.opened(model.path / convert.FILE).get_spec().specificationVersion < IOS18:
        shutil.copytree(model.path, request.out, ignore=shutil.ignore_patterns(CARD), dirs_exist_ok=True)
        return Artifact(request.out, WRITES, model.inputs, model.outputs, {"lost": OLDER}).write()
    return compression.compressed(request, "coreml_int4", lambda model, kept: _quantized(model, kept, request.options))


def _quantized(model: MLModel, kept: Collection[str], options: Options) -> MLModel:
    convert.coremltools()
    import coremltools.optimize as cto

    mode = "linear_symmetric" if options.symmetric else "linear"
    least = {"weight_threshold": options.min_size}
    groups = {"granularity": "per_block", "block_size": options.group}
    how = cto.coreml.OpLinearQuantizerConfig(mode=mode, dtype="int4", **groups, **least)
    eight = cto.coreml.OpLinearQuantizerConfig(mode="linear_symmetric", **least)
    named = dict.fromkeys(compression.weights(model, options.int8), eight) | dict.fromkeys(kept)
    return cto.coreml.linear_quantize_weights(model, cto.coreml.OptimizationConfig(how, op_name_configs=named))
