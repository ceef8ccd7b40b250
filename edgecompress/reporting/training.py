"""Training after compression: loss and score epoch by epoch, what it saw, and how it was set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from edgecompress.reporting.figure_style import Figure, Panel, Values, axis, colour, paint, quantity
from edgecompress.reporting.formatting import DASH, plain, plural, significant
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_compressed import Training
from edgecompress.reporting.model_variant import Variant
from edgecompress.reporting.request import ReportRequest, TechniqueFacts
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

SHARES = ("top1", "agreement")  # metrics in 0..1, the higher the better
FEW = 60  # epochs that are dotted, too
_CAPTION = (
    "Epoch after epoch: the mean loss, and the score on the split select. Dashed upright: another training begins, "
    "after more was taken out."
)
_DENSE = " The level line is the source's own score, on the test split: to show what could be regained."


def of_variant(job: ReportRequest, name: str) -> list[Training]:
    """Each training of a variant, in order; empty where there was none."""
    runs = []
    for step in (step for step in job.steps(name) if _trained(step["facts"])):
        known = {key: value for key, value in step["facts"].items() if value is not None}
        runs.append(msgspec.convert({**known, "technique": step["technique"]}, Training))
    return runs


def _trained(facts: TechniqueFacts) -> bool:
    epochs = facts.get("epochs")
    return isinstance(epochs, list) and bool(epochs) and all(isinstance(e, Mapping) and "epoch" in e for e in epochs)


def _shown(report: Report) -> list[tuple[Variant, Training]]:
    return [(v, run) for v in report.variants for run in v.training]


# ------------------------------------------------------------------ tables


def table(report: Report) -> TextTable:
    """Each training in a row: what it saw, where it began and ended, and how it was set."""
    head = ("variant", "by", "trained on", "epochs", "loss", "select", "how")
    rows = []
    for v, run in _shown(report):
        saw = f"{plural(run.samples or 0, 'item')} of the split {run.split}"
        ends = (" → ".join(dict.fromkeys(_ends(run, key))) or DASH for key in ("loss", "select"))
        rows.append((v.name, run.technique, saw, str(len(run.epochs)), *ends, _how(run)))
    return TextTable("Training", head, tuple(rows))


def _ends(run: Training, key: str) -> Iterator[str]:
    known = [value for e in run.epochs if (value := getattr(e, key)) is not None]
    for value in (known[:1] + known[-1:]) if known else ():
        yield score(run, value) if key == "select" else significant(value, 3)


def score(run: Training, value: float | None) -> str:
    """A score as its metric is written: `91.4 %`, `0.0123`."""
    return plain(value, "fraction" if run.metric in SHARES else "")


def _how(run: Training) -> str:
    """The settings in one line."""
    rates = [e.lr for e in run.epochs if e.lr is not None]
    rate = " → ".join(dict.fromkeys(f"{r:.3g}" for r in (max(rates), rates[-1]))) if rates else ""
    amp = f"in {run.amp}" if run.amp not in (None, "off") else ""
    teachers = " and ".join(run.teachers) or "the unpruned net"
    distilled = f"distilled from {teachers} at {run.distill:g}" if run.distill else "on labels alone"
    parts = (f"batch {run.batch_size}", f"rate {rate}" if rate else "", distilled, f"on {run.device}", amp)
    back = {None: "", 0: "ended worse, so it stays as it was"}.get(run.went_back, f"back to epoch {run.went_back}")
    return ", ".join(filter(None, (*parts, back)))


def epochs(report: Report) -> TextTable:
    """Epoch by epoch."""
    head = ("variant", "by", "epoch", "rate", "loss", "select", "metric")
    rows = []
    for v, run in _shown(report):
        for e in run.epochs:
            rate, loss = (DASH if number is None else f"{number:.4g}" for number in (e.lr, e.loss))
            rows.append((v.name, run.technique, str(e.epoch), rate, loss, score(run, e.select), run.metric or DASH))
    return TextTable("Every epoch", head, tuple(rows))


def notes(report: Report) -> Iterator[str]:
    """What a training saw that was meant for something else."""
    lent = sorted({v.name for v, run in _shown(report) if run.split == "calibrate"})
    if lent:
        yield f"There is no split 'train': {', '.join(lent)} trained on the calibration data."


def offer(report: Report) -> Iterator[str]:
    """The command that trains what shipped, where it can be and was not."""
    if _may_train(report):
        yield f"Pruning with 30 minutes of training may make it faster: {report.command} --train 30m"


def _may_train(report: Report) -> bool:
    """Whether a deploy to one target shipped a torch net that has data, and trained nothing."""
    is_net = (report.source.get("artifact") or {}).get("kind") == "module"
    has_data = not (report.data or {}).get("random", True)
    words = [*report.command.split(), ""]
    targets = words[words.index("--target") + 1] if "--target" in words else ""
    plain = words[:2] == ["edgecompress", "deploy"] and "," not in targets and "--from-search" not in words
    return is_net and has_data and plain and report.exit_code == 0 and not _shown(report)


# ------------------------------------------------------------------ the figure


def figure(report: Report) -> Figure:
    """The loss of each variant's trainings, one after another, and below it the score."""
    trained = [v for v in report.variants if v.training]
    panels = tuple(p for v in trained for p in _panels(v, colour(report, v.name)))
    ruled = any(_dense(v) is not None for v in trained)
    caption = _CAPTION + (_DENSE if ruled else "") if panels else ""
    return Figure("training", "Training, epoch by epoch", caption, panels)


