"""`edgecompress advise`: what fits a net, its data and a target, ranked before anything is built."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Unpack

from edgecompress.commands import analyze, check, job_run, objects
from edgecompress.commands.check import CheckedVariant
from edgecompress.core import config, registry
from edgecompress.core.errors import EdgeError, InputError, NoPath, did_you_mean, edge_errors
from edgecompress.core.json import Json
from edgecompress.core.model import seconds
from edgecompress.core.operations import MULTIPLYING, Operation
from edgecompress.core.plain_text import plural, printed, wrapped
from edgecompress.core.settings import TRAIN, Variant
from edgecompress.extras.search import expected_gains
from edgecompress.extras.search.expected_gains import KINDS, OBJECTIVES, Expected, Interval, Record
from edgecompress.pipeline import conversion, first_stages, plan
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.job_request import How, JobRequest, Model, Name, Options, default, keywords
from edgecompress.pipeline.plan import Plan
from edgecompress.pipeline.runner import PlanRun
from edgecompress.reporting import history, read

WIDTH = 100
FIRST, MOST = 3, 2  # rows and, of each, lines of reasons and of its command that are shown at first
TOLD = ("data", "metric", "profile", "samples", "batch", "seed")  # keywords that the command of a row names
REPORTS = 50  # of the history, the newest
ALIGN = 16  # channels: that is measured only on a device at hand
LITTLE = 0.01  # of the MACs and of the weights: what changes less is no variant
PRODUCTS = ("int8-weights", "int4")  # they round the weights of matrix products
# What the runtimes of a target can do that it does not ask of them, and what changes the net before a variant's steps.
WORDS = ("fp16", *PRODUCTS)
RECIPES: Mapping[str, tuple[Sequence[Mapping[str, Json]], str]] = {
    "qat": (({"use": "qat"},), "for int8 that loses too much accuracy; no faster than int8"),
    "pruned": (
        ({"use": "prune_channels", "align": ALIGN}, {"use": "finetune"}),
        "half of the channels pruned, then fine-tuned",
    ),
    "low-rank": (
        ({"use": "low_rank", "align": ALIGN}, {"use": "finetune"}),
        "low-rank layers with half of their MACs, then fine-tuned",
    ),
    "distilled": (
        ({"use": "distill", "student": "PKG.MOD:STUDENT"},),
        "gains depend on the student net: give its name",
    ),
    "scheduled": (({"use": "schedule", "file": "SCHEDULE.yaml"},), "by a schedule of Distiller: give its file"),
}


@dataclass(frozen=True)
class Advice:
    """A row. `rank` from 1; 0 is one that does not fit, `why` says why. Gains: see expected_gains."""

    variant: str
    runtime: str
    steps: Sequence[str]
    own: bool  # a variant of the target, which `deploy` tries by itself
    why: Sequence[str]
    rank: int = 0
    gains: Mapping[str, Interval | None] = field(default_factory=dict)  # by objective
    kept: float | None = None  # the share of the records in which it kept its limits
    records: Mapping[str, str] = field(default_factory=dict)  # net -> the report or the file that says so
    one_session: bool = False  # there is one record alone, and its times have no interval
    minutes: float | None = None
    command: str = ""


@dataclass(frozen=True, repr=False)
class Advised:
    """The rows, the best first. `minutes`: of a deploy of all variants of the target.

    `features`: see expected_gains; `shares`: of the MACs and the parameters, by kinds of layers; `data`:
    items by split, empty where none were given.
    """

    source: str
    target: str
    objective: str
    features: Mapping[str, float]
    shares: Mapping[str, Mapping[str, float]]
    data: Mapping[str, int]
    minutes: float
    rows: Sequence[Advice]

    def __repr__(self) -> str:
        return f"Advised({text(self, brief=True)})"

    def __str__(self) -> str:
        return printed(lambda columns: text(self, width=min(columns, WIDTH)))


@keywords
@edge_errors
def advise(
    model: Model | None = None,
    target: Name = "x86",
    *,
    objective: str = "latency",
    options: Options | None = None,
    **how: Unpack[How],
) -> Advised:
    """What fits `model` (None: the embedded demo) and a target, ranked by what is expected. Raises EdgeError.

    The keywords are those of `deploy`; a file needs no data. objective: "latency", "size" or "energy".
    """
    if objective not in OBJECTIVES:
        raise InputError(f"--objective {objective}: give {', '.join(OBJECTIVES)}{did_you_mean(objective, OBJECTIVES)}")
    options = options or Options()
    request = objects.written(model, how, options) | JobRequest(target=target)
    job = check.job_of(request)
    data = request.get("data") or ("random" if job.source.value.random else None)  # that a deploy has to be told
    words = ["edgecompress", "deploy", *([str(request["model"])] if request["model"] else []), "--target", str(target)]
    for name, value in {**request, "data": data}.items():
        words += [] if name not in TOLD or value in (None, default(name)) else [f"--{name}", str(value)]
    walk = job_run.begin(job, options, f"{job.source.given}>{job.target.path}")  # as a deploy: what is told, it told
    return _Adviser(job, walk, words, request.get("settings") or {}).advised(objective)


@dataclass(frozen=True)
class _Adviser:
    """What all rows are told by."""

    job: Job
    walk: PlanRun
    words: Sequence[str]  # of the command line, up to `settings`
    settings: Mapping[str, Json]
    references: set[str] = field(default_factory=set)  # the target's that are reached: what others are measured beside

    def advised(self, objective: str) -> Advised:
        """The rows in their order: the target's own variants, then what goes beyond it."""
        checked = check.variants(self.job, self.walk)
        self.references.update(
            v.name for v in self.job.target.value.variant if v.reference and checked[v.name]["reached"]
        )
        for stage in analyze.stages(self.job, analyze.AnalysisRequest()):
            if stage.name not in self.walk.outcomes:
                alone = stage.name not in ("source", plan.ITEMS, "data")
                self.walk.stage(dataclasses.replace(stage, variants=first_stages.ALONE) if alone else stage)
        own = [self._row(v, checked[v.name]) for v in self.job.target.value.variant]
        ordered = _ordered(own, objective)
        beyond = [self._row(v, checked[base], says) for v, base, says in self._beyond(ordered)]
        rows = [*ordered, *_ordered(beyond, objective)]
        fits = [row for row in rows if row.command]
        ranked = [dataclasses.replace(row, rank=number) for number, row in enumerate(fits, 1)]
        minutes = self._minutes(plan.deploy(self.job))
        every = [*ranked, *(row for row in rows if not row.command)]
        title = self.job.source.value.title
        return Advised(title, self.job.target.name, objective, self.features, self.shares, self.splits, minutes, every)

    # ------------------------------------------------------------------ what is known

    @cached_property
    def features(self) -> Mapping[str, float]:
        """By what `analyze` counted; where shapes are known at run time only, by the weights and the operators."""
        if analysis := self.walk.outcomes["analysis"].artifact:
            return expected_gains.features(analysis.facts)
        return {"weights": math.log10(max(1, self.parameters)), **self.shares["macs"]}

    @cached_property
    def shares(self) -> Mapping[str, Mapping[str, float]]:
        """Each kind's part of the MACs and parameters; where these are unknown, of the operators that multiply."""
        analysis = self.walk.outcomes["analysis"].artifact
        layers = analysis.facts["layers"] if analysis else self._multiplying
        return {of: expected_gains.shares(layers, of) for of in ("macs", "parameters")}

    @property
    def _multiplying(self) -> Sequence[Mapping[str, Json]]:
        made = (o.artifact for name, o in self.walk.outcomes.items() if name.startswith("operators/"))
        read = next(filter(None, made), None)  # of a kind whose operators nothing reads there is none
        types = [Operation(*fields).word for fields in read.facts["operations"]] if read else []
        return [{"type": word, "macs": 1, "parameters": 1} for word in types if word in MULTIPLYING]

    @cached_property
    def parameters(self) -> int:
        """As many as are counted; else as many float32 as the source's file has room for."""
        analysis = self.walk.outcomes["analysis"].artifact
        held = job_run.artifact_of(self.walk, "source").size_bytes // 4
        return int(analysis.facts["total"]["parameters"]) if analysis else held

    @cached_property
    def splits(self) -> Mapping[str, int]:
        """Items by split; none of data that is made up."""
        if self.job.source.value.random:
            return {}
        front = {stage.name: stage for stage in plan.front(self.job)}
        wanted = [front[name] for name in front if name in ("source", plan.ITEMS, "data")]
        self.walk.stages([stage for stage in wanted if stage.name not in self.walk.outcomes])
        return dict(job_run.artifact_of(self.walk, "data").facts["splits"])

    @cached_property
    def records(self) -> Sequence[Record]:
        """The user's own reports of this target that are still in the store, then what ships with the package."""
        try:
            rows = history.rows(self.walk.store.root, target=self.job.target.name, limit=REPORTS)
        except InputError:  # nothing was deployed yet
            rows = []
        own = []
        for folder in dict.fromkeys(row["report"] for row in rows):
            try:
                own.append(expected_gains.of_report(read.report(Path(folder)), folder))
            except InputError:  # no longer there, or of another version
                continue
        return [*own, *expected_gains.of_platform(expected_gains.prior().records, self.job.target.value.platforms)]

    def _expected(self, runtime: str, variant: Variant, objective: str) -> Expected:
        """By the records of the same steps; else of the last ones, times what the first ones are known to gain."""
        sha256, told = job_run.artifact_of(self.walk, "source").sha256, Expected()
        steps, factors = [str(step["use"]) for step in variant.compress], expected_gains.prior().factors
        for lead in range(len(variant.compress) - len(conversion.quantizing(variant)) + 1):
            name = expected_gains.key(runtime, steps[lead:])
            told = expected_gains.expected(name, self.features, self.records, objective, sha256)
            for step in steps[:lead]:
                told = told.times(factors.get(step))
            if told.records:
                break
        return told

    def _minutes(self, steps: Plan) -> float:
        """Of a plan, each stage as the last time, else as it says of itself, at the pace of nets like this one."""
        pace = expected_gains.pace(self.features, self.records)
        known = [(self.walk.store.expected_s(f"{self.walk.scope}:{step.name}"), step) for step in steps.stages]
        told = sum(seconds(step) * pace if took is None else took for took, step in known)
        return (
            told + (self.walk.store.expected_s(f"{self.walk.scope}:{steps.race.name}") or steps.race.estimate_s())
        ) / 60

    # ------------------------------------------------------------------ rows

    def _row(self, variant: Variant, checked: CheckedVariant, says: str = "") -> Advice:
        """A variant's; `checked` is that of the variant which it is made from, `says`: it is none of the target's."""
        runtime, own = variant.runtime or self.job.target.value.runtime, not says
        steps = tuple(str(step["use"]) for step in variant.compress)
        row = Advice(variant.name, runtime, steps, own, [checked["why"]])
        if not checked["reached"]:
            return row
        beside = [v for v in self.job.target.value.variant if v.name in self.references and v.name != variant.name][:1]
        try:
            made = plan.deploy(self.job.having((variant, *beside)))
            minutes = self._minutes(made)
            trained = self._to_train_on(made)
        except EdgeError as error:
            return dataclasses.replace(row, why=[error.what if isinstance(error, NoPath) else str(error)])
        word = conversion.precision(variant)
        computed = {of: self._computed(word, checked, of) for of in ("macs", "parameters")}
        if word != "fp32" and max(computed.values()) < LITTLE:
            return dataclasses.replace(
                row, why=[f"no effect: {word} does not apply to the layers of this net in {runtime}"]
            )
        told = self._expected(runtime, variant, "latency")
        size = expected_gains.size(word, self.parameters, computed["parameters"], checked["operators"])
        energy = self._expected(runtime, variant, "energy").gain or told.gain
        why = [*([says] if says else []), *self._reasons(word, checked, computed), *trained, _recorded(told)]
        return dataclasses.replace(
            row, why=why, gains={"latency": told.gain, "size": size, "energy": energy}, kept=told.kept,
            records=told.records, one_session=told.one_session, minutes=minutes,
            command=self._command(variant, beside, own),
        )  # fmt: skip

    def _computed(self, word: str, checked: CheckedVariant, of: str) -> float:
        """The share of the MACs or parameters that certainly becomes of a precision, by kinds of layers."""
        left = {expected_gains.kind(each["type"]) for each in checked["floats"] if each["multiplies"]}
        left |= {kind for kind in KINDS if word in PRODUCTS and kind != "matrix products"}
        return sum(part for kind, part in self.shares[of].items() if kind not in left)

    def _reasons(self, word: str, checked: CheckedVariant, computed: Mapping[str, float]) -> Iterator[str]:
        accelerator = registry.runtime(checked["runtime"]).accelerator
        if word != "fp32":
            yield f"{word}: {computed['macs']:.0%} of the MACs, {computed['parameters']:.0%} of the weights at least"
        if out := sum(each["count"] for each in checked["outside"]):
            yield f"{plural(out, 'operator')} outside {accelerator}"
        if word in ("int8", "fp16") and not self.splits:
            yield "give --data: with random data its accuracy is not known"
        elif word == "int8":
            yield f"calibrates on {plural(self.splits['calibrate'], 'item')}"

    def _to_train_on(self, made: Plan) -> list[str]:
        """How many items there are where something trains; raises InputError where there are none."""
        stage = next((step for step in made.stages if step.name == "training"), None)
        if not stage or not self.splits:
            return ["no data: give --data with items to train on"] if stage else []
        self.walk.stages([stage])
        items = job_run.artifact_of(self.walk, "training").facts["splits"][TRAIN]
        return [f"trains on {plural(items or self.splits['calibrate'], 'item')}" + ("" if items else " of calibrate")]

    def _beyond(self, rows: Sequence[Advice]) -> Iterator[tuple[Variant, str, str]]:
        """(variant, the target's one whose graph it shares, what it is) of what the target does not ask for."""
        target = self.job.target.value
        ask = {(v.runtime or target.runtime, conversion.precision(v)): v for v in reversed(target.variant)}
        for runtime in dict.fromkeys(runtime for runtime, _ in ask):
            base = next(v for (where, _), v in ask.items() if where == runtime)
            for word in WORDS:
                variant = Variant(f"{runtime}-{word}", runtime, ({"use": word},))
                if (runtime, word) not in ask:
                    yield variant, base.name, "not a variant of the target"
        best = next((row for row in rows if row.command and row.steps), None)
        for name, (steps, says) in RECIPES.items() if best else ():
            base = next(v for v in target.variant if best and v.name == best.variant)
            variant = dataclasses.replace(base, name=f"{name}-{base.name}", compress=(*steps, *base.compress))
            yield variant, base.name, says

    def _command(self, variant: Variant, beside: Sequence[Variant], own: bool) -> str:
        raced = (variant, *beside)
        sets = {k: v for k, v in self.settings.items() if own or not k.startswith("variant.")}
        if not own:
            default = Variant("")
            plain = [{k: v for k, v in dataclasses.asdict(each).items() if v != getattr(default, k)} for each in raced]
            sets["target.variant"] = plain
        words = [word for key, value in sets.items() for word in ("--set", f"{key}={config.to_toml(value)}")]
        return shlex.join([*self.words, *words, *(["--only", ",".join(v.name for v in raced)] if own else [])])


