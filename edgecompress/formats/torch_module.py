"""A torch net on disk and in memory: its factory, its edits, its weights, and calls of it.

A "module" is MODULE, {"factory": "pkg.mod:fn", "edits": [...]}, beside STATE: nothing in it is unpickled or evaluated,
but to rebuild it the factory runs, which is the user's own code. In the factory's place may be GRAPH, an ONNX file
beside it, or the config.json of a Hugging Face folder.
"""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from edgecompress.core import extras, user_code
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.data import declared_ends, tensors
from edgecompress.formats import torch_edits, torch_outputs, torch_program

MODULE, STATE, PROGRAM, GRAPH = "module.json", "state.safetensors", "program.pt2", "graph.onnx"
PRETRAINED = "hugging-face:"  # with the task behind it, the factory of a Hugging Face folder: no name of a module
ON_CPU = "it needs a GPU: build it on the CPU, without .cuda() and with torch.load(..., map_location='cpu')"

if TYPE_CHECKING:
    import torch

Named: TypeAlias = "Mapping[str, torch.Tensor]"  # by the name of the input
Tree: TypeAlias = "dict[str, torch.Tensor | Tree]"


class _Card(TypedDict):
    """What MODULE holds."""

    factory: str
    edits: list[torch_edits.Edit]


# --------------------------------------------------------------------------- on disk


def factory(reference: str) -> torch.nn.Module:
    """The torch module that `pkg.mod:fn` builds, in eval mode; raises InputError with what the user's code raised."""
    import torch

    build = user_code.function(reference)
    try:
        net = build()
    except Exception as error:
        hint = ON_CPU if needs_gpu(error) else "run it in Python to debug it"
        raise InputError(f"{reference} raised {user_code.error_line(error)}; {hint}") from error
    if not isinstance(net, torch.nn.Module):
        raise InputError(f"{reference} returned a {type(net).__name__}; it must return a torch.nn.Module")
    with contextlib.suppress(Exception):  # of a module that cannot be copied
        net = copy.deepcopy(net)  # a factory may return the same one again, which what is done here must not change
    if empty := next((name for name, each in net.named_parameters() if torch.nn.parameter.is_lazy(each)), None):
        raise InputError(
            f"{reference}: weight '{empty}' of a lazy module has no numbers yet; call the net once on an example in "
            "its factory, and load its weights"
        )
    # What is a view (transposed, stepped, expanded) has memory of its own: no converter then reads it in another order,
    # and weights can be loaded into it. The tensor stays the same one, so what several modules share stays shared.
    held = [tensor for module in net.modules() for tensor in vars(module).values() if isinstance(tensor, torch.Tensor)]
    for tensor in (*net.parameters(), *net.buffers(), *held):
        if tensor.layout == torch.strided and not tensor.is_contiguous():
            tensor.data = tensor.detach().contiguous()
    return net.eval()


def needs_gpu(error: Exception) -> bool:
    """Whether a net raised it for want of a GPU, or because a part of it is on one."""
    return "CUDA" in str(error) or "on the same device" in str(error)


def rebuild(artifact: Artifact) -> torch.nn.Module:
    """The net of a "module" or "program" artifact, ready to run: call it through `outputs`."""

    if artifact.kind == "program":
        return torch_program.load(artifact.file(".pt2")).module()
    from safetensors.torch import load_file

    net = _unedited(artifact)
    torch_edits.apply(net, edits(artifact))
    net.load_state_dict(load_file(artifact.path / STATE))
    return net.eval()


def _unedited(artifact: Artifact) -> torch.nn.Module:
    """The net as its factory, its graph or its folder has it."""
    built_by = reference(artifact)
    if built_by.startswith(PRETRAINED):
        rebuilt: torch.nn.Module = extras.part("hugging_face", "nets").rebuilt(
            artifact.path, built_by.removeprefix(PRETRAINED)
        )
        return rebuilt
    if built_by != GRAPH:
        return factory(built_by)
    loaded: torch.nn.Module = extras.part("onnx_nets", "net").load(artifact.path / GRAPH)
    return loaded


def edits(artifact: Artifact) -> list[torch_edits.Edit]:
    """The edits made to the net of a "module" since its factory built it."""
    return list(_card(artifact)["edits"])


def reference(artifact: Artifact) -> str:
    """The factory of a "module", GRAPH, or a task after PRETRAINED."""
    return str(_card(artifact)["factory"])


def _card(artifact: Artifact) -> _Card:
    card: _Card = json.loads((artifact.path / MODULE).read_text(encoding="utf-8"))
    return card


