"""The raw head of a stranger's .onnx file becomes boxes: the operators of box_heads behind its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgecompress.core import config
from edgecompress.core.json import Json
from edgecompress.core.model import TensorSpec
from edgecompress.core.settings import Decode
from edgecompress.data import channel_axis
from edgecompress.formats import box_heads

if TYPE_CHECKING:
    import onnx
    import onnxruntime


def put(
    proto: onnx.ModelProto, how: Mapping[str, Any], session: onnxruntime.InferenceSession, inputs: Sequence[TensorSpec]
) -> tuple[dict[str, Json], list[str]]:
    """Changes the model as a table of settings.Decode says; `session`: the model opened, which is run on noise.

    Returns how its boxes are read (of settings.Detect), and what is told. Raises InputError for outputs that do not
    fit.
    """
    import numpy as np

    noise = np.random.default_rng(0)
    answers = session.run(None, {s.name: noise.uniform(0, 1, s.concrete()).astype(s.dtype) for s in inputs})
    raw = dict(zip((v.name for v in session.get_outputs()), answers, strict=True))
    decode, told = box_heads.settled(config.build(Decode, how, "decode"), raw)
    shapes = {name: array.shape for name, array in raw.items()}
    box_heads.onto(proto, decode, shapes, channel_axis.picture(spec.concrete() for spec in inputs))
    return box_heads.detect(decode), told
