"""The passes over a torch source: which tap is which layer, what each adds to the noise, and what that does at the end.

Memory is that of one run: runs are taken one after the other and sums are added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgecompress import tensors
from edgecompress.errors import StageFailed
from edgecompress.model import Artifact, Request
from edgecompress.stages.diagnose import align
from edgecompress.stages.diagnose.layers import Layer, Source, Values, load
from edgecompress.stages.diagnose.noise import Power, Tally, beyond, largest
from edgecompress.stages.diagnose.rows import Found, Place
from edgecompress.stages.diagnose.taps import Answers, Tap

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

ALIGNED = 2  # runs that taps are matched on
ROUNDS = 3  # of matching again
ALIKE = 0.1  # of cosine, within which the last tap of a layer is taken
EFFECTS = 8  # runs that effects are taken from: each costs half an inference for every layer


@dataclass
class Pair:
    """A layer, the node of it that a tap is, and the order of the tap's axes there."""

    layer: Layer
    node: Any
    tap: Tap
    axes: align.Axes
    tally: Tally
    effects: list[Power]
    uncut: list[Power]  # the effects of what was not cut off
    explained: float | None = None

    def found(self, run: int, like: Any) -> Any:
        """What the artifact answered in a run, as the source has it: a tensor like `like`."""
        import numpy as np
        import torch

        values = align.reordered(np.asarray(self.tap.values[run], np.float32), self.axes, tuple(like.shape))
        return torch.from_numpy(np.array(values)).to(like.dtype)


@dataclass(frozen=True)
class Passed:
    """What the passes found: a row's worth of each layer, the outputs' noise, and the taps that are nothing's."""

    layers: list[Found]
    outputs: dict[str, Power]
    unmatched: list[str]


def over(request: Request, artifact: Answers) -> Passed:
    """All passes over the input "source", a program, with what the tapped artifact answered."""
    import torch

    torch.set_num_threads(request.context.threads)
    model = request.inputs["source"]
    with torch.no_grad():
        source = load(model)
        runs = _runs(request, model)
        pairs, unmatched = _pairs(source, artifact.taps, runs[:ALIGNED])
        outputs = {spec.name: Power() for spec in model.outputs}
        for index, leaves in enumerate(runs):
            request.progress(0.2 + 0.8 * index / len(runs), f"run {index + 1} of {len(runs)}")
            values = source.values(leaves)
            _add_outputs(outputs, source, values, [array[index] for array in artifact.outputs.values()])
            _add_run(source, pairs, values, (index, leaves))
    layers = _founds(source, pairs, runs[0])
    return Passed(layers, {name: power for name, power in outputs.items() if power.signal}, unmatched)


def _runs(request: Request, model: Artifact) -> list[list[Any]]:
    """The source's inputs, batch by batch as the artifact took them; inputs that an output feeds are zeros."""
    import torch

    first, options = request.inputs["tapped"].inputs[0].shape[0], request.options
    batch = first if isinstance(first, int) else request.context.batch
    own = model.inputs[0].shape[0]
    if isinstance(own, int) and own != batch:
        raise StageFailed(f"the source takes {own} items at once, the artifact {batch}; deploy with --batch {own}")
    fed = {spec.feeds for spec in model.outputs if spec.feeds}
    zeros = {
        s.name: torch.zeros(s.concrete(batch), dtype=getattr(torch, s.dtype)) for s in model.inputs if s.name in fed
    }
    named = tensors.batches(request.inputs["samples"], options["split"], batch, options["items"], _without(model, fed))
    runs = [{**zeros, **{name: torch.from_numpy(array) for name, array in arrays.items()}} for arrays in named]
    return [[run[spec.name] for spec in model.inputs] for run in runs]


def _without(model: Artifact, fed: set[str]) -> Artifact:
    return Artifact(model.path, model.kind, tuple(s for s in model.inputs if s.name not in fed), model.outputs)


# --------------------------------------------------------------------------- which tap is which layer


def _pairs(source: Source, taps: Sequence[Tap], runs: Sequence[Sequence[Any]]) -> tuple[list[Pair], list[str]]:
    """A pair for each layer that has a tap, in the order of computing; the taps without a place.

    They are matched with the source's values, then with what the source computes from what is matched so far: behind a
    layer full of errors nothing is like the source any more, and everything like that.
    """
    nodes = [n for n in source.nodes if n in source.owner]
    known = [source.values(leaves) for leaves in runs]
    nodes = [n for n in nodes if hasattr(known[0][n], "numel")]
    matches = _matched(source, nodes, taps, known)
    for _ in range(ROUNDS):
        pairs = _chosen(source, nodes, taps, matches)
        found = [{p.node: p.found(run, values[p.node]) for p in pairs} for run, values in enumerate(known)]
        fed = [dict(source.fed(leaves, put_in)) for leaves, put_in in zip(runs, found, strict=True)]
        again = _matched(source, nodes, taps, fed)
        if [m and (m.source, m.axes) for m in again] == [m and (m.source, m.axes) for m in matches]:
            break
        matches = again
    unmatched = [str(tap.row["operator"]) for tap, match in zip(taps, matches, strict=True) if match is None]
    return _chosen(source, nodes, taps, matches), unmatched


