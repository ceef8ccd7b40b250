"""How the strength of a compression was found by measuring: what each part saves on the device, then trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgecompress.reporting.figure_style import Figure, Panel, Report, also, axis, colour, labels, paint, quantity
from edgecompress.reporting.formatting import DASH, GUESSED, plain, plural, significant
from edgecompress.reporting.request import ReportRequest, StrengthFacts
from edgecompress.reporting.tables import Table
from edgecompress.reporting.vega import Spec, layer, told, unit

Found = dict[str, Any]
KEYS = ("goal", "ratio", "least", "status", "simulated", "runtime", "dense_ms")
MOST = 40  # cells in a panel
_CAPTION = (
    "First the table of the device: each class of layers narrowed alone, to the width after the @, and the share of "
    "the dense net's {what} that this saves. Then the trials: from the share that one was asked to leave by that table "
    "(tick) to the share that it measured (dot). Shaded: what was to be met. Full: chosen."
)


def of_request(job: ReportRequest) -> list[Found]:
    """Each fit of a run, with its trials; of one that got no further than its table, why."""
    return [_found(stage, facts) for stage, facts in job.fits.items()]


def _found(stage: str, facts: StrengthFacts) -> Found:
    chosen = str(facts.get("chosen") or "")
    trials = [{**t, "chosen": t["stage"] == chosen} for t in facts.get("trials") or ()]
    return {
        "stage": stage,
        "variant": stage.partition("/")[0],
        "technique": stage.rpartition("/")[2],
        "reason": str(facts.get("reason") or ""),
        **{key: facts.get(key) for key in KEYS},
        "saved": dict(facts.get("saved") or {}),
        "crashed": {str(k): str(v) for k, v in (facts.get("crashed") or {}).items()},
        "trials": trials,
    }


def chosen(found: Found) -> Mapping[str, Any] | None:
    """The trial that the search ended with."""
    return next((t for t in found["trials"] if t["chosen"]), None)


def beside(found: Found) -> Mapping[str, Any] | None:
    """Of a search that met no goal within its band: the fastest trial that was too slow, the chosen one's neighbour."""
    best = chosen(found)
    if best is None or best["ratio"] >= found["least"]:
        return None
    slow = [t for t in found["trials"] if t["ratio"] is not None and t["ratio"] > found["ratio"]]
    return min(slow, key=lambda t: float(t["ratio"]), default=None)


def asked_and_found(report: Report, variant: str) -> str:
    """`0.6 of the dense latency: 0.574`; empty where nothing was asked for."""
    found = next((f for f in report["fits"] if f["variant"] == variant), None)
    best = chosen(found) if found else None
    return f"{asked(found)}: {_share(best['ratio']) if best else 'not found'}" if found else ""


def asked(found: Found) -> str:
    """`0.6 of the dense latency`, `at most 8 ms (0.53 of the dense latency)`."""
    goal = found["goal"] or {}
    if found["ratio"] is None:
        return DASH
    share = f"{found['ratio']:.3g} of the dense {_what(found)}"
    return share if goal.get("quantity") == "ratio" else f"at most {plain(goal.get('value'), 'ms')} ({share})"


def _what(found: Found) -> str:
    return "instructions" if found["simulated"] else "latency"


def _share(ratio: float | None) -> str:
    return DASH if ratio is None else significant(ratio, 3)


# ------------------------------------------------------------------ tables


def table(report: Report) -> Table:
    """What was asked for, what was found, and how."""
    head = ("variant", "by", "asked for", "found", "trials", "on", "how it ended")
    return Table("How the strength was found", head, tuple(map(_row, report["fits"])))


def _row(found: Found) -> tuple[str, ...]:
    best = chosen(found)
    simulated = f" by {found['simulated']}" if found["simulated"] else ""
    where = f"{found['runtime'] or DASH}, {found['status']}{simulated}" if found["status"] else DASH
    trials = f"{plural(len(found['saved']), 'cell')}, {plural(len(found['trials']), 'trial')}"
    measured = _share(best["ratio"]) if best else DASH
    return found["variant"], found["technique"], asked(found), measured, trials, where, found["reason"]


def saved(report: Report) -> Table:
    """The table of the device: what each cell saves of the dense net."""
    cells = [
        (f, label, f"{100 * share:.1f} %".replace("-", "−"))
        for f in report["fits"]
        for label, share in f["saved"].items()
    ]
    broken = [(f, label, f"{DASH} crashed: {why}") for f in report["fits"] for label, why in f["crashed"].items()]
    rows = ((f["variant"], label, said, f["status"] or DASH) for f, label, said in (*cells, *broken))
    return Table("What each class of layers saves", ("variant", "narrowed alone", "saved", "status"), tuple(rows))


def trials(report: Report) -> Table:
    """Each trial: what it was asked to leave, what it left."""
    head = ("variant", "trial", "asked to leave", "measured", "left of the parts", "note")
    found = [(f, i, t) for f in report["fits"] for i, t in enumerate(f["trials"], 1)]
    return Table("Trials", head, tuple(_trial(f, i, t) for f, i, t in found))


def _trial(found: Found, place: int, trial: Mapping[str, Any]) -> tuple[str, ...]:
    note = ", ".join(filter(None, ("chosen" if trial["chosen"] else "", trial["reason"])))
    ends = _share(trial["keep"]), _share(trial["ratio"])
    return found["variant"], str(place), *ends, _widths(trial["kept"]), note


