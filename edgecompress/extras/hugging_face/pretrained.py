"""A Hugging Face folder becomes a torch "module"."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import source as sources
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.extras.hugging_face import nets, pretrained_folder
from edgecompress.formats import torch_module
from edgecompress.stages import trace

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch", "safetensors", "transformers>=5.4")
EXTRA = "transformers"


def load(request: Request) -> Artifact:
    """The folder as a "module"; input: "samples". options: "source", as those of `trace.load`, and its "task".

    Raises InputError for a folder that is not whole, and for a net that does not take the samples.
    """
    source = sources.read(request.options)
    folder = Path(source.model)
    task = pretrained_folder.task(folder, source.task)
    net = nets.load(folder, task)
    if why := torch_module.unsound(net):
        raise InputError(f"{folder}: {why}; train or save it again")
    draft = Artifact(request.out, "module", *trace.module_specs(net, request, source))
    nets.check_mask(net, _extremes(draft, request.inputs["samples"]), folder)
    nets.keep(folder, request.out)
    torch_module.write(net, request.out, torch_module.PRETRAINED + task, [])
    return draft.write()


def _extremes(model: Artifact, samples: Artifact) -> dict[str, torch.Tensor]:
    """The longest and the shortest text of the data by the model's input names; the first item where it is no text."""
    import numpy as np
    import torch

    split = next(split for split, n in samples.facts["splits"].items() if n)
    names, chosen = tensors.check_inputs(model, samples), np.zeros(2, np.int64)
    if sources.MASK in names:
        lengths = tensors.load(samples, split, names[sources.MASK]).sum(axis=1)
        chosen = np.array([lengths.argmax(), lengths.argmin()])
    items = {name: tensors.load(samples, split, stored)[chosen] for name, stored in names.items()}
    return {name: torch.from_numpy(array) for name, array in tensors.taken(model, items).items()}
