"""The packaged model on a board: from a user's input to an app's result."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import TensorSpec
from edgecompress.core.package_contents import artifact
from edgecompress.core.settings import Preprocess, Spectrogram
from edgecompress.data import detection_layout, preprocess, segments, states, tensors

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.model_card import Card
    from edgecompress.data.found_boxes import Detections

    Array = np.ndarray

PIXELS = 1 << 26  # of a resized picture
PAYLOAD = "payload"  # beside run.pyz: model/, golden/, labels.json, model_card.json


def declared(card: Card) -> Preprocess | None:
    """The preprocessing that the card declares."""
    how = card["preprocess"]
    if how is None:
        return None
    audio = Spectrogram(**how["spectrogram"]) if how["spectrogram"] else None
    told: dict[str, Any] = {**how, "mean": tuple(how["mean"]), "std": tuple(how["std"]), "spectrogram": audio}
    return Preprocess(**told)


class Predictor:
    """The model below `root`, opened by the runtime `module`. `card` is the one compiled in, not the one in a file.

    One item at a time: whoever comes second waits.
    """

    def __init__(self, card: Card, module: str, root: Path, threads: int = 1) -> None:
        self.card, self.root, self.threads = card, root, threads
        self.declared = declared(card)
        model = artifact(card, root / PAYLOAD)
        self.inputs, self.outputs = model.inputs, model.outputs
        self.session = importlib.import_module(module).open(model, threads)
        self._lock = threading.Lock()

    @property
    def user_inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs that a user gives: not those that an output feeds, which start at zero."""
        state = {spec.feeds for spec in self.outputs}
        return tuple(spec for spec in self.inputs if spec.name not in state)

    def processed(self, raw: Array) -> Array:
        """One raw item, a picture [H, W, 3] or a clip, as the input that [preprocess] makes of it, batch 1."""
        assert self.declared  # whoever asks has looked
        check_size(raw.shape, self.declared)
        return preprocess.numbers(preprocess.geometry(raw, self.declared)[None], self.declared)

    def prepared(self, arrays: Mapping[str, Array], ready: bool = False) -> dict[str, Array]:
        """One item by the names of the inputs as the model takes it; `ready`: nothing is to be processed any more.

        Raises InputError for a name, a shape or a type that is not the model's, and for NaN.
        """
        return {spec.name: self._input(spec, arrays, ready) for spec in self.user_inputs}

    def _input(self, spec: TensorSpec, arrays: Mapping[str, Array], ready: bool) -> Array:
        if spec.name not in arrays:
            raise InputError(f"the model takes {', '.join(s.name for s in self.user_inputs)}; '{spec.name}' is missing")
        array = arrays[spec.name]
        if self.declared and not ready and spec.name == self.declared.input:
            array = self.processed(array)
        return _fitted(array, spec)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Every output in real numbers; inputs that are not given (state) are zero."""
        import numpy as np

        zero = {s.name: states.zero(s) for s in self.inputs if s.name not in inputs}
        with self._lock:
            outputs = self.session.run({**inputs, **zero})
            return {s.name: tensors.real(np.array(outputs[s.name]), s) for s in self.outputs if not s.feeds}

    def best(self, outputs: Mapping[str, Array]) -> list[int]:
        """The classes with the highest scores, the best first."""
        import numpy as np

        how = self.card["postprocess"]
        scores = outputs[how["output"]].reshape(-1).astype(np.float64)
        return [int(i) for i in np.argsort(-scores, kind="stable")[: how["top_k"]]]

    def boxes(self, outputs: Mapping[str, Array], picture: tuple[int, int] | None) -> Detections:
        """What a detector finds, the best first, in pixels of the user's picture of that height and width."""
        how: dict[str, Any] = {**self.card["postprocess"]["detect"]}
        size = how.pop("size")
        layout = detection_layout.Layout.read(how)
        found = next(layout.found(outputs, slice(0, 1), layout.least))
        return detection_layout.in_picture(found, layout, size, picture, self.declared)

    def mask(self, outputs: Mapping[str, Array], picture: tuple[int, int] | None) -> Array:
        """The class of each pixel of the user's picture of that height and width, uint8; 255: the model saw none of it.

        Without a picture: of each cell of the output.
        """
        task = self.card["postprocess"]
        how = task["segment"]
        cells = segments.regions(outputs[task["output"]], how["axis"], how["single"])
        size = how["size"][0], how["size"][1]
        return segments.in_picture(cells, size, picture, self.declared) if picture else cells

    def answer(
        self, outputs: Mapping[str, Array], labels: list[str], picture: tuple[int, int] | None = None
    ) -> dict[str, object]:
        """What is told as JSON.

        {"classes": [{"index", "label", "probability"}]}, {"detections": [{"index", "label", "probability", "box"}]}
        with x1, y1, x2, y2 in pixels of the user's `picture`, whose height and width are given, and with "points" where
        there are any, {"regions": [{"index", "label", "share"}]} of the pixels, the largest first, or {"outputs":
        {name: numbers}}.
        """
        import numpy as np

        if not all(np.isfinite(array).all() for array in outputs.values() if array.dtype.kind == "f"):
            raise StageFailed("the model returned NaN or infinite values; run the self-test")
        how = self.card["postprocess"]
        if how["task"] == "detect":
            found = self.boxes(outputs, picture)
            each = (found.classes, found.scores, found.corners, found.points)
            return {
                "detections": [
                    {"index": i, "label": label(labels, i), "probability": score, "box": corners}
                    | ({"points": points} if points else {})
                    for i, score, corners, points in zip(*(a.tolist() for a in each), strict=True)
                ]
            }
        if how["task"] == "segment":
            counts = np.bincount(self.mask(outputs, picture).reshape(-1), minlength=segments.UNSEEN + 1)
            shares = counts / counts.sum()
            order = np.argsort(-shares[: segments.UNSEEN], kind="stable")
            seen = [int(i) for i in order if counts[i]]
            return {"regions": [{"index": i, "label": label(labels, i), "share": float(shares[i])} for i in seen]}
        if how["task"] != "classify":
            return {"outputs": {name: array.tolist() for name, array in outputs.items()}}
        scores = outputs[how["output"]].reshape(-1).astype(np.float64)
        shares = scores if how["probabilities"] else _softmax(scores)
        best = self.best(outputs)
        return {"classes": [{"index": i, "label": label(labels, i), "probability": float(shares[i])} for i in best]}


