"""Compares the outputs of an artifact, run here by its own runtime, with the source's; and checks the limits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from edgecompress.core import config, extras, registry
from edgecompress.core.errors import EdgeError, StageFailed
from edgecompress.core.model import AT_CHANCE, Artifact, Check, Promise, Request
from edgecompress.core.protocols import OperatorTime, Shell
from edgecompress.core.settings import Limits
from edgecompress.core.source import LENGTHS
from edgecompress.data import (
    channel_axis,
    detections,
    flip_risk,
    metric_limits,
    metrics,
    output_channels,
    output_checks,
    output_error,
    output_statistics,
    segments,
    task_metrics,
    tensors,
)
from edgecompress.device import agent_client
from edgecompress.device.agent.operators import OperatorsAnswer
from edgecompress.device.agent.outputs import Outputs
from edgecompress.device.request import AgentRequest
from edgecompress.formats.precision import facts as precision_facts
from edgecompress.stages import doubts, engine_defaults, reference_answers

if TYPE_CHECKING:
    import numpy as np

SPLIT = "test"
DEADLINE_S = 3000.0  # of one agent


class TimedOperator(TypedDict):
    """One operator as the agent timed it; `ms` is None where it has no time."""

    name: str
    type: str
    ms: float | None


class FallbackOperator(TimedOperator):
    """An operator that left the accelerator, with its share of all operators' time."""

    share: float | None


class OutputFacts(output_error.ErrorFacts, output_channels.ChannelFacts):
    """The error of one output, as a whole and by channel."""

    name: str


@dataclass(frozen=True)
class Results:
    """What the limits are compared with. `fallback` is None where the runtime does not report it.

    `moved` is how far each output moved since it shipped; empty where nothing of that is known. `scored` are the
    outputs that the metric reads.
    """

    outputs: Sequence[OutputFacts]
    not_finite: Mapping[str, int]  # output -> items, of those outputs that have any
    metric: metrics.MetricComparison | None
    size_bytes: int
    fallback: Sequence[FallbackOperator] | None
    reasons: Mapping[str, str]  # why "metric", "fallback" or the operators' times are None
    moved: Sequence[reference_answers.Moved] = ()
    scored: frozenset[str] = frozenset()  # the outputs that the metric reads
    no_proof: str = ""  # why the accuracy is none
    items: Mapping[str, str] = field(default_factory=dict)  # "right" or "scores": as metrics.items has them
    detector: Mapping[str, Any] | None = None  # how its boxes and scores are read, by the artifact's names
    # COCO's other average precisions of the source and of the artifact
    coco: Mapping[str, tuple[float | None, float | None]] | None = None
    segments: Mapping[str, Any] | None = None  # how the class of each pixel is read, by the artifact's name


