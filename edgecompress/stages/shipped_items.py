"""The excerpt: the first test items with the source's outputs, shipped so that devices and apps check themselves."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.core.package_contents import TOKENS
from edgecompress.data import states, tensors

if TYPE_CHECKING:
    import numpy as np

REQUIRES = ("numpy",)
SPLIT = "test"
RAW = "raw"  # the folder of the first item as it came, where it is preprocessed
EXPECTED = "golden"  # the folder of the outputs, beside the split's


def run(request: Request) -> Artifact:
    """The first options["items"] test items: SPLIT/INPUT.npy, golden/OUTPUT.npy, raw/INPUT.npy, tokenizer/."""
    samples, golden = request.inputs["samples"], request.inputs["golden"]
    items = int(request.options["items"])
    tensors.write_split(request.out / SPLIT, _first(samples, samples.inputs, items))
    tensors.write_split(request.out / EXPECTED, _first(golden, golden.outputs, items))
    for folder in (RAW, TOKENS):
        if (samples.path / folder).is_dir():
            shutil.copytree(samples.path / folder, request.out / folder)
    facts = {"splits": {SPLIT: min(items, tensors.count(samples, SPLIT))}}
    facts |= {key: samples.facts[key] for key in (states.SEQUENCE,) if key in samples.facts}
    return Artifact(request.out, "excerpt", samples.inputs, golden.outputs, facts).write()


def _first(artifact: Artifact, specs: Iterable[TensorSpec], items: int) -> dict[str, np.ndarray]:
    return {spec.name: tensors.load(artifact, SPLIT, spec.name)[:items] for spec in specs}
