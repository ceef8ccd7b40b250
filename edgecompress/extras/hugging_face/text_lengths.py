"""An artifact that takes texts of several lengths: each item that is shorter is run at its own length, too."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact, Check, Dim, Request
from edgecompress.core.protocols import Shell
from edgecompress.core.source import LENGTHS, MASK
from edgecompress.data import tensors
from edgecompress.device import agent_client
from edgecompress.device.request import AgentRequest
from edgecompress.extras.hugging_face.source import LENGTH

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Asked:
    """The request to an agent for the outputs of a split, and how long it may take."""

    shell: Shell
    agent: AgentRequest
    deadline_s: float


def run(request: Request, asked: Asked, outputs: Path) -> Iterator[Check]:
    """Puts the outputs of shorter items, run at the least length that holds them, in the place of those in `outputs`.

    Of an output for each token those behind that length, which are of no token, stay. Yields a check for each length.
    """
    import numpy as np

    samples, split = request.inputs["samples"], asked.agent.split
    lengths = samples.facts[LENGTHS]
    if not any(isinstance(dim, Dim) and dim.name == LENGTH for spec in request.model.inputs for dim in spec.shape):
        says = f"Its file has one shape, so all texts are filled up to {lengths[-1]} tokens; for shorter ones deploy "
        yield Check(LENGTHS, None, None, None, f"{says}again with length = {lengths[0]}")
        return
    own = tensors.load(samples, split, MASK).sum(axis=1)
    for least, most in pairwise((0, *lengths)):
        chosen = np.flatnonzero((own > least) & (own <= most))
        if not len(chosen):
            says = f"Not verified at a length of {most}: no text of the test items has {least + 1} to {most} tokens"
            yield Check(f"{LENGTH}_{most}", None, None, None, says)
            continue
        if most < lengths[-1]:
            _rerun(samples, asked, chosen, (most, outputs))
        yield Check(f"{LENGTH}_{most}", True, len(chosen), None, f"{len(chosen)} texts were run at a length of {most}")


def _rerun(samples: Artifact, asked: Asked, chosen: np.ndarray, where: tuple[int, Path]) -> None:
    import numpy as np

    length, outputs = where
    split = asked.agent.split
    with tempfile.TemporaryDirectory(dir=outputs.parent) as folder, tempfile.TemporaryDirectory(dir=folder) as out:
        cut = {s.name: tensors.load(samples, split, s.name)[chosen][:, :length] for s in samples.inputs}
        tensors.write_split(Path(folder) / "cut" / split, cut)
        specs = tuple(replace(s, shape=(s.shape[0], length)) for s in samples.inputs)
        fed = Artifact(Path(folder) / "cut", "samples", specs).write()
        agent_client.ask(asked.shell, replace(asked.agent, samples=str(fed.path)), Path(out), asked.deadline_s)
        for file in (outputs / split).glob("*.npy"):
            whole = np.load(file, mmap_mode="r+", allow_pickle=False)
            short = np.load(Path(out) / split / file.name, mmap_mode="r", allow_pickle=False)
            if short.shape[1:] == whole.shape[1:]:
                whole[chosen] = short
            else:
                whole[chosen, :length] = short
            whole.flush()