def run(request: Request) -> Artifact:
    """The stage: {"model": the artifact, "golden", "samples"} -> "verdict": checks, scores per item, first outputs.

    before.npy and after.npy hold the scores; what reference_answers keeps lies beside them. With the inputs
    "excerpt" and "verdict", which shipped with the artifact, its outputs are compared with those of then.
    options: "runtime", "metric", "limits" (the table of settings.Limits), "output" (the one that the metric is of),
    "detect" (of settings.Detect), "split" (SPLIT, or the one that something is chosen by), "precision" (the recipe's
    "promise", the variant's "name"), "given" (of a variant without steps: its "name", and the limits on answers of
    each precision that its source may have, "" of any other).
    facts: "limits" are those that counted, `lost` is the first check that failed.
    Raises StageFailed when the runtime does not run the artifact.
    """
    given = request.options.get("given")
    held = precision_facts.narrower(precision_facts.of(request.model), given["name"]) if given else ""
    # the limits on answers that count instead where a source came narrower than its variant's name says
    instead = given["limits"].get(held, given["limits"][""]) if held else {}
    limits = config.build(Limits, {**request.options["limits"], **instead}, "limits")
    shell = registry.load("transports", "host").connect({})
    with tempfile.TemporaryDirectory(dir=request.out) as scratch:
        request.progress(0.0, f"running {request.options['runtime']}")
        first = replace(_agent_request(request, "outputs"), defaults=engine_defaults.ITEMS)
        told: Outputs = agent_client.ask(shell, first, Path(scratch), DEADLINE_S)
        request.progress(0.6, "where its operators run")
        fallback = ([], "") if told["fallback"] == [] else _fallback(request, shell, limits)
        request.progress(0.8, "comparing")
        reference_answers.keep(Path(scratch), _split(request), request.model, request.out)
        golden = request.inputs["golden"]
        names = pairs(golden, request.model)
        defaults = engine_defaults.facts(told.get("defaults"), Path(scratch), _split(request), golden, names)
        lengths: list[Check] = []
        if request.inputs["samples"].facts.get(LENGTHS):
            text_lengths = extras.part("hugging_face", "text_lengths")
            asked = text_lengths.Asked(shell, _agent_request(request, "outputs"), DEADLINE_S)
            lengths += text_lengths.run(request, asked, Path(scratch))
        results = replace(_results(request, Path(scratch), fallback), moved=_moved(request, shell, limits))
    n = tensors.count(request.inputs["samples"], _split(request))
    facts = _facts(results, [*_checks(results, limits), *lengths, *_precision(request)]) | {"limits": asdict(limits)}
    return Artifact(request.out, "verdict", facts={"n": n, **facts, **defaults}).write()


def _facts(results: Results, checks: Sequence[Check]) -> dict[str, object]:
    lost = next((check.says for check in checks if check.ok is False), "")
    told: dict[str, object] = {
        "outputs": results.outputs,
        "metric": results.metric,
        "checks": [asdict(check) for check in checks],
        "reasons": results.reasons,
    }
    no_proof = results.no_proof or None
    known = {
        "fallback": results.fallback,
        **results.items,
        AT_CHANCE: no_proof,
        "lost": lost or None,
        "detector": results.detector,
        "coco": results.coco,
        "segments": results.segments,
    }
    return told | {name: value for name, value in known.items() if value is not None}


def _split(request: Request) -> str:
    return str(request.options.get("split", SPLIT))


def _agent_request(request: Request, mode: str) -> AgentRequest:
    return AgentRequest(
        mode,
        runtime=agent_client.plugin("runtimes", request.options["runtime"]),
        artifact=str(request.model.path),
        samples=str(request.inputs["samples"].path),
        split=_split(request),
        threads=request.context.threads,
        batch=request.context.batch,
        profile={"ops_runs": 1},
    )


def _fallback(request: Request, shell: Shell, limits: Limits) -> tuple[list[FallbackOperator] | None, str]:
    """The operators that left the accelerator; None, or None for their times, with the reason.

    Raises what broke the profile of operators only where a limit needs it.
    """
    first = request.model.batch  # of a net that is made for one alone
    batch = first if isinstance(first, int) else request.context.batch
    ops_request = replace(_agent_request(request, "ops"), batch=batch)
    with tempfile.TemporaryDirectory(dir=request.out) as scratch:
        try:
            reply: OperatorsAnswer = agent_client.ask(shell, ops_request, Path(scratch), DEADLINE_S)
        except EdgeError as error:
            if limits.fallback_ops is not None or limits.fallback_share is not None:
                raise
            return None, f"the per-operator pass broke: {error}"
    return left(reply.get("fallback"), reply["ops"]), str(reply["why"])


def left(names: Sequence[str] | None, ops: Sequence[OperatorTime]) -> list[FallbackOperator] | None:
    """Each operator that left with its type, time and share of all operators' time; None where it has no time."""
    if names is None:
        return None
    total = sum(op["ms"] for op in ops)
    timed: dict[str, list[OperatorTime]] = {}
    for op in ops:
        timed.setdefault(op["name"], []).append(op)
    fallback: list[FallbackOperator] = []
    for name in names:
        known = timed[name].pop(0) if timed.get(name) else None
        kind, ms = (known["type"], known["ms"]) if known else ("", None)
        share = ms / total if ms is not None and total else None
        fallback.append({"name": str(name), "type": kind, "ms": ms, "share": share})
    return fallback


