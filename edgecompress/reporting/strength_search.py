"""How the strength of a compression was found by measuring: what each part saves on the device, then trials."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from edgecompress.core.json import Json
from edgecompress.reporting.figure_style import Figure, Panel, also, axis, colour, labels, paint, quantity
from edgecompress.reporting.formatting import DASH, GUESSED, plain, plural, significant
from edgecompress.reporting.model import Fit, Report, Trial
from edgecompress.reporting.request import ReportRequest
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

MOST = 40  # cells in a panel
_CAPTION = (
    "First the table of the device: each class of layers narrowed alone, to the width after the @, and the share of "
    "the dense net's {what} that this saves. Then the trials: from the share that one was asked to leave by that table "
    "(tick) to the share that it measured (dot). Shaded: what was to be met. Full: chosen."
)


def of_request(job: ReportRequest) -> list[Fit]:
    """Each fit of a run, with its trials; of one that got no further than its table, why."""
    fits = []
    for stage, facts in job.fits.items():
        trials = [{**t, "chosen": t["stage"] == facts.get("chosen")} for t in facts.get("trials") or ()]
        known = {key: value for key, value in facts.items() if value is not None}
        names = {"stage": stage, "variant": stage.partition("/")[0], "technique": stage.rpartition("/")[2]}
        fits.append(msgspec.convert({**known, **names, "trials": trials}, Fit))
    return fits


def chosen(fit: Fit) -> Trial | None:
    """The trial that the search ended with."""
    return next((t for t in fit.trials if t.chosen), None)


def beside(fit: Fit) -> Trial | None:
    """Of a search that met no goal within its band: the fastest trial that was too slow, the chosen one's neighbour."""
    best = chosen(fit)
    if best is None or best.ratio is None or fit.least is None or fit.ratio is None or best.ratio >= fit.least:
        return None
    slow = [(t.ratio, i) for i, t in enumerate(fit.trials) if t.ratio is not None and t.ratio > fit.ratio]
    return fit.trials[min(slow)[1]] if slow else None


def goal_and_share(report: Report, variant: str) -> str:
    """`0.6 of the dense latency: 0.574`; empty where nothing was asked for."""
    fit = next((f for f in report.fits if f.variant == variant), None)
    best = chosen(fit) if fit else None
    return f"{goal_text(fit)}: {_share(best.ratio) if best else 'not found'}" if fit else ""


def goal_text(fit: Fit) -> str:
    """`0.6 of the dense latency`, `at most 8 ms (0.53 of the dense latency)`."""
    if fit.ratio is None or fit.goal is None:
        return DASH
    share = f"{fit.ratio:.3g} of the dense {_what(fit)}"
    return share if fit.goal.quantity == "ratio" else f"at most {plain(fit.goal.value, 'ms')} ({share})"


def _what(fit: Fit) -> str:
    return "instructions" if fit.simulated else "latency"


def _share(ratio: float | None) -> str:
    return DASH if ratio is None else significant(ratio, 3)


# ------------------------------------------------------------------ tables


def table(report: Report) -> TextTable:
    """What was asked for, what was found, and how."""
    head = ("variant", "by", "asked for", "found", "trials", "on", "how it ended")
    rows = []
    for fit in report.fits:
        best = chosen(fit)
        simulated = f" by {fit.simulated}" if fit.simulated else ""
        where = f"{fit.runtime or DASH}, {fit.status}{simulated}" if fit.status else DASH
        tried = f"{plural(len(fit.saved), 'cell')}, {plural(len(fit.trials), 'trial')}"
        measured = _share(best.ratio) if best else DASH
        rows.append((fit.variant, fit.technique, goal_text(fit), measured, tried, where, fit.reason))
    return TextTable("How the strength was found", head, tuple(rows))


def saved(report: Report) -> TextTable:
    """The table of the device: what each cell saves of the dense net."""
    cells = [
        (f, label, f"{100 * share:.1f} %".replace("-", "−")) for f in report.fits for label, share in f.saved.items()
    ]
    broken = [(f, label, f"{DASH} crashed: {why}") for f in report.fits for label, why in f.crashed.items()]
    rows = ((f.variant, label, shown, f.status or DASH) for f, label, shown in (*cells, *broken))
    return TextTable("What each class of layers saves", ("variant", "narrowed alone", "saved", "status"), tuple(rows))


def trials(report: Report) -> TextTable:
    """Each trial: what it was asked to leave, what it left."""
    head = ("variant", "trial", "asked to leave", "measured", "left of the parts", "note")
    rows = []
    for fit, i, trial in ((f, i, t) for f in report.fits for i, t in enumerate(f.trials, 1)):
        note = ", ".join(filter(None, ("chosen" if trial.chosen else "", trial.reason)))
        counted = sorted(Counter(trial.kept.values()).items())  # by width (by low rank: by what part of MACs)
        widths = ", ".join(f"{parts} of {width}" for width, parts in counted) or DASH
        rows.append((fit.variant, str(i), _share(trial.keep), _share(trial.ratio), widths, note))
    return TextTable("Trials", head, tuple(rows))