def label(labels: list[str], index: int) -> str:
    """The name of a class; its number, where it has none."""
    return labels[index] if 0 <= index < len(labels) else str(index)


def check_size(shape: tuple[int, ...], how: Preprocess) -> None:
    """Raises InputError for a picture that is empty, or so narrow that it would be huge once it is resized."""
    if 0 in shape:
        raise InputError(f"the input is empty: its shape is {list(shape)}")
    if how.resize and len(shape) > 1 and how.resize**2 * max(shape[:2]) > PIXELS * min(shape[:2]):
        size = f"{shape[1]} x {shape[0]}"
        raise InputError(
            f"an image of {size}: too narrow to resize its shorter side to {how.resize}: more pixels than 2^26"
        )


def _softmax(scores: Array) -> Array:
    import numpy as np

    powers = np.exp(scores - scores.max())
    shares: Array = powers / powers.sum()
    return shares


def _fitted(array: Array, spec: TensorSpec) -> Array:
    """An array with a batch of 1 and the dtype of its input."""
    import numpy as np

    shape = spec.concrete()
    item = array[None] if array.shape == shape[1:] else array
    if item.shape != shape:
        raise InputError(f"input '{spec.name}': must have shape {list(shape)}, but has {list(array.shape)}")
    if item.dtype.kind == "f" and not np.isfinite(item).all():
        raise InputError(f"input '{spec.name}': holds NaN or infinite values")
    kind = "float32" if spec.quantization and item.dtype.kind == "f" else spec.dtype
    if str(item.dtype) not in (kind, spec.dtype) and not np.can_cast(item.dtype, kind, "same_kind"):
        raise InputError(f"input '{spec.name}': must be {spec.dtype}, but is {item.dtype}")
    narrowed = np.ascontiguousarray(item.astype(kind))
    if item.dtype.kind in "iu" and (narrowed != item).any():
        raise InputError(f"input '{spec.name}': a value is out of range for {kind}")
    return tensors.fitted(narrowed, spec)