def _moved(request: Request, shell: Shell, limits: Limits) -> list[reference_answers.Moved]:
    """How far the outputs moved since the artifact shipped, where its outputs shipped along."""
    excerpt, verdict = (request.inputs.get(role) for role in ("excerpt", "verdict"))
    if excerpt is None or verdict is None or limits.as_shipped is None:
        return []
    with tempfile.TemporaryDirectory(dir=request.out) as scratch:
        on_excerpt = replace(_agent_request(request, "outputs"), samples=str(excerpt.path))
        agent_client.ask(shell, on_excerpt, Path(scratch), DEADLINE_S)
        return reference_answers.moved(Path(scratch), SPLIT, verdict, limits.as_shipped)


# --------------------------------------------------------------------------- the results


def _results(request: Request, outputs: Path, fallback: tuple[list[FallbackOperator] | None, str]) -> Results:
    golden, samples, split = request.inputs["golden"], request.inputs["samples"], _split(request)
    ours = {spec.name: tensors.load(golden, split, spec.name) for spec in golden.outputs}
    folder = Artifact(outputs, "golden")
    names = pairs(golden, request.model)
    theirs = {name: tensors.load(folder, split, other) for name, other in names.items()}
    for name in ours:
        output_error.check_shapes(ours[name], theirs[name], name)
    detect = detections.declared(request.options, golden)
    ranked = output_channels.in_order(ours, theirs, detect)
    errors = {name: output_error.compare(ours[name], ranked[name], name) for name in ours}
    told = {name: error.facts() for name, error in errors.items()}
    layouts = {spec.name: spec.layout for spec in golden.outputs}
    steps = {spec.name: spec.quantization.scale[0] for spec in golden.outputs if spec.quantization}
    inputs = {spec.name: tensors.load(samples, split, spec.name) for spec in samples.inputs}
    again = output_statistics.again(ours, inputs)
    channels = output_channels.compare(ours, theirs, layouts, steps, detect, again)
    layout = detections.layout_of(ours, detect)
    metric, why_not, items, no_proof = _metric(request, ours, theirs)
    if metric and all(map(output_error.same, told.values())):
        metric = metrics.exact(metric)
    return Results(
        outputs=[{"name": name, **facts, **channels[name]} for name, facts in told.items()],
        not_finite={name: error.bad for name, error in errors.items() if error.bad},
        metric=metric,
        size_bytes=request.model.size_bytes,
        fallback=fallback[0],
        reasons={name: why for name, why in (("metric", why_not), ("fallback", fallback[1])) if why},
        scored=_scored(request, ours) if metric else frozenset(),
        no_proof=no_proof,
        items=items,
        detector={**layout.told(names), "by": detections.told_by(request.options, golden)} if layout else None,
        coco=_coco(request, ours, theirs) if metric and metric["name"] in doubts.FINDS else None,
        segments=_segments(golden, ours, names) if metric and metric["name"] in segments.METRICS else None,
    )


def _segments(golden: Artifact, ours: Mapping[str, np.ndarray], names: Mapping[str, str]) -> Mapping[str, Any] | None:
    size = channel_axis.picture(spec.concrete() for spec in golden.inputs)
    found = segments.find(ours, size) if size else None
    return {**asdict(found), "output": names[found.output]} if found else None


