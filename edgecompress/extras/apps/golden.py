"""Golden items: one test item as raw little-endian numbers, and the distance of an output from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgecompress.core.errors import CheckFailed, InputError
from edgecompress.core.model import Artifact, TensorSpec, sha256_of
from edgecompress.data import states, tensors
from edgecompress.data.shipped_items import ANSWERS

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.model_card import Card, Golden, Item, Processing

    Array = np.ndarray

FOLDER = "golden"
RAW = "raw"  # the folder of an excerpt that holds the first test item as the user gave it
SPLIT: Literal["test"] = "test"  # the folders of an excerpt
SOURCE = "golden"
TOLERANCE = 0.05  # relative RMS of each output, on any device
PROCESSING: Processing = {
    "float": 1e-6,
    "int8": 1,
}  # of an input that is processed elsewhere: of its largest number, and steps


def write(artifact: Artifact, excerpt: Artifact, verdict: Artifact | None, payload: Path) -> Golden:
    """Writes golden/raw.bin, golden/input-N.bin and golden/output-N.bin into `payload`; what the card says of them.

    Inputs are as the model takes them (quantized where it wants that; a state that an output feeds starts at zero),
    batch 1. Outputs are what this artifact answered when it was verified, in real numbers also where it quantizes them;
    one that feeds an input has none. Raises InputError for an excerpt without what it takes.
    """
    import numpy as np

    (payload / FOLDER).mkdir()
    state = states.names(artifact)
    taken = {name: stored for name, stored in tensors.check_inputs(artifact, excerpt).items() if name not in state}
    inputs = [(spec.name, _input(spec, excerpt, taken)) for spec in artifact.inputs]
    answered = [
        (spec.name, np.ascontiguousarray(states.joined(_answer(spec.name, artifact, excerpt, verdict), spec)))
        for spec in artifact.outputs
        if not spec.feeds
    ]
    raw = _raw(excerpt)
    name = {stored: of_model for of_model, stored in taken.items()}
    return {
        "raw": _item(payload, "raw", name.get(raw[0], raw[0]), raw[1]) if raw else None,
        "inputs": [_item(payload, f"input-{i}", *named_array) for i, named_array in enumerate(inputs)],
        "outputs": [_item(payload, f"output-{i}", *named_array) for i, named_array in enumerate(answered)],
        "tolerance": TOLERANCE,
        "processing": PROCESSING,
    }


def _input(spec: TensorSpec, excerpt: Artifact, taken: Mapping[str, str]) -> Array:
    import numpy as np

    if spec.name not in taken:
        return states.zero(spec)
    item = np.ascontiguousarray(states.joined(tensors.load(excerpt, SPLIT, taken[spec.name])[:1], spec))
    if item.shape != (shape := spec.concrete()):
        raise InputError(
            f"input '{spec.name}': the model takes {list(shape)}, one item is {list(item.shape)}: its batch is not "
            "1; deploy it again with --batch 1"
        )
    return tensors.fitted(item, spec)


def _answer(name: str, artifact: Artifact, excerpt: Artifact, verdict: Artifact | None) -> Array:
    """What the artifact answered to the first item; what its source did, where nobody kept that."""
    if verdict is not None and tensors.file_of(verdict.path / ANSWERS, name).is_file():
        return tensors.load(verdict, ANSWERS, name)[:1]
    own = [spec.name for spec in artifact.outputs if not spec.feeds]
    theirs = [spec.name for spec in excerpt.outputs]
    if name in theirs or len(own) == len(theirs):
        stored = name if name in theirs else theirs[own.index(name)]
        return tensors.load(excerpt, SOURCE, stored)[:1]
    raise InputError(f"{excerpt.path}: no golden answer for the output '{name}'; deploy again")


def _raw(excerpt: Artifact) -> tuple[str, Array] | None:
    """The first test item as it came, and the input that it becomes."""
    import numpy as np

    files = sorted((excerpt.path / RAW).glob("*.npy"))
    if not files:
        return None
    name = tensors.name_of(files[0])
    return name, np.ascontiguousarray(tensors.load(excerpt, RAW, name))


def _item(payload: Path, stem: str, name: str, array: Array) -> Item:
    file = f"{FOLDER}/{stem}.bin"
    (payload / file).write_bytes(array.astype(array.dtype.newbyteorder("<")).tobytes())
    shape = [int(size) for size in array.shape]
    return {"name": name, "file": file, "shape": shape, "dtype": str(array.dtype), "sha256": sha256_of(payload / file)}


def load(payload: Path, item: Item) -> Array:
    """The numbers of one golden item. Raises InputError where the file does not hold as many."""
    import numpy as np

    file = payload / item["file"]
    dtype = np.dtype(item["dtype"]).newbyteorder("<")
    count = math.prod(item["shape"])
    if not file.is_file() or file.stat().st_size != count * dtype.itemsize:
        raise InputError(
            f"{item['file']}: is missing, or does not contain the {count} {item['dtype']} values that the card declares"
        )
    return np.fromfile(file, dtype).astype(item["dtype"]).reshape(item["shape"])


def check_input(card: Card, processed: Array, golden: Array) -> float:
    """How far a processed input is from the golden one. Raises CheckFailed where that is more than the card allows."""
    import numpy as np

    if processed.shape != golden.shape or processed.dtype != golden.dtype:
        raise CheckFailed(
            f"processing gives {processed.dtype} {list(processed.shape)}, not {golden.dtype} {list(golden.shape)}"
        )
    apart = float(np.abs(processed.astype(np.float64) - golden.astype(np.float64)).max(initial=0.0))
    limits, whole = card["golden"]["processing"], golden.dtype.kind in "iu"
    limit, size = (
        limits["int8"] if whole else limits["float"],
        float(np.abs(golden.astype(np.float64)).max(initial=0.0)),
    )
    if not apart <= limit * (1.0 if whole else size or 1.0):  # NaN is no small number
        of = "" if whole else " of its largest number"
        raise CheckFailed(f"the processed raw item is {apart:.3g} from the golden input, limit {limit:g}{of}")
    return apart


def check_answers(card: Card, answers: Mapping[str, Array], payload: Path) -> float:
    """How far the farthest output is from its golden value (relative RMS). Raises CheckFailed beyond the tolerance."""
    limit, farthest = card["golden"]["tolerance"], 0.0
    for item in card["golden"]["outputs"]:
        apart = distance(load(payload, item), answers[item["name"]])
        if not apart <= limit:
            name = ascii(item["name"])[:80]
            raise CheckFailed(f"output {name} is {apart:.3g} (relative RMS) from its golden value, limit {limit:g}")
        farthest = max(farthest, apart)
    return farthest


def distance(golden: Array, answer: Array) -> float:
    """Relative RMS error of an output; infinite if its shape differs or it is not finite."""
    import numpy as np

    with np.errstate(invalid="ignore"):  # NaN of any kind is looked for below
        old, new = (np.asarray(a).astype(np.float64) for a in (golden, answer))
    if old.shape != new.shape or not np.isfinite(new).all():
        return math.inf
    moved, size = (float(np.sqrt(np.square(x).sum())) for x in (new - old, old))
    return moved / size if size else math.inf if moved else 0.0
