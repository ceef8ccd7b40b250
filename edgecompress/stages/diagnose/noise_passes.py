"""The runs of a torch source: which output is which layer, what each adds to the noise, and what that does at the end.

Memory is that of one run: runs are taken one after the other and sums are added up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.stages.diagnose import align
from edgecompress.stages.diagnose.layer_outputs import LayerValues, NetOutputs
from edgecompress.stages.diagnose.layers import SourceLayer, SourceProgram, Values, load
from edgecompress.stages.diagnose.noise import LayerNoise, Power, beyond, largest
from edgecompress.stages.diagnose.rows import LayerRecord, Place

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.fx import Node

ALIGNED = 2  # runs that layer outputs are matched on
ROUNDS = 3  # of matching again
ALIKE = 0.1  # of cosine, within which the last output of a layer is taken
EFFECTS = 8  # runs that effects are taken from: each costs half an inference for every layer


@dataclass
class MatchedLayer:
    """A layer, the node of it that is the artifact's layer output, and the order of that one's axes."""

    layer: SourceLayer
    node: Node
    values: LayerValues
    axes: align.Axes
    tally: LayerNoise
    effects: list[Power]
    uncut: list[Power]  # the effects of what was not cut off
    explained: float | None = None

    def output(self, run: int, like: torch.Tensor) -> torch.Tensor:
        """What the artifact computed in a run, as the source has it: a tensor like `like`."""
        import numpy as np
        import torch

        values = align.reordered(np.asarray(self.values.values[run], np.float32), self.axes, tuple(like.shape))
        return torch.from_numpy(np.array(values)).to(like.dtype)


@dataclass(frozen=True)
class Measurements:
    """What the runs gave: a record of each layer, the outputs' noise, and the layer outputs without a layer."""

    layers: list[LayerRecord]
    outputs: dict[str, Power]
    unmatched: list[str]


def over(request: Request, artifact: NetOutputs) -> Measurements:
    """All runs of the input "source", a program, compared with what the artifact computed."""
    import torch

    torch.set_num_threads(request.context.threads)
    model = request.inputs["source"]
    with torch.no_grad():
        source = load(model)
        runs = _runs(request, model)
        pairs, unmatched = _pairs(source, artifact.layers, runs[:ALIGNED])
        outputs = {spec.name: Power() for spec in model.outputs}
        for index, leaves in enumerate(runs):
            request.progress(0.2 + 0.8 * index / len(runs), f"run {index + 1} of {len(runs)}")
            values = source.values(leaves)
            _add_outputs(outputs, source, values, [array[index] for array in artifact.outputs.values()])
            _add_run(source, pairs, values, (index, leaves))
    layers = _records(source, pairs, runs[0])
    return Measurements(layers, {name: power for name, power in outputs.items() if power.signal}, unmatched)


def _runs(request: Request, model: Artifact) -> list[list[torch.Tensor]]:
    """The source's inputs, batch by batch as the artifact took them."""
    import torch

    first, options = request.inputs["tapped"].batch, request.options
    batch = first if isinstance(first, int) else request.context.batch
    own = model.batch
    if isinstance(own, int) and own != batch:
        raise StageFailed(f"the source takes {own} items at once, the artifact {batch}; deploy with --batch {own}")
    runs = tensors.batches(request.inputs["samples"], options["split"], batch, options["items"], model)
    return [[torch.from_numpy(arrays[spec.name]) for spec in model.inputs] for arrays in runs]


# --------------------------------------------------------------------------- which output is which layer


def _pairs(
    source: SourceProgram, outputs: Sequence[LayerValues], runs: Sequence[Sequence[torch.Tensor]]
) -> tuple[list[MatchedLayer], list[str]]:
    """A pair for each layer that has an output, in the order of computing; the outputs without a layer.

    They are matched with the source's values, then with what the source computes from what is matched so far: behind a
    layer full of errors nothing is like the source any more, and everything like that.
    """
    nodes = [n for n in source.nodes if n in source.owner]
    known = [source.values(leaves) for leaves in runs]
    nodes = [n for n in nodes if hasattr(known[0][n], "numel")]
    matches = _matched(source, nodes, outputs, known)
    for _ in range(ROUNDS):
        pairs = _chosen(source, nodes, outputs, matches)
        computed = [{p.node: p.output(run, values[p.node]) for p in pairs} for run, values in enumerate(known)]
        fed = [dict(source.fed(leaves, put_in)) for leaves, put_in in zip(runs, computed, strict=True)]
        again = _matched(source, nodes, outputs, fed)
        if [m and (m.source, m.axes) for m in again] == [m and (m.source, m.axes) for m in matches]:
            break
        matches = again
    unmatched = [str(output.row["operator"]) for output, match in zip(outputs, matches, strict=True) if match is None]
    return _chosen(source, nodes, outputs, matches), unmatched


def _matched(
    source: SourceProgram, nodes: Sequence[Node], outputs: Sequence[LayerValues], runs: Sequence[Values]
) -> list[align.Match | None]:
    import numpy as np

    reference = [align.Value(np.stack([run[n].numpy() for run in runs]), module=source.owner[n].module) for n in nodes]
    values = [align.Value(t.values[: len(runs)], t.row.get("layout", ""), t.row.get("module", "")) for t in outputs]
    return align.align(values, reference)


