"""What is printed of a source once it is known: its accuracy, and what is doubtful about it and its data."""

from __future__ import annotations

from collections.abc import Iterator

from edgecompress.core.model import Outcome

WARNING = "warning: "


def lines(outcome: Outcome) -> Iterator[str]:
    """What a stage found out: `source      99.4 % top-1 of 500 test items`."""
    metric = outcome.facts.get("metric") if outcome.stage == "golden" else None
    if metric and metric["value"] is not None:
        from edgecompress.reporting import formatting

        name, items = metric["name"].replace("top", "top-"), formatting.plural(metric["n"], "test item")
        yield f"source      {formatting.plain(metric['value'], metric['unit'])} {name} of {items}"
    yield from (f"{WARNING}{text}" for text in outcome.facts.get("warnings", ()))