def _widths(kept: Mapping[str, int]) -> str:
    """`2 of 0, 9 of 16, 4 of 32`: how many parts are left with which width (by low rank: with what part of MACs)."""
    counted = Counter(kept.values())
    return ", ".join(f"{counted[width]} of {width}" for width in sorted(counted)) or DASH


def neighbours(report: Report) -> Table:
    """Where no width lay between: in what the two trials on either side of the goal differ."""
    pairs = [(f, chosen(f), beside(f)) for f in report["fits"]]
    head = ("variant", "part", "chosen", "the next wider one")
    rows = tuple(row for f, a, b in pairs if a and b for row in _neighbours(f["variant"], a, b))
    return Table("Neighbours: no width lies between", head, rows)


def _neighbours(variant: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, ...]]:
    kept = a["kept"], b["kept"]
    rows = [(variant, part, *(str(k.get(part, DASH)) for k in kept)) for part in dict.fromkeys((*kept[0], *kept[1]))]
    return [(variant, "all, measured", _share(a["ratio"]), _share(b["ratio"])), *(r for r in rows if r[2] != r[3])]


# ------------------------------------------------------------------ figures


def figure(report: Report) -> Figure:
    """Of each fit what each cell saves, and the way of the trials to the goal."""
    panels = tuple(panel for found in report["fits"] for panel in _panels(found, colour(report, found["variant"])))
    return Figure("fits", "What each class saves, then trials", _caption(report["fits"]) if panels else "", panels)


def _panels(found: Found, fill: str) -> Iterator[Panel]:
    if found["saved"]:
        yield Panel(_heading(found), _cells(found, fill), found["variant"])
    if found["trials"]:
        yield Panel(_way(found), _trials(found, fill), found["variant"])


def _caption(found: Sequence[Found]) -> str:
    what = " or ".join(dict.fromkeys(map(_what, found)))
    return _CAPTION.format(what=what) + (" Dashed and hollow is simulated." if any(map(_hollow, found)) else "")


def _hollow(found: Found) -> bool:
    return found["status"] in GUESSED


def _dashes(found: Found) -> dict[str, Any]:
    return {"strokeDash": [3, 2]} if _hollow(found) else {}


def _heading(found: Found) -> str:
    dense = f"dense {plain(found['dense_ms'], 'ms')}, " if found["dense_ms"] is not None else ""
    return f"{plural(len(found['saved']), 'cell')}: {dense}{found['runtime']}, {found['status']}"


def _way(found: Found) -> str:
    best = chosen(found)
    ended = f"found {_share(best['ratio'])}" if best else "not found"
    return f"{plural(len(found['trials']), 'trial')}: {asked(found)}, {ended}"


def _cells(found: Found, fill: str) -> Spec:
    most = dict(sorted(found["saved"].items(), key=lambda pair: -abs(pair[1]))[:MOST])
    shown = [(label, 100 * share) for label, share in found["saved"].items() if label in most]
    paints = {"fill": fill, "opacity": 0.12 if _hollow(found) else 0.85}
    values = [
        {"label": label, "share": n, **paints, "says": f"{label}: saves {n:.1f} % of the {_what(found)}"}
        for label, n in shown
    ]
    x, y = quantity("share", axis("% saved", grid=True), zero=True), labels()
    bars = told(values, {"type": "bar", "height": 10, **_dashes(found)}, "cell", x=x, y=y, **paint())
    zero = layer([{"share": 0}], {"type": "rule", "color": "var(--ink)"}, x=x)
    return unit(44 + 16 * len(values), [bars, zero])


def _trials(found: Found, fill: str) -> Spec:
    values = [_dot(found, i, t, fill) for i, t in enumerate(found["trials"], 1)]
    band = [{"asked": found["least"], "end": found["ratio"]}]
    ends = [v[key] for v in values for key in ("asked", "measured") if v[key] is not None] + [*band[0].values()]
    room = 0.06 * max(max(ends) - min(ends), 0.1)
    x = quantity(
        "asked", axis(f"share of the dense {_what(found)}", grid=True), domain=[min(ends) - room, max(ends) + room]
    )
    y = labels()
    met = layer(band, {"type": "rect", "fill": "var(--better)", "fillOpacity": 0.16}, x=x, x2={"field": "end"})
    built = [v for v in values if v["measured"] is not None]
    line = layer(built, {"type": "rule", "color": "var(--muted)"}, x=x, x2={"field": "measured"}, y=y)
    tick = layer(values, {"type": "tick", "color": "var(--muted)", "thickness": 2, "height": 12}, x=x, y=y)
    mark = {"type": "point", "size": 90, "strokeWidth": 1.8, **_dashes(found)}
    dots = told(built, mark, "trial", x=also(x, "measured"), y=y, **paint())
    words = {"type": "text", "align": "left", "dx": 6, "fontSize": 10, "color": "var(--ink)", "text": "cannot be built"}
    lost = layer([v for v in values if v["measured"] is None], words, x=x, y=y)
    return unit(50 + 24 * len(values), [met, tick, line, dots, lost])


def _dot(found: Found, place: int, trial: Mapping[str, Any], fill: str) -> dict[str, Any]:
    measured = f"measured {_share(trial['ratio'])}" if trial["ratio"] is not None else f"not built: {trial['reason']}"
    says = f"trial {place}: asked to leave {_share(trial['keep'])}, {measured}{', chosen' if trial['chosen'] else ''}"
    full = 0.15 if _hollow(found) and trial["chosen"] else 0.95 if trial["chosen"] else 0.0 if _hollow(found) else 0.3
    at = {"label": f"trial {place}", "asked": trial["keep"], "measured": trial["ratio"]}
    return {**at, "fill": fill, "opacity": full, "says": says}
