"""The self-test: the same four steps, under the same names, in every package.

files: what lies here has the sha256 that is compiled in; processing: the raw golden item becomes the golden input;
inference: the golden input becomes the golden output; labels: the best class has the label that it had.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.errors import CheckFailed, brief
from edgecompress.core.model import sha256_of
from edgecompress.core.package_contents import CARD, listed
from edgecompress.extras.apps import golden
from edgecompress.extras.apps.board_runner.predictor import PAYLOAD, Predictor, label

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.model_card import Card

    Array = np.ndarray


NOTHING = "nothing"  # where a detector finds none of its classes


class Step(TypedDict):
    """How a step ended."""

    step: str
    ok: bool
    detail: str


def steps(card: Card, root: Path, opened: Callable[[], Predictor]) -> Iterator[Step]:
    """Each step's outcome; what cannot be done fails. `opened` opens the model: no earlier than its files are right."""
    tests = {"files": files, "processing": processing, "inference": inference, "labels": labels}
    for name, test in tests.items():
        try:
            yield {"step": name, "ok": True, "detail": test(card, root / PAYLOAD, opened)}
        except Exception as error:  # whatever a damaged file makes a runtime raise: the step failed, and that is told
            message = brief(str(error))
            detail = message if isinstance(error, CheckFailed) else f"{type(error).__name__}: {message}"
            yield {"step": name, "ok": False, "detail": detail}
            if name == "files":
                return  # a changed file is not given to a runtime


def files(card: Card, payload: Path, opened: Callable[[], Predictor]) -> str:
    """Raises CheckFailed for the first file that is not the one that was packed."""
    expected = listed(card)
    for path, sha256 in expected.items():
        if not (payload / path).is_file():
            raise CheckFailed(f"{path} is missing")
        if sha256_of(payload / path) != sha256:
            raise CheckFailed(f"{path} is not the file that was packed (its sha256 differs)")
    beside = json.loads((payload / CARD).read_text(encoding="utf-8"))
    if beside != card:
        changed = [key for key in {**card, **beside} if card.get(key) != beside.get(key)]
        raise CheckFailed(f"{CARD}: {', '.join(sorted(changed))} differs from what is compiled in")
    return f"{len(expected)} files have the sha256 that is compiled in"


def processing(card: Card, payload: Path, opened: Callable[[], Predictor]) -> str:
    """Raises CheckFailed where the raw golden item does not become the golden input."""
    raw = card["golden"]["raw"]
    if raw is None or card["preprocess"] is None:
        return "the model declares no processing"
    model = opened()
    expected = {item["name"]: golden.load(payload, item) for item in card["golden"]["inputs"]}
    inputs = {**expected, raw["name"]: golden.load(payload, raw)}
    apart = golden.check_input(card, model.prepared(inputs)[raw["name"]], expected[raw["name"]])
    return f"the golden input, within {apart:.3g}"


def inference(card: Card, payload: Path, opened: Callable[[], Predictor]) -> str:
    """Raises CheckFailed where the golden input does not become the golden output."""
    farthest = golden.check_answers(card, answered(card, payload, opened()), payload)
    return f"the golden output, within {farthest:.3g} (relative RMS)"


def answered(card: Card, payload: Path, model: Predictor) -> dict[str, Array]:
    """The outputs for the golden input."""
    return model.run({item["name"]: golden.load(payload, item) for item in card["golden"]["inputs"]})


def labels(card: Card, payload: Path, opened: Callable[[], Predictor]) -> str:
    """Raises CheckFailed where the best class of the answer has another label than that of the golden answer."""
    task = card["postprocess"]["task"]
    if task == "raw":
        return "the model has no class labels"
    import numpy as np

    model, names = opened(), names_of(card, payload)
    expected = {item["name"]: golden.load(payload, item) for item in card["golden"]["outputs"]}
    sides = (answered(card, payload, model), expected)
    if task == "detect":
        found = [model.boxes(outputs, None).classes[:1].tolist() for outputs in sides]
        mine, golden_label = (label(names, best[0]) if best else NOTHING for best in found)
    elif task == "segment":
        masks = [model.mask(outputs, None) for outputs in sides]
        mine, golden_label = (label(names, int(np.bincount(mask.reshape(-1)).argmax())) for mask in masks)
    else:
        mine, golden_label = (label(names, model.best(outputs)[0]) for outputs in sides)
    if mine != golden_label:
        raise CheckFailed(f"the best class is {mine!r:.80}, but was {golden_label!r:.80} when packaged")
    return f"the best class is {mine!r:.80}"


def names_of(card: Card, payload: Path) -> list[str]:
    """The names of the classes, or none."""
    names = json.loads((payload / card["labels"]["file"]).read_text(encoding="utf-8"))
    return [str(name) for name in names]
