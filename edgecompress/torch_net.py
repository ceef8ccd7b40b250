"""A torch net on disk and in memory: its factory, the edits made to it since, its weights; and how it is called.

A "module" is MODULE, {"factory": "pkg.mod:fn", "edits": [...]}, beside STATE: nothing in it is unpickled or evaluated,
but to rebuild it the factory runs, which is the user's own code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgecompress import tensors, torch_edits
from edgecompress.errors import InputError, StageFailed
from edgecompress.model import Artifact, Request
from edgecompress.stages import usercode

MODULE, STATE, PROGRAM = "module.json", "state.safetensors", "program.pt2"

Named = Mapping[str, Any]  # input -> torch tensor


# --------------------------------------------------------------------------- on disk


def factory(reference: str) -> Any:
    """The torch module that `pkg.mod:fn` builds, in eval mode; raises InputError with what the user's code raised."""
    import torch

    build = usercode.function(reference)
    try:
        net = build()
    except Exception as error:
        raise InputError(f"{reference} raised {usercode.said(error)}; run it in Python to debug it") from error
    if not isinstance(net, torch.nn.Module):
        raise InputError(f"{reference} returned a {type(net).__name__}; it must return a torch.nn.Module")
    return net.eval()


def rebuild(artifact: Artifact) -> Any:
    """The net of a "module" or "program" artifact, ready to run: call it through `outputs`."""
    import torch

    if artifact.kind == "program":
        return torch.export.load(artifact.file(".pt2")).module()
    from safetensors.torch import load_file

    net = factory(reference(artifact))
    torch_edits.apply(net, edits(artifact))
    net.load_state_dict(load_file(artifact.path / STATE))
    return net.eval()


def edits(artifact: Artifact) -> list[torch_edits.Edit]:
    """What has been done to the net of a "module" since its factory built it."""
    return list(_card(artifact)["edits"])


def reference(artifact: Artifact) -> str:
    """The factory of a "module"."""
    return str(_card(artifact)["factory"])


def _card(artifact: Artifact) -> dict[str, Any]:
    return dict(json.loads((artifact.path / MODULE).read_text(encoding="utf-8")))


def save(
    net: Any,
    request: Request,
    edits_made: Sequence[torch_edits.Edit],
    facts: Mapping[str, Any] | None = None,
    factory_reference: str = "",
) -> Artifact:
    """`net` as the "module" in `request.out`, with the ends of the request's model and its edits, then `edits_made`.

    `factory_reference`: another factory's net, which has `edits_made` alone. Raises StageFailed for weights that are
    not finite: a technique broke them.
    """
    model = request.model
    built_by = factory_reference or reference(model)
    if why := unsound(net):
        raise StageFailed(f"{built_by}: {why}")
    write(net, request.out, built_by, [*([] if factory_reference else edits(model)), *edits_made])
    return Artifact(request.out, "module", model.inputs, model.outputs, dict(facts or {})).write()


def write(net: Any, out: Any, factory_reference: str, edits_made: Sequence[torch_edits.Edit]) -> None:
    """MODULE and STATE of a net; a weight that it has under several names is written under each."""
    from safetensors.torch import save_file

    save_file({name: tensor.detach().clone().contiguous() for name, tensor in net.state_dict().items()}, out / STATE)
    card = {"factory": factory_reference, "edits": list(edits_made)}
    (out / MODULE).write_text(json.dumps(card, indent=1), encoding="utf-8")


def unsound(net: Any) -> str:
    """The first weight with NaN or infinite values, in words; or nothing."""
    import torch

    for name, tensor in net.state_dict().items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            nan, infinite = int(torch.isnan(tensor).sum()), int(torch.isinf(tensor).sum())
            return f"weight '{name}' holds {nan} NaN and {infinite} infinite values"
    return ""


# --------------------------------------------------------------------------- calls


