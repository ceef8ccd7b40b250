"""Samples of a net with state: what it is before each item, so that whatever reads the samples sees real states."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.model import CARD, Artifact, Dim, Request, TensorSpec
from edgecompress.data import states, tensors
from edgecompress.stages import golden

if TYPE_CHECKING:
    import numpy as np

RETRY = "its state does not hold over a sequence: give a shorter one (sequence), or check the model and its data"


def run(request: Request) -> Artifact:
    """The stage: {"model": the source, "items": samples} -> "samples": the items, and SPLIT/STATE.npy of each state.

    options: "sequence", the items of a sequence, or None: each split is one. Raises InputError where a state gets NaN.
    """
    model, items = request.model, request.inputs["items"]
    splits = {split: count for split, count in items.facts["splits"].items() if count}
    length = request.options["sequence"] or max(splits.values())
    specs = [spec for spec in model.inputs if spec.name in states.names(model)]
    shutil.copytree(items.path, request.out, ignore=shutil.ignore_patterns(CARD), dirs_exist_ok=True)
    infer, size = golden.opened(model, request.context.threads), model.batch
    made: dict[str, TensorSpec] = {}
    for split, count in splits.items():
        writer = tensors.Appender(request.out / split)
        calls = tensors.batches(items, split, size if isinstance(size, int) else size.min, model=model, step=1)
        for call, _ in states.steps(infer, calls, model, length):
            row = {spec.name: _first(call[spec.name], spec, f"{split}, item {writer.count}") for spec in specs}
            writer.append(row)
            made = {n: TensorSpec(n, (Dim("batch", 1, count), *a.shape[1:]), str(a.dtype)) for n, a in row.items()}
            request.progress(writer.count / count, f"{split}: state before {writer.count} of {count}")
        writer.close()
    facts = {**items.facts, states.SEQUENCE: length}
    given = [spec for spec in items.inputs if spec.name not in made]
    return Artifact(request.out, "samples", (*given, *made.values()), facts=facts).write()


def _first(array: np.ndarray, spec: TensorSpec, where: str) -> np.ndarray:
    """The state of the first item of a call, in real numbers, items on axis 0."""
    import numpy as np

    state = tensors.real(states.parted(array, spec)[:1], spec)
    if state.dtype.kind == "f" and not np.isfinite(state).all():
        raise InputError(f"{where}: the source's state '{spec.name}' is NaN or infinite; {RETRY}")
    return state
