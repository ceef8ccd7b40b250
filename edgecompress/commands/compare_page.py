"""A comparison as a page: what the terminal shows of it, and the variants of all its reports by what each costs."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgecompress.core import output_place
from edgecompress.core.json import Json
from edgecompress.core.model import Context, Stage
from edgecompress.pipeline import store_place
from edgecompress.pipeline.job_request import Options
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.store import Store
from edgecompress.reporting import compare, compare_output, pareto, read
from edgecompress.reporting.compare import BY_NAME, ComparedVariant, ReportComparison
from edgecompress.reporting.formatting import cleaned, known
from edgecompress.reporting.model import Point
from edgecompress.reporting.model_numbers import Number

AXES = {"accuracy": "accuracy", "latency": "latency_ms", "energy": "energy_gross_mj"}  # of a front: the metric


def check(file: Path) -> None:
    """Raises InputError where no page can be written to `file`."""
    output_place.check_file(file, "--html")


def write(comparison: ReportComparison, file: Path, options: Options | None = None) -> Path:
    """Draws the page in a worker and puts it at `file`, whole or not at all. Raises EdgeError."""
    check(file)
    options = options or Options()
    walk = PlanRun(Store(store_place.root(options.store)), Context(), scope="compare", listener=options.hears)
    drawn = walk.stage(Stage("comparison", "reporting.compare_html:draw", options=page_data(comparison), context=()))
    assert drawn.artifact  # or it had raised
    output_place.put(file, drawn.artifact.file(".html").read_bytes(), "--html")
    return file


def page_data(comparison: ReportComparison) -> dict[str, Json]:
    """All that the page says, as plain data; raises InputError for a report that lacks what this version writes."""
    facts = {key: value for key, value in compare_output.data(comparison).items() if key not in ("rows", "exit_code")}
    rows = [{"label": row.metric.label, "cells": compare.cells(row)} for row in comparison.rows]
    with read.rendering(", ".join(e.label for e in comparison.entries)):
        entries = every(comparison.entries)
        shown = {"fronts": fronts(entries), "missing": [_missing(e) for e in entries if _lacks(e)]}
    clean: dict[str, Json] = cleaned({**facts, "table": {"head": compare.head(comparison), "rows": rows}, **shown})
    return clean


# --------------------------------------------------------------------------- variants of all the reports


def every(entries: Sequence[ComparedVariant]) -> list[ComparedVariant]:
    """Each variant of each report once, with the accuracy that another report has of the same artifact."""
    runs = [[e for e in entries if e.run == run] for run in dict.fromkeys(e.run for e in entries)]
    variants = [entry for group in runs for entry in _of_run(group)]
    judged = {e.artifact: e for e in reversed(variants) if e.artifact and _known(e, "accuracy")}
    return [_judged(e, judged.get(e.artifact)) for e in variants]


def _of_run(entries: Sequence[ComparedVariant]) -> Iterator[ComparedVariant]:
    """The variants of one report: those given as they are, their neighbours beside them."""
    own = {e.variant.name: e for e in entries}
    for variant in entries[0].report.variants:
        entry = own.get(variant.name) or dataclasses.replace(entries[0], variant=variant)
        at = entries[0] if variant.name not in own else entry
        yield dataclasses.replace(entry, label=at.label.removesuffix(f"@{at.variant.name}"))


def _judged(entry: ComparedVariant, other: ComparedVariant | None) -> ComparedVariant:
    """A profile says nothing of accuracy: that is the artifact's, wherever it runs."""
    from msgspec.structs import replace

    if other is None or _known(entry, "accuracy"):
        return entry
    numbers = {**entry.variant.numbers, "accuracy": other.variant.numbers["accuracy"]}
    report, variant = replace(entry.report, data=other.report.data), replace(entry.variant, numbers=numbers)
    return dataclasses.replace(entry, report=report, variant=variant)


def _number(entry: ComparedVariant, axis: str) -> Number | None:
    return entry.number(BY_NAME[AXES[axis]])


def _known(entry: ComparedVariant, axis: str) -> bool:
    """Whether it has a place on the axis; those of latency and energy have no nothing."""
    number = _number(entry, axis)
    return number is not None and known(number) and (axis == "accuracy" or number.known > 0)


def _lacks(entry: ComparedVariant) -> list[str]:
    return [axis for axis in AXES if not _known(entry, axis)]


def _missing(entry: ComparedVariant) -> list[str]:
    """Which variant is on no front, and why."""
    numbers = {axis: _number(entry, axis) for axis in _lacks(entry)}
    why = {axis: (number and number.reason) or "it was not measured" for axis, number in numbers.items()}
    axes_of = {reason: [axis for axis in why if why[axis] == reason] for reason in why.values()}
    words = "; ".join(f"no {' and no '.join(axes)}: {reason}" for reason, axes in axes_of.items())
    return [entry.variant.name, entry.device_name, entry.label, words]


# --------------------------------------------------------------------------- fronts


Alike = tuple[int, str, str]  # batch, metric, test data


def fronts(entries: Sequence[ComparedVariant]) -> list[dict[str, Json]]:
    """A front for each batch, metric and test data: only what shares them is held against each other."""
    from msgspec import to_builtins

    placed = [e for e in entries if not _lacks(e)]
    rows = _rows(placed)
    alike: dict[Alike, list[int]] = {}
    for i, entry in enumerate(placed):
        alike.setdefault(_alike(entry), []).append(i)
    made: list[dict[str, Json]] = []
    for (batch, metric, _), at in alike.items():
        labels = ", ".join(dict.fromkeys(placed[i].label for i in at))
        ranked = to_builtins(pareto.ranked([rows[i] for i in at]))
        made.append({"title": f"{metric}, batch {batch}: {labels}", "rows": ranked})
    return made


def _alike(entry: ComparedVariant) -> Alike:
    metric, data = entry.variant.numbers["accuracy"].metric, entry.report.data or {}
    return entry.report.run.batch, metric, data.get("sha256") or json.dumps(data, sort_keys=True)


def _rows(entries: Sequence[ComparedVariant]) -> list[Point]:
    """With names that tell them apart: the report's where a device has a variant twice."""
    by_device = {e.device: e for e in entries}
    names = Counter(str(e.device[0]) for e in by_device.values())
    devices = {d: str(d[0]) if names[str(d[0])] == 1 else e.device_name for d, e in by_device.items()}
    named = [(e.variant.name, devices[e.device]) for e in entries]
    times = Counter(named)
    return [
        Point(
            variant if times[variant, device] == 1 else f"{variant} ({e.label})",
            device,
            e.variant.numbers["accuracy"],
            e.variant.numbers["latency"],
            e.variant.numbers["energy_gross"],
        )
        for e, (variant, device) in zip(entries, named, strict=True)
    ]
