"""What kind of fault an operator has, where its values and constants decide it: a word, the evidence, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgecompress.stages.diff.kinds import channel_lines, operators, values
from edgecompress.stages.diff.kinds.evidence import DO as DO
from edgecompress.stages.diff.kinds.evidence import Evidence, Kind

if TYPE_CHECKING:
    from edgecompress.stages.diff.departure import Departure
    from edgecompress.stages.diff.sides import Side

# in the order of how much they decide: the first that tells a kind is right
TESTS = (
    values.overflow,
    values.resized,
    values.layout,
    operators.twice,
    values.saturated,
    channel_lines.affine,
    values.borders,
    operators.normalized,
    operators.activated,
    operators.weighted,
    operators.by_family,
)


def kind(a: Side, b: Side, departure: Departure, precision: str) -> Kind:
    """The kind of fault of a departure; "" where nothing decides it."""
    seen = Evidence(a, b, departure, precision)
    return next(filter(None, (test(seen) for test in TESTS)), Kind("", ""))