def _matched(
    source: Source, nodes: Sequence[Any], taps: Sequence[Tap], runs: Sequence[Values]
) -> list[align.Match | None]:
    import numpy as np

    wanted = [align.Value(np.stack([run[n].numpy() for run in runs]), module=source.owner[n].module) for n in nodes]
    given = [align.Value(t.values[: len(runs)], t.row.get("layout", ""), t.row.get("module", "")) for t in taps]
    return align.align(given, wanted)


def _chosen(
    source: Source, nodes: Sequence[Any], taps: Sequence[Tap], matches: Sequence[align.Match | None]
) -> list[Pair]:
    """The tap of each layer: the last one that is as much alike as any of it."""
    found: dict[int, list[tuple[Tap, align.Match]]] = {}
    for tap, match in zip(taps, matches, strict=True):
        if match:
            found.setdefault(id(source.owner[nodes[match.source]]), []).append((tap, match))
    pairs = []
    for several in found.values():
        best = max(match.cosine for _, match in several)
        tap, match = next(pair for pair in reversed(several) if pair[1].cosine > best - ALIKE)
        pairs.append(_pair(source, nodes[match.source], tap, match))
    return pairs


def _pair(source: Source, node: Any, tap: Tap, match: align.Match) -> Pair:
    layer = source.owner[node]
    return Pair(layer, node, tap, match.axes, Tally(*tap.extremes, axis=_channels(layer, node)), [], [])


def _channels(layer: Layer, node: Any) -> int:
    """The axis of the channels: behind the batch in images and in what convolutions make, else the last one."""
    wide = len(node.meta["val"].shape) if hasattr(node.meta.get("val"), "shape") else 2
    return 1 if wide > 3 or layer.type.startswith("conv") else -1


# --------------------------------------------------------------------------- one run


def _add_outputs(outputs: Mapping[str, Power], source: Source, values: Values, found: Sequence[Array]) -> None:
    """The outputs' noise; those that are no floats are left out."""
    from torch.utils import _pytree as pytree

    for power, wanted, ours in zip(outputs.values(), pytree.tree_leaves(values[source.nodes[-1]]), found, strict=True):
        if wanted.is_floating_point():
            power.add(wanted.numpy(), ours.reshape(wanted.shape))


def _add_run(source: Source, pairs: Sequence[Pair], values: Values, run: tuple[int, Sequence[Any]]) -> None:
    """One run into every tally: the noise in all, each layer's own, and what that alone does at the end."""
    index, leaves = run
    by_node = {pair.node: pair for pair in pairs}
    found = {pair.node: pair.found(index, values[pair.node]) for pair in pairs}
    for node, pair in by_node.items():
        pair.tally.add(values[node].numpy(), found[node].numpy())
    for node, computed in source.fed(leaves, found):
        if node in by_node:
            _add_own(source, by_node[node], values, (index, computed, found[node]))


def _add_own(source: Source, pair: Pair, values: Values, seen: tuple[int, Any, Any]) -> None:
    """A layer's own error in a run: what it computes from the artifact's inputs, and what the artifact answered."""
    index, computed, found = seen
    pair.tally.add_own(computed.numpy(), found.numpy())
    if index < EFFECTS:
        _add_effects(source, pair, values, (computed, found))
    if index == 0:
        rough = Power()
        rough.add(values[pair.node].numpy(), source.coarse(values, pair.layer, pair.node).numpy())
        pair.explained = rough.ratio


def _add_effects(source: Source, pair: Pair, values: Values, own: tuple[Any, Any]) -> None:
    """What a layer's own error does to the net's outputs, were it the only one; in all, and where nothing was cut."""
    import torch

    computed, found = own
    error = torch.where(torch.isfinite(found), found - computed, 0.0).nan_to_num()
    cut = beyond(computed, found, (pair.tally.low, pair.tally.high))
    whole = source.outputs(values, pair.node, values[pair.node] + error)
    rest = source.outputs(values, pair.node, values[pair.node] + error.masked_fill(cut, 0)) if cut.any() else whole
    wanted = source.answers(values)
    for powers, answers in ((pair.effects, whole), (pair.uncut, rest)):
        powers += [Power() for _ in wanted[len(powers) :]]
        for power, before, after in zip(powers, wanted, answers, strict=True):
            power.add(before.numpy(), after.numpy())


# --------------------------------------------------------------------------- the layers


def _founds(source: Source, pairs: Sequence[Pair], leaves: Sequence[Any]) -> list[Found]:
    """Every layer of the source in the order of computing, with or without a tap."""
    paired = {id(pair.layer): pair for pair in pairs}
    at = {id(layer): index for index, layer in enumerate(source.layers)}
    tapped = [pair.layer for pair in pairs]
    founds = []
    for layer in source.layers:
        pair = paired.get(id(layer))
        node = pair.node if pair else layer.nodes[-1]
        before = [at[id(other)] for other in source.feeding(layer, tapped)]
        shape = tuple(getattr(node.meta.get("val"), "shape", ()))
        numbers = tuple(size for size in shape if isinstance(size, int))
        place = Place(
            layer.name, node.name, layer.type, layer.module, numbers, before, frozenset(source.reading(layer))
        )
        founds.append(_found(place, pair))
    return founds


def _found(place: Place, pair: Pair | None) -> Found:
    if pair is None:
        return Found(place)
    found = Found(place, pair.tap.row, pair.tally, pair.effects, largest(pair.uncut), pair.explained)
    own = pair.tally.own.reason
    found.reasons += [f"its own error: {own}"] if own else []
    return found