def _panels(variant: Variant, stroke: str) -> Iterator[Panel]:
    runs, name = variant.training, variant.name
    metric = runs[-1].metric or "score"
    for key, word in (("loss", "loss"), ("select", f"{metric} on select{', %' if metric in SHARES else ''}")):
        if points := _points(runs, key):
            dense = _dense(variant) if key == "select" else None
            ends = [*_ends(runs[0], key)][:1] + [*_ends(runs[-1], key)][-1:]
            heading = f"{word.removesuffix(', %')}: {' → '.join(ends)}"
            yield Panel(heading, _spec(name, points, (word, dense), stroke), name)


def _points(runs: Sequence[Training], key: str) -> Values:
    """(epoch counted through, value) of each epoch that has one; `run` is which training."""
    every = [(i, run, e) for i, run in enumerate(runs) for e in run.epochs]
    points = []
    for at, (i, run, e) in enumerate(every, 1):
        if (value := getattr(e, key)) is not None:
            scale = 100 if key == "select" and run.metric in SHARES else 1
            points.append({"a": at, "w": scale * value, "run": i})
    return points


def _dense(variant: Variant) -> float | None:
    """The source's score where it is of the metric that training looked at."""
    metric = variant.verify.metric if variant.verify else None
    if metric is None or metric.before is None or metric.name not in SHARES:
        return None
    return 100 * metric.before if metric.name == variant.training[-1].metric else None


def _spec(name: str, points: Values, what: tuple[str, float | None], stroke: str) -> Spec:
    word, dense = what
    last, ends = points[-1]["a"], f"from {points[0]['w']:.4g} to {points[-1]['w']:.4g}"
    x = quantity("a", axis("epoch", format="d", tickMinStep=1), domain=[min(0.5, points[0]["a"] - 0.5), last + 0.5])
    y = quantity("w", axis(word.rpartition(", ")[2], grid=True, tickCount=4), nice=True)
    says = f"{name}, {word.removesuffix(', %')}: {ends} in {plural(last, 'epoch')}"
    values = [{**p, "says": says, "fill": stroke, "opacity": 0.9} for p in points]
    curve = described(
        values, {"type": "line", "stroke": stroke, "strokeWidth": 2, "strokeJoin": "round"}, word, x=x, y=y
    )
    dots = layer(values, {"type": "point", "size": 14}, x=x, y=y, **paint())
    alone = described(values, {"type": "point", "size": 40}, word, x=x, y=y, **paint())
    layers = [alone] if last == 1 else [curve, *([dots] if last <= FEW else [])]
    begins = [{"a": q["a"] - 0.5} for p, q in itertools.pairwise(points) if q["run"] != p["run"]]
    between = {"type": "rule", "color": "var(--muted)", "strokeDash": [4, 3]}
    level = layer([{"w": dense}], {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.2}, y=y)
    words = {"type": "text", "align": "left", "x": 4, "dy": -6, "fontSize": 10, "color": "var(--ink)"}
    named = layer([{"w": dense}], {**words, "text": f"dense {dense:.4g} %" if dense is not None else ""}, y=y)
    return unit(130, [*([level, named] if dense is not None else []), layer(begins, between, x=x), *layers])