def save(
    net: torch.nn.Module,
    request: Request,
    edits_made: Sequence[torch_edits.Edit],
    facts: Mapping[str, object] | None = None,
    factory_reference: str = "",
) -> Artifact:
    """`net` as the "module" in `request.out`: inputs, outputs and edits of the request's model, then `edits_made`.

    `factory_reference`: another factory's net, which has `edits_made` alone. Raises StageFailed for weights that are
    not finite: a technique broke them.
    """
    model = request.model
    built_by = factory_reference or reference(model)
    if why := unsound(net):
        raise StageFailed(f"{built_by}: {why}")
    if built_by == GRAPH:
        shutil.copyfile(model.path / GRAPH, request.out / GRAPH)
    if built_by.startswith(PRETRAINED):
        extras.part("hugging_face", "nets").keep(model.path, request.out)
    write(net, request.out, built_by, [*([] if factory_reference else edits(model)), *edits_made])
    return Artifact(request.out, "module", model.inputs, model.outputs, dict(facts or {})).write()


def write(net: torch.nn.Module, out: Path, factory_reference: str, edits_made: Sequence[torch_edits.Edit]) -> None:
    """MODULE and STATE of a net; a weight that it has under several names is written under each."""
    from safetensors.torch import save_file

    save_file({name: tensor.detach().clone().contiguous() for name, tensor in net.state_dict().items()}, out / STATE)
    card = {"factory": factory_reference, "edits": list(edits_made)}
    (out / MODULE).write_text(json.dumps(card, indent=1), encoding="utf-8")


def unsound(net: torch.nn.Module) -> str:
    """The first weight with NaN or infinite values, in words; or nothing."""
    import torch

    for name, tensor in net.state_dict().items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            nan, infinite = int(torch.isnan(tensor).sum()), int(torch.isinf(tensor).sum())
            return f"weight '{name}' holds {nan} NaN and {infinite} infinite values"
    return ""


# --------------------------------------------------------------------------- calls


def outputs(net: torch.nn.Module, artifact: Artifact, inputs: Named) -> dict[str, torch.Tensor]:
    """The outputs of `net` (of `rebuild`) by name, for tensors by the artifact's input names."""
    import torch

    names = [spec.name for spec in artifact.outputs]
    with torch.inference_mode():
        if artifact.kind == "program":
            return torch_outputs.flatten(
                torch_program.call(net, [inputs[spec.name] for spec in artifact.inputs]), names
            )
        return torch_outputs.flatten(call(net, inputs), names)


def call(net: torch.nn.Module, named: Named) -> torch_outputs.Nested:
    """forward(**named), dotted names put back together: "state.h" is the "h" of the dictionary "state"."""
    return net(**(named if getattr(net, "flat_names", False) else _nested(named)))


def _nested(named: Named) -> dict[str, torch_outputs.Nested]:
    tree: Tree = {}
    for name, tensor in named.items():
        *path, last = name.split(".")
        place = tree
        for word in path:
            place = place.setdefault(word, {})
        place[last] = tensor
    return {name: _tuples(part) for name, part in tree.items()}


def _tuples(part: torch.Tensor | Tree) -> torch_outputs.Nested:
    """Dictionaries whose keys are 0, 1, 2, ... are tuples."""
    if not isinstance(part, dict):
        return part
    parts = {key: _tuples(value) for key, value in part.items()}
    return tuple(parts.values()) if list(parts) == [str(i) for i in range(len(parts))] else parts


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """Attention as the operations that it is made of: its fused kernel hides its products, and passes layers by."""
    import torch

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def flat(net: torch.nn.Module, names: Sequence[str], outputs: Sequence[str]) -> torch.nn.Module:
    """`net` with a flat signature: tensors in the order of `names` in, a tuple in the order of `outputs` out."""
    import torch

    class FlatNet(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(torch_outputs.flatten(call(self.net, dict(zip(names, inputs, strict=True))), outputs).values())

    return FlatNet().eval()


def settled(net: torch.nn.Module, inside: Mapping[int, object]) -> torch.nn.Module:
    """`net`, of a program, with the values of some of its inputs inside: the others in, a tuple of tensors out."""
    import torch

    class SettledNet(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given = iter(inputs)
            leaves = [inside[i] if i in inside else next(given) for i in range(len(inputs) + len(inside))]
            return tuple(torch_outputs.flatten(torch_program.call(self.net, leaves)).values())

    return SettledNet()


def constant(name: str, value: object, like: object, where: str) -> object:
    """An input's value as a program takes it: a tensor where it takes one, else the value itself."""
    import torch

    if not isinstance(like, torch.Tensor):
        return value
    shape = [size if isinstance(size, int) else 1 for size in like.shape]
    return torch.from_numpy(declared_ends.constant(name, value, str(like.dtype).removeprefix("torch."), shape, where))


def example(model: Artifact, samples: Artifact, batch: int) -> dict[str, torch.Tensor]:
    """The first `batch` items of the data as torch tensors by the model's input names; too few are repeated."""
    import torch

    splits = [split for split, n in samples.facts["splits"].items() if n]
    if not splits:
        raise InputError("the data contains no items in any split; check what its function returns")
    first = next(tensors.batches(samples, splits[0], batch, model=model))
    return {spec.name: torch.from_numpy(first[spec.name]) for spec in model.inputs}