def _ordered(rows: Sequence[Advice], objective: str) -> list[Advice]:
    """The best first; those of which nothing is known in their own order."""
    return sorted(rows, key=lambda row: expected_gains.place(row.kept, row.gains.get(objective)))


def _recorded(told: Expected) -> str:
    """Which nets the records are of, what of, and how often that kept its limits there."""
    if not told.records:
        return "no record of it on such a platform"
    names = [Path(net).name if Path(net).is_absolute() else net for net in told.records]
    if len(names) == 1:
        return f"{told.of} {'kept' if told.kept else 'did not keep'} its limits in the one record, {names[0]}"
    return f"{told.of} kept its limits in {told.kept or 0.0:.0%} of the records: {', '.join(names)}"


# --------------------------------------------------------------------------- as text


def text(advised: Advised, brief: bool = False, everything: bool = True, width: int = WIDTH) -> str:
    """The rows, each with its reason and its command; without `everything` the first three, on one screen.

    `brief`: their names, in one line.
    """
    fits = [row for row in advised.rows if row.rank]
    if brief:
        return f"{advised.source}, {advised.target}: {', '.join(row.variant for row in fits[:FIRST]) or 'nothing fits'}"
    net = {name: 10**decades for name, decades in advised.features.items()}
    shares = ", ".join(f"{name} {part:.0%}" for name, part in advised.shares["macs"].items() if part >= 0.005)
    macs = f"{net['macs']:,.0f} MACs" if "macs" in net else "MACs unknown before it runs; of the operators"
    data = ", ".join(f"{name} {count:,}" for name, count in advised.data.items()) or "none"
    lines = [
        f"{advised.source}, {advised.target}, ranked by {advised.objective}",
        *wrapped(f"{macs} ({shares or 'none'}); {net['weights']:,.0f} parameters; data: {data}", width, 2),
        *wrapped(f"gains over the best uncompressed variant; all variants: {_took(advised.minutes)}", width, 2),
    ]
    shown = fits if everything else fits[:FIRST]
    for row in shown:
        lines += ["", *_row(row, advised.objective, everything, width)]
    if not everything:
        left = [(len(fits) - len(shown), "more that fit"), (len(advised.rows) - len(fits), "that do not fit")]
        counts = " and ".join(f"{count} {what}" for count, what in left if count)
        return "\n".join([*lines, *([f"{counts}: --verbose"] if counts else [])])
    sources = dict.fromkeys(source for row in fits for source in row.records.values())
    lines += ["", *wrapped(f"recorded in: {', '.join(sources)}", width, 2, 0)] if sources else []
    lines += ["", "does not fit:"] if len(fits) < len(advised.rows) else []
    lines += [
        line for row in advised.rows if not row.rank for line in wrapped(f"{row.variant}: {row.why[0]}", width, 6, 2)
    ]
    return "\n".join(lines)


