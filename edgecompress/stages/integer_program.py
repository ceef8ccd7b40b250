"""A choice for each layer, of those that it has: the least loss at a cost of at most so much.

A knapsack with one choice of each group, solved exactly by HiGHS (Huangfu and Hall 2018) as scipy has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgecompress.core.model import Artifact, Request

REQUIRES = ("scipy>=1.11",)
EXTRA = "onnx"  # and every other whose engine has layers to choose for

KIND = "choices"
SCALE = 1e3  # of the largest number in a sum: the solver's tolerances are absolute, 1e-6

Table = Sequence[Sequence[float]]  # a row for each layer, a number for each of its choices
Places = list[int]  # of each layer's choice in its row


def run(request: Request) -> Artifact:
    """options: "losses", "costs" (tables; the first choice of a layer is to leave it), "most", "shares".

    facts: {"choices": one for each share, without those that come twice}; none where nothing costs so little. No
    inputs.
    """
    options = request.options
    choices = frontier(options["losses"], options["costs"], options["most"], options["shares"])
    return Artifact(request.out, KIND, facts={"choices": choices}).write()


def frontier(losses: Table, costs: Table, most: float, shares: Sequence[float]) -> list[Places]:
    """The cheapest choices that mend a share of the loss that the best one within `most` mends, then that one.

    What is mended is counted from where all layers are left. Shares rise, and are below 1.
    """
    best = least(losses, costs, most)
    if best is None:
        return []
    left, lowest = sum(row[0] for row in losses), sum(row[place] for row, place in zip(losses, best, strict=True))
    found = [least(costs, losses, left - share * (left - lowest)) or best for share in shares]
    return [choice for i, choice in enumerate([*found, best]) if choice not in found[:i]]


def least(wanted: Table, bounded: Table, most: float) -> Places | None:
    """The choice with the least sum of `wanted` among those whose sum of `bounded` is at most `most`; None: none is."""
    import numpy as np
    from scipy import optimize, sparse

    if not wanted:
        return [] if most >= 0 else None
    owner = np.repeat(np.arange(len(wanted)), [len(row) for row in wanted])
    objective, bound = (np.array([number for row in table for number in row], float) for table in (wanted, bounded))
    one_each = sparse.csr_array((np.ones(len(owner)), (owner, np.arange(len(owner)))))
    scale = SCALE / (np.abs([*bound, most]).max() or 1)
    found = optimize.milp(
        objective * (SCALE / (np.abs(objective).max() or 1)),
        integrality=np.ones(len(owner)),
        bounds=optimize.Bounds(0, 1),
        constraints=[
            optimize.LinearConstraint(one_each, 1, 1),
            optimize.LinearConstraint(bound[None] * scale, -np.inf, most * scale),
        ],
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        return None
    return [int(np.argmax(found.x[owner == layer])) for layer in range(len(wanted))]
