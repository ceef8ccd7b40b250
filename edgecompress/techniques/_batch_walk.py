"""Batches through the graph of a net, operation after operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from edgecompress.techniques._torch_graph import Batches, Flow


@dataclass
class BatchWalk:
    """Batches through the graph side by side, operation after operation; what nothing will read is let go."""

    flow: Flow
    batches: Batches
    instead: dict[str, torch.Tensor] = field(default_factory=dict)  # tensors other than the net's, by name

    def __post_init__(self) -> None:
        self._values: list[dict[torch.fx.Node, object]] = [{} for _ in self.batches]
        self._rest = {node: len(node.users) for node in self.flow.nodes}
        self._inputs = iter(spec.name for spec in self.flow.request.model.inputs)

    def of(self, node: torch.fx.Node) -> list[torch.Tensor]:
        """An operation's output for each batch."""
        return [values[node] for values in self._values]

    def step(self, node: torch.fx.Node) -> None:
        """Computes the next operation."""
        import torch

        if node.op == "output":
            return
        name = next(self._inputs) if node.op == "placeholder" else ""
        with torch.no_grad():
            for batch, values in zip(self.batches, self._values, strict=True):
                values[node] = batch[name].clone() if name else self._computed(node, values)
        for read in node.all_input_nodes:
            self._rest[read] -= 1
        for read in [each for each in (*node.all_input_nodes, node) if not self._rest[each]]:
            for known in self._values:
                known.pop(read, None)

    def _computed(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, object]) -> object:
        from torch.fx.node import map_arg

        if node.op == "get_attr":
            own = self.instead.get(self.flow.names.get(node, ""))
            return self.flow.constant(node) if own is None else own
        return node.target(*map_arg(node.args, values.get), **map_arg(node.kwargs, values.get))