def _row(row: Advice, objective: str, everything: bool, width: int) -> Iterator[str]:
    """A row's gains, reasons and command; without `everything` in at most five lines."""
    shown = [name for name in row.gains if name in ("latency", "size", objective)]
    told = ", ".join(f"{name} {_times(row.gains[name], row.one_session and name != 'size')}" for name in shown)
    yield from wrapped(
        f"{row.rank:>2}  {row.variant} ({row.runtime}): {told}, {_took(row.minutes or 0.0)}", width, 6, 0
    )
    reasons = wrapped("; ".join(row.why), width if everything else width - 2, 6)
    if everything or len(reasons) <= MOST:
        yield from reasons
    else:
        yield from (*reasons[: MOST - 1], f"{reasons[MOST - 1].rstrip(':;')} …")
    command = f"      {row.command}"
    yield command if everything or len(command) <= MOST * width else "      its command: --verbose"


def _times(gain: Interval | None, one_session: bool) -> str:
    """`1.7x (1.5–1.9)`; what is told by one record, or is counted, has no interval."""
    if gain is None:
        return "unknown"
    middle, low, high = (f"{each:.2g}" for each in (gain.middle, gain.low, gain.high))
    ends = f" ({low}–{high})" if low != high else " (one session)" if one_session else ""
    return f"{middle}x{ends}"


def _took(minutes: float) -> str:
    return f"{minutes:.1f} min" if minutes < 10 else f"{minutes:.0f} min"