def neighbours(report: Report) -> TextTable:
    """Where no width lay between: in what the two trials on either side of the goal differ."""
    rows: list[tuple[str, ...]] = []
    for fit in report.fits:
        best, wider = chosen(fit), beside(fit)
        if best is None or wider is None:
            continue
        rows.append((fit.variant, "all, measured", _share(best.ratio), _share(wider.ratio)))
        for part in dict.fromkeys((*best.kept, *wider.kept)):
            narrow, wide = (str(trial.kept.get(part, DASH)) for trial in (best, wider))
            if narrow != wide:
                rows.append((fit.variant, part, narrow, wide))
    head = ("variant", "part", "chosen", "the next wider one")
    return TextTable("Neighbours: no width between", head, tuple(rows))


# ------------------------------------------------------------------ figures


def figure(report: Report) -> Figure:
    """Of each fit what each cell saves, and the way of the trials to the goal."""
    panels = []
    for fit in report.fits:
        fill, best = colour(report, fit.variant), chosen(fit)
        if fit.saved:
            dense = f"dense {plain(fit.dense_ms, 'ms')}, " if fit.dense_ms is not None else ""
            heading = f"{plural(len(fit.saved), 'cell')}: {dense}{fit.runtime}, {fit.status}"
            panels.append(Panel(heading, _cells(fit, fill), fit.variant))
        if fit.trials:
            ended = f"found {_share(best.ratio)}" if best else "not found"
            heading = f"{plural(len(fit.trials), 'trial')}: {goal_text(fit)}, {ended}"
            panels.append(Panel(heading, _trials(fit, fill), fit.variant))
    caption = _CAPTION.format(what=" or ".join(dict.fromkeys(map(_what, report.fits))))
    caption += " Dashed and hollow is simulated." if any(map(_hollow, report.fits)) else ""
    return Figure("fits", "What each class saves, then trials", caption if panels else "", tuple(panels))


def _hollow(fit: Fit) -> bool:
    return fit.status in GUESSED


def _dashes(fit: Fit) -> dict[str, Json]:
    return {"strokeDash": [3, 2]} if _hollow(fit) else {}


def _cells(fit: Fit, fill: str) -> Spec:
    most = dict(sorted(fit.saved.items(), key=lambda pair: -abs(pair[1]))[:MOST])
    shown = [(label, 100 * share) for label, share in fit.saved.items() if label in most]
    paints = {"fill": fill, "opacity": 0.12 if _hollow(fit) else 0.85}
    values = [
        {"label": label, "share": n, **paints, "says": f"{label}: saves {n:.1f} % of the {_what(fit)}"}
        for label, n in shown
    ]
    x, y = quantity("share", axis("% saved", grid=True), zero=True), labels()
    bars = described(values, {"type": "bar", "height": 10, **_dashes(fit)}, "cell", x=x, y=y, **paint())
    zero = layer([{"share": 0}], {"type": "rule", "color": "var(--ink)"}, x=x)
    return unit(44 + 16 * len(values), [bars, zero])


def _trials(fit: Fit, fill: str) -> Spec:
    values = [_dot(fit, i, t, fill) for i, t in enumerate(fit.trials, 1)]
    band = [{"asked": fit.least, "end": fit.ratio}]
    ends = [v[key] for v in values for key in ("asked", "measured") if v[key] is not None] + [*band[0].values()]
    room = 0.06 * max(max(ends) - min(ends), 0.1)
    x = quantity(
        "asked", axis(f"share of the dense {_what(fit)}", grid=True), domain=[min(ends) - room, max(ends) + room]
    )
    y = labels()
    met = layer(band, {"type": "rect", "fill": "var(--better)", "fillOpacity": 0.16}, x=x, x2={"field": "end"})
    built = [v for v in values if v["measured"] is not None]
    line = layer(built, {"type": "rule", "color": "var(--muted)"}, x=x, x2={"field": "measured"}, y=y)
    tick = layer(values, {"type": "tick", "color": "var(--muted)", "thickness": 2, "height": 12}, x=x, y=y)
    mark = {"type": "point", "size": 90, "strokeWidth": 1.8, **_dashes(fit)}
    dots = described(built, mark, "trial", x=also(x, "measured"), y=y, **paint())
    words = {"type": "text", "align": "left", "dx": 6, "fontSize": 10, "color": "var(--ink)", "text": "cannot be built"}
    lost = layer([v for v in values if v["measured"] is None], words, x=x, y=y)
    return unit(50 + 24 * len(values), [met, tick, line, dots, lost])


def _dot(fit: Fit, place: int, trial: Trial, fill: str) -> dict[str, Any]:
    measured = f"measured {_share(trial.ratio)}" if trial.ratio is not None else f"not built: {trial.reason}"
    says = f"trial {place}: asked to leave {_share(trial.keep)}, {measured}{', chosen' if trial.chosen else ''}"
    full = 0.15 if _hollow(fit) and trial.chosen else 0.95 if trial.chosen else 0.0 if _hollow(fit) else 0.3
    at = {"label": f"trial {place}", "asked": trial.keep, "measured": trial.ratio}
    return {**at, "fill": fill, "opacity": full, "says": says}
