"""Loops and branches: ops with blocks inside."""

from __future__ import annotations

from edgecompress.engines.coreml.mil.signature import Blocks, Result, Tensors


def while_loop(loop_vars: Tensors, blocks: Blocks) -> Result:
    """The first block says whether to go on, the second is the body."""
    condition, body = blocks
    values = tuple(loop_vars)
    while condition(*values)[0]:
        values = body(*values)
    return values


def cond(pred: bool, blocks: Blocks) -> Result:
    return blocks[0 if pred else 1]()