def outputs(net: Any, artifact: Artifact, inputs: Named) -> dict[str, Any]:
    """What `net` (of `rebuild`) answers to tensors by the artifact's input names: tensors by its output names."""
    import torch

    names = [spec.name for spec in artifact.outputs]
    with torch.inference_mode():
        if artifact.kind == "program":
            return flatten(call_program(net, [inputs[spec.name] for spec in artifact.inputs]), names)
        return flatten(call(net, inputs), names)


def flatten(answer: Any, names: Sequence[str] = ()) -> dict[str, Any]:
    """Nested dictionaries, tuples and lists of tensors as {dotted name: tensor}; `names` replace the names in order.

    One bare tensor is "output"; the parts of a tuple are "output.0", "output.1", ...; None is left out.
    """
    leaves = dict(_leaves(answer, ""))
    if not leaves:
        raise InputError("the model returned no tensor; its forward must return tensors, in tuples or dictionaries")
    if names and len(names) != len(leaves):
        raise InputError(f"the model returned {len(leaves)} tensors this time, not {len(names)}: {', '.join(names)}")
    return dict(zip(names or leaves, leaves.values(), strict=True))


def _leaves(answer: Any, name: str) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(answer, torch.Tensor):
        yield name or "output", answer
    elif isinstance(answer, Mapping):
        for key, part in answer.items():
            word = re.sub(r"[^\w.-]", "_", str(key))  # names become file names
            yield from _leaves(part, f"{name}.{word}" if name else word)
    elif isinstance(answer, (tuple, list)):
        fields = getattr(answer, "_fields", None)  # a named tuple is as good as a dictionary
        if fields:
            yield from _leaves(dict(zip(fields, answer, strict=True)), name)
        else:
            for index, part in enumerate(answer):
                yield from _leaves(part, f"{name or 'output'}.{index}")
    elif answer is not None:
        raise InputError(f"the model's output '{name or 'output'}' is a {type(answer).__name__}, not a tensor")


def call(net: Any, named: Named) -> Any:
    """forward(**named), dotted names put back together: "state.h" is the "h" of the dictionary "state"."""
    return net(**_nested(named))


def _nested(named: Named) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, tensor in named.items():
        *path, last = name.split(".")
        place = found
        for word in path:
            place = place.setdefault(word, {})
        place[last] = tensor
    return {name: _tuples(part) for name, part in found.items()}


def _tuples(part: Any) -> Any:
    """Dictionaries whose keys are 0, 1, 2, ... are tuples."""
    if not isinstance(part, dict):
        return part
    parts = {key: _tuples(value) for key, value in part.items()}
    return tuple(parts.values()) if list(parts) == [str(i) for i in range(len(parts))] else parts


def flat(net: Any, names: Sequence[str], outputs: Sequence[str]) -> Any:
    """`net` with a flat signature: tensors in the order of `names` in, a tuple in the order of `outputs` out."""
    import torch

    class Flat(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            return tuple(flatten(call(self.net, dict(zip(names, inputs, strict=True))), outputs).values())

    return Flat().eval()


def call_program(net: Any, leaves: Sequence[Any]) -> Any:
    from torch.utils import _pytree as pytree

    args, kwargs = pytree.tree_unflatten(list(leaves), net._in_spec)
    return net(*args, **kwargs)


def example(model: Artifact, samples: Artifact, batch: int) -> dict[str, Any]:
    """The first `batch` items of the data as torch tensors by the model's input names; too few are repeated.

    Inputs that an output feeds (state) without data are zeros.
    """
    import torch

    splits = [split for split, n in samples.facts["splits"].items() if n]
    if not splits:
        raise InputError("the data holds no item in any split; check what it yields")
    fed = {spec.feeds for spec in model.outputs if spec.feeds}
    first = next(tensors.batches(samples, splits[0], batch, model=model))
    zeros = {
        s.name: torch.zeros(s.concrete(batch), dtype=getattr(torch, s.dtype)) for s in model.inputs if s.name in fed
    }
    found = {**zeros, **{name: torch.from_numpy(array) for name, array in first.items()}}
    return {spec.name: found[spec.name] for spec in model.inputs}