def _chosen(
    source: SourceProgram, nodes: Sequence[Node], outputs: Sequence[LayerValues], matches: Sequence[align.Match | None]
) -> list[MatchedLayer]:
    """The output of each layer: the last one that is as much alike as any of it, by the operator of the first one."""
    candidates: dict[int, list[tuple[LayerValues, align.Match]]] = {}
    for output, match in zip(outputs, matches, strict=True):
        if match:
            candidates.setdefault(id(source.owner[nodes[match.source]]), []).append((output, match))
    pairs = []
    for several in candidates.values():
        best = max(match.cosine for _, match in several)
        output, match = next(pair for pair in reversed(several) if pair[1].cosine > best - ALIKE)
        first = several[0][0].row  # whose weights they are: what follows it has none
        row = {**output.row, "operator": first["operator"], "type": first["type"]}
        node = nodes[match.source]
        layer, output = source.owner[node], dataclasses.replace(output, row=row)
        noise = LayerNoise(*output.extremes, axis=_channels(layer, node))
        pairs.append(MatchedLayer(layer, node, output, match.axes, noise, [], []))
    return pairs


def _channels(layer: SourceLayer, node: Node) -> int:
    """The axis of the channels: behind the batch in images and in what convolutions make, else the last one."""
    wide = len(node.meta["val"].shape) if hasattr(node.meta.get("val"), "shape") else 2
    return 1 if wide > 3 or layer.type.startswith("conv") else -1


# --------------------------------------------------------------------------- one run


def _add_outputs(
    outputs: Mapping[str, Power], source: SourceProgram, values: Values, arrays: Sequence[np.ndarray]
) -> None:
    """The outputs' noise; those that are no floats are left out."""
    from torch.utils import _pytree as pytree

    for power, reference, ours in zip(
        outputs.values(), pytree.tree_leaves(values[source.nodes[-1]]), arrays, strict=True
    ):
        if reference.is_floating_point():
            power.add(reference.numpy(), ours.reshape(reference.shape))


def _add_run(
    source: SourceProgram, pairs: Sequence[MatchedLayer], values: Values, run: tuple[int, Sequence[torch.Tensor]]
) -> None:
    """One run into every tally: the noise in all, each layer's own, and what that alone does at the end."""
    index, leaves = run
    by_node = {pair.node: pair for pair in pairs}
    outputs = {pair.node: pair.output(index, values[pair.node]) for pair in pairs}
    for node, pair in by_node.items():
        pair.tally.add(values[node].numpy(), outputs[node].numpy())
    for node, computed in source.fed(leaves, outputs):
        if node in by_node:
            _add_own(source, by_node[node], values, (index, computed, outputs[node]))


def _add_own(
    source: SourceProgram, pair: MatchedLayer, values: Values, run: tuple[int, torch.Tensor, torch.Tensor]
) -> None:
    """A layer's own error in a run: what it computes from the artifact's inputs, and what the artifact computed."""
    index, computed, output = run
    pair.tally.add_own(computed.numpy(), output.numpy())
    if index < EFFECTS:
        _add_effects(source, pair, values, (computed, output))
    if index == 0:
        rough = Power()
        rough.add(values[pair.node].numpy(), source.coarse(values, pair.layer, pair.node).numpy())
        pair.explained = rough.ratio


def _add_effects(
    source: SourceProgram, pair: MatchedLayer, values: Values, own: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """What a layer's own error does to the net's outputs, were it the only one; in all, and where nothing was cut."""
    import torch

    computed, output = own
    error = torch.where(torch.isfinite(output), output - computed, 0.0).nan_to_num()
    cut = beyond(computed, output, (pair.tally.low, pair.tally.high))
    whole = source.outputs(values, pair.node, values[pair.node] + error)
    rest = source.outputs(values, pair.node, values[pair.node] + error.masked_fill(cut, 0)) if cut.any() else whole
    exact = source.float_outputs(values)
    for powers, outputs in ((pair.effects, whole), (pair.uncut, rest)):
        powers += [Power() for _ in exact[len(powers) :]]
        for power, before, after in zip(powers, exact, outputs, strict=True):
            power.add(before.numpy(), after.numpy())


# --------------------------------------------------------------------------- the layers


def _records(source: SourceProgram, pairs: Sequence[MatchedLayer], leaves: Sequence[torch.Tensor]) -> list[LayerRecord]:
    """Every layer of the source in the order of computing, with or without an output of the artifact."""
    paired = {id(pair.layer): pair for pair in pairs}
    at = {id(layer): index for index, layer in enumerate(source.layers)}
    known = [pair.layer for pair in pairs]
    records = []
    for layer in source.layers:
        pair = paired.get(id(layer))
        node = pair.node if pair else layer.nodes[-1]
        before = [at[id(other)] for other in source.feeding(layer, known)]
        shape = tuple(getattr(node.meta.get("val"), "shape", ()))
        numbers = tuple(size for size in shape if isinstance(size, int))
        place = Place(
            layer.name, node.name, layer.type, layer.module, numbers, before, frozenset(source.reading(layer))
        )
        records.append(_record(place, pair))
    return records


def _record(place: Place, pair: MatchedLayer | None) -> LayerRecord:
    if pair is None:
        return LayerRecord(place)
    record = LayerRecord(place, pair.values.row, pair.tally, pair.effects, largest(pair.uncut), pair.explained)
    own = pair.tally.own.reason
    record.reasons += [f"its own error: {own}"] if own else []
    return record
