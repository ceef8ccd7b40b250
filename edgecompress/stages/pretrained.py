"""A Hugging Face folder becomes a torch "module"."""

from __future__ import annotations

from pathlib import Path

from edgecompress.core import pretrained_folder
from edgecompress.core import source as sources
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import hugging_face, torch_module
from edgecompress.stages import trace

REQUIRES = ("torch", "safetensors", "transformers>=5")
EXTRA = "transformers"

ITEMS = 2  # that the net's mask is checked with


def load(request: Request) -> Artifact:
    """The folder as a "module"; input: "samples". options: "source", as those of `trace.load`, and its "task".

    Raises InputError for a folder that is not whole, and for a net that does not take the samples.
    """
    source = sources.read(request.options)
    folder = Path(source.model)
    task = pretrained_folder.task(folder, source.task)
    net = hugging_face.load(folder, task)
    if why := torch_module.unsound(net):
        raise InputError(f"{folder}: {why}; train or save it again")
    draft = Artifact(request.out, "module", *trace.module_specs(net, request, source))
    example = torch_module.example(draft, request.inputs["samples"], ITEMS)
    hugging_face.check_mask(net, example, folder)
    hugging_face.keep(folder, request.out)
    torch_module.write(net, request.out, hugging_face.REFERENCE + task, [])
    return draft.write()