def _coco(
    request: Request, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> dict[str, tuple[float | None, float | None]]:
    """COCO's other average precisions of both sides."""
    metric, labels = _judge(request)
    assert metric is not None and labels is not None  # whoever asks has compared by them
    detect = detections.declared(request.options, request.inputs["golden"])
    before, after = (task_metrics.coco(doubts.listed(metric, side, detect, ours), labels) for side in (ours, theirs))
    return {name: (before[name], after[name]) for name in before}


def pairs(golden: Artifact, model: Artifact) -> dict[str, str]:
    """The artifact's output for each of the source's: by name, else by position."""
    ours = [spec.name for spec in golden.outputs]
    theirs = [spec.name for spec in model.outputs if not spec.feeds]
    if set(ours) <= set(theirs):
        return {name: name for name in ours}
    if len(ours) != len(theirs):
        raise StageFailed(f"the source has the outputs {', '.join(ours)}, but the artifact has {', '.join(theirs)}")
    return dict(zip(ours, theirs, strict=True))


def _metric(
    request: Request, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> tuple[metrics.MetricComparison | None, str, Mapping[str, str], str]:
    """The paired comparison, or why there is none, and the score of each item, which are kept beside the verdict too;
    and why the accuracy of the artifact proves nothing, or ""."""
    metric, labels = _judge(request)
    if metric is None or labels is None:
        return None, "the source names no metric" if metric is None else doubts.NO_LABELS, {}, ""
    detect = detections.declared(request.options, request.inputs["golden"])
    before, after = (
        metrics.scores(metric, doubts.listed(metric, side, detect, ours), labels) for side in (ours, theirs)
    )
    for name, scores in (("before", before), ("after", after)):
        tensors.write_split(request.out, {name: scores})
    comparison = metrics.compare(metric, before, after)
    if (
        "split" in request.options and metric.name == "top1"
    ):  # something is chosen by it: counts of few items are coarse
        output = (
            request.options.get("output") or metrics.scored_spec(request.inputs["golden"].outputs, labels.ndim + 1).name
        )
        comparison["expected"] = flip_risk.flips(ours[output], theirs[output], labels)
    one = request.options.get("output", "")
    judged = {one: theirs[one]} if one in theirs else theirs
    return comparison, "", metrics.items(after), doubts.of_answers(metric, after, judged, labels, "its")[1]


def _judge(request: Request) -> tuple[metrics.Metric | None, np.ndarray | None]:
    """The metric that the source names, and the labels that it needs."""
    metric = metrics.find(request.options["metric"], request.options.get("output", ""))
    return metric, tensors.labels(request.inputs["samples"], _split(request))


def _scored(request: Request, ours: Mapping[str, np.ndarray]) -> frozenset[str]:
    """The outputs that the metric reads and tells about: scores that are the same for all items tell nothing."""
    import numpy as np

    scores = [np.load(request.out / f"{side}.npy") for side in ("before", "after")]
    if not any(np.ptp(side) for side in scores):
        return frozenset()
    metric, labels = _judge(request)
    if metric is None or labels is None:
        return frozenset()
    detect = detections.declared(request.options, request.inputs["golden"])
    if detect and metric.name in doubts.FINDS and (layout := detections.layout_of(ours, detect)):
        return layout.outputs
    return metrics.reads(metric, ours, labels)


# --------------------------------------------------------------------------- the limits


def _checks(results: Results, limits: Limits) -> Iterator[Check]:
    """Each promise with how it was kept; `latency_ms` and `peak_rss_bytes` are verified by the race."""
    if limits.as_shipped is not None:
        yield from (_as_shipped(m, limits.as_shipped) for m in results.moved)
    yield _finite(results)
    yield from (judged := list(_metric_checks(results, limits)))
    scored = results.scored if any(check.ok is not None for check in judged) else ()
    for output in (each for each in results.outputs if each["name"] not in scored):
        yield from output_checks.checks(output["name"], output, limits)
    numbers = [output for output in results.outputs if not output_channels.of_labels(output)]
    if limits.sqnr_db is not None:
        yield from (_at_least("sqnr_db", " dB", limits.sqnr_db, output) for output in numbers)
    if limits.cosine is not None:
        yield from (_at_least("cosine", "", limits.cosine, output) for output in numbers)
    if limits.size_bytes is not None:
        says = f"{results.size_bytes:,} bytes, limit {limits.size_bytes:,}"
        yield Check("size_bytes", results.size_bytes <= limits.size_bytes, results.size_bytes, limits.size_bytes, says)
    if limits.fallback_ops is not None:
        yield _ops_check(results, limits.fallback_ops)
    if limits.fallback_share is not None:
        yield _share_check(results, limits.fallback_share)


def _as_shipped(moved: reference_answers.Moved, limit: float) -> Check:
    """The same outputs as when it shipped, to within the tolerance."""
    value, output = moved["moved"], f"output '{moved['name']}'"
    says = (
        f"{output} {moved['reason']}" if value is None else f"{output} changed by {100 * value:.3g} % since it shipped"
    )
    first = f", first at operator {moved['operator']}" if moved["operator"] else ""
    return Check(
        "as_shipped", value is not None and value <= limit, value, limit, f"{says}{first}, limit {100 * limit:g} %"
    )


def _precision(request: Request) -> Iterator[Check]:
    """The precision that the recipe promises and the variant's name says, against what the file holds."""
    said = request.options.get("precision")
    if said:
        kept = said["promise"] and not request.model.facts.get("given")  # a source that came quantized is what it is
        promise = config.build(Promise, said["promise"], "promise") if kept else None
        yield from precision_facts.checks(precision_facts.of(request.model), promise, said["name"])


def _finite(results: Results) -> Check:
    messages = [
        f"output '{name}': {items} items hold NaN or infinite values" for name, items in results.not_finite.items()
    ]
    worst = max(results.not_finite.values(), default=0)
    return Check("finite", not worst, worst, 0, "; ".join(messages) or "every output is finite")


def _metric_checks(results: Results, limits: Limits) -> Iterator[Check]:
    """The limits that mean something for this metric; where none does, each of them with the reason."""
    m = results.metric
    if judged := list(metric_limits.checks(m, limits)) if m else []:
        yield from judged
        return
    why = results.reasons.get("metric") or (m and (m.get("reason") or f"{m['name']} has no such number"))
    for name in metric_limits.NAMES:
        if (limit := getattr(limits, name)) is not None:
            yield Check(name, None, None, limit, f"{name} is not judged: {why}")


def _at_least(name: Literal["sqnr_db", "cosine"], unit: str, limit: float, output: OutputFacts) -> Check:
    """A limit on one output; identical outputs keep any, outputs without a number keep none."""
    value, reason = output[name], output["reason"]
    says = f"output '{output['name']}': {name} " + (f"{value:.4g}{unit}" if value is not None else f"({reason})")
    ok = reason == "identical" if value is None else value >= limit
    return Check(name, ok, value, limit, f"{says}, limit {limit:g}{unit}")


def _ops_check(results: Results, limit: int) -> Check:
    if results.fallback is None:
        return _not_verified("fallback_ops", results, limit)
    count = len(results.fallback)
    named = f" ({', '.join(op['name'] for op in results.fallback[:5])})" if results.fallback else ""
    return Check("fallback_ops", count <= limit, count, limit, f"{count} operators fell back{named}, limit {limit}")


def _share_check(results: Results, limit: float) -> Check:
    """Operators without a time have a share that nobody knows, unless there are none."""
    shares = [op["share"] for op in results.fallback or ()]
    known = [share for share in shares if share is not None]
    if results.fallback is None or len(known) < len(shares):
        return _not_verified("fallback_share", results, limit)
    share = sum(known)
    took = f"{100 * share:.3g} % of the operators' time on this machine"
    says = f"operators that fell back take {took}, limit {100 * limit:g} %"
    return Check("fallback_share", share <= limit, share, limit, says)


def _not_verified(name: str, results: Results, limit: float) -> Check:
    why = results.reasons.get("fallback") or "the runtime gives them no time"
    return Check(name, None, None, limit, f"{name} is not judged: {why}")
