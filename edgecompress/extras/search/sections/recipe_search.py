"""What `search` found: its trials, those that no other beats, and the knobs that decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from edgecompress.core.json import Json
from edgecompress.core.model import Request
from edgecompress.reporting.figure_style import COLOURS, Figure, Panel, axis, paint, quantity
from edgecompress.reporting.formatting import DASH, plural, significant
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Part
from edgecompress.reporting.request import ReportRequest
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

TITLE = "What the search found"
KEY = "search"
ORDER = 10
_CAPTION = (
    "Each dot is a trial inside the limits: as shares of {baseline}, accuracy as the loss on the split that chooses, "
    "so left and below is better. Full: on the front. Pale: another trial is as good in all and better in one. {whose}."
)


class SearchTrial(Part):
    """A trial of `search`: its recipe in words, as much of each objective as is known, and the accuracy in words.

    `values` are shares of the baseline's; that of accuracy is the loss on the split that chooses.
    """

    number: int
    words: str
    runtime: str
    values: dict[str, float]
    inside: bool
    change: str
    reason: str
    took_s: float


class RecipeSearch(Part):
    """How `search` found the variants, and why it ended. `front` are numbers of trials, `importances` shares of 1."""

    id: str
    objectives: list[str]
    baseline: str
    why: str
    trials: list[SearchTrial]
    front: list[int]
    importances: dict[str, float]


Data = RecipeSearch


def found(request: Request, job: ReportRequest, report: Report) -> RecipeSearch | None:
    """The search whose best trials a deploy raced; None where none did."""
    return msgspec.convert(dict(job.search), RecipeSearch) if job.search else None


def tables(report: Report) -> list[TextTable]:
    """Its front, the knobs that decided, its trials."""
    return [table(report), mattered(report), trials(report)]


def figures(report: Report) -> list[Figure]:
    """The front."""
    return [figure(report)]


def _found(report: Report) -> RecipeSearch | None:
    found: RecipeSearch | None = report.rest.get(KEY)
    return found


def _axis(name: str) -> str:
    return "accuracy lost" if name == "accuracy" else name


def _values(trial: SearchTrial, names: Sequence[str]) -> tuple[str, ...]:
    known = (trial.values.get(name) for name in names)
    return tuple(DASH if value is None else significant(value, 3) for value in known)


def _state(found: RecipeSearch, trial: SearchTrial) -> str:
    if trial.number in found.front:
        return "on the front"
    return "inside" if trial.inside else "lost" if trial.change else "not built"


# ------------------------------------------------------------------ tables


def table(report: Report) -> TextTable:
    """The front."""
    found = _found(report)
    if found is None:
        return TextTable(TITLE, (), ())
    trials = {trial.number: trial for trial in found.trials}
    head = ("trial", "recipe", "accuracy", *map(_axis, found.objectives))
    rows = [(str(n), trials[n].words, trials[n].change, *_values(trials[n], found.objectives)) for n in found.front]
    return TextTable(f"{TITLE}: {plural(len(found.trials), 'trial')}, {found.why}", head, tuple(rows))


def mattered(report: Report) -> TextTable:
    """How much each knob decides whether a trial is among the best."""
    found = _found(report)
    shares = found.importances if found else {}
    rows = tuple((name, f"{100 * share:.0f} %") for name, share in shares.items())
    return TextTable("Which knobs mattered", ("knob", "share"), rows)


def trials(report: Report) -> TextTable:
    """Every trial."""
    if (found := _found(report)) is None:
        return TextTable("Trials of the search", (), ())
    head = ("trial", "recipe", "accuracy", *map(_axis, found.objectives), "state", "seconds", "note")
    rows = (
        (str(t.number), t.words, t.change, *_values(t, found.objectives), _state(found, t), f"{t.took_s:.0f}", t.reason)
        for t in found.trials
    )
    return TextTable("Trials of the search", head, tuple(rows))


# ------------------------------------------------------------------ figure


def figure(report: Report) -> Figure:
    """The trials inside the limits, by the first objective and each other one."""
    found = _found(report)
    if found is None or not found.front:
        return Figure("search", TITLE, "")
    runtimes = list(dict.fromkeys(trial.runtime for trial in found.trials))
    key = tuple(("", f"{n}: {t.words}") for n, t in ((t.number, t) for t in found.trials) if n in found.front)
    whose = "One colour for each runtime"
    caption = _CAPTION.format(baseline=found.baseline, whose=whose)
    return Figure("search", TITLE, caption, tuple(_panels(found, runtimes)), key)


def _panels(found: RecipeSearch, runtimes: Sequence[str]) -> Iterator[Panel]:
    first, *others = found.objectives
    for other in others or ["number"]:
        yield Panel(f"{_axis(other)} over {_axis(first)}", _dots(found, runtimes, first, other))


def _dots(found: RecipeSearch, runtimes: Sequence[str], across: str, up: str) -> Spec:
    inside = sorted((t for t in found.trials if t.inside), key=lambda t: t.number in found.front)
    values = [_dot(found, trial, runtimes, across, up) for trial in inside]
    x, y = (_scale(key, _axis(name), values) for key, name in (("a", across), ("w", up)))
    marks = described(values, {"type": "point", "size": 80, "strokeWidth": 1.4}, "trial", x=x, y=y, **paint())
    words = {"type": "text", "fontSize": 10, "color": "var(--ink)", "dx": 6, "align": "left"}
    front = [value for value in values if value["front"]]
    return unit(190, [marks, layer(front, words, x=x, y=y, text={"field": "number", "type": "nominal"})])


def _scale(key: str, title: str, values: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
    ends = [float(value[key]) for value in values]
    room = 0.08 * (max(ends) - min(ends)) or 0.1 * abs(max(ends)) or 0.01
    return quantity(key, axis(title, grid=True, format="~g"), domain=[min(ends) - room, max(ends) + room])


def _dot(found: RecipeSearch, trial: SearchTrial, runtimes: Sequence[str], across: str, up: str) -> dict[str, Json]:
    on_front = trial.number in found.front
    fill = f"var(--c{1 + runtimes.index(trial.runtime) % COLOURS})"
    height = trial.number if up == "number" else trial.values[up]
    shown = ", ".join(
        f"{_axis(n)} {v}" for n, v in zip(found.objectives, _values(trial, found.objectives), strict=True)
    )
    says = f"trial {trial.number}: {trial.words}: {shown}, {_state(found, trial)}"
    paints: dict[str, Json] = {"fill": fill, "opacity": 0.95 if on_front else 0.25, "front": on_front}
    return {"a": trial.values[across], "w": height, "number": str(trial.number), "says": says, **paints}
