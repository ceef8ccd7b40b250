"""Holds an artifact, run here by the runtime that will run it, against what the source answers; and its limits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress import config, dispatch, registry, tensors
from edgecompress.errors import EdgeError, StageFailed
from edgecompress.model import Artifact, Check, Request, Shell
from edgecompress.settings import Limits
from edgecompress.stages import metrics, outputs, risk, shipped

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

SPLIT = "test"
DEADLINE_S = 3000.0  # of one agent

Facts = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """What the limits are held against. `fallback` is None where the runtime does not tell.

    `moved` is how far each output moved since it shipped; empty where nothing of that is known.
    """

    outputs: Sequence[Facts]
    not_finite: Mapping[str, int]  # output -> items, of those outputs that have any
    metric: Facts | None
    size_bytes: int
    fallback: Sequence[Facts] | None
    reasons: Mapping[str, str]  # why "metric", "fallback" or the operators' times are None
    moved: Sequence[shipped.Moved] = ()


def run(request: Request) -> Artifact:
    """The stage: {"model": the artifact, "golden", "samples"} -> "verdict": checks, scores per item, first answers.

    before.npy and after.npy hold the scores; what stages.shipped keeps lies beside them. With the inputs "excerpt" and
    "verdict", which shipped with the artifact, its answers are held against those that it gave then.
    options: "runtime", "metric", "limits" (the table of settings.Limits), "output" (the one that the metric is of),
    "split" (SPLIT, or the one that something is chosen by).
    `lost` in the facts is the first check that failed. Raises StageFailed when the runtime does not run the artifact.
    """
    limits = config.build(Limits, request.options["limits"], "limits")
    shell = registry.load("transports", "host").connect({})
    with tempfile.TemporaryDirectory(dir=request.out) as scratch:
        request.progress(0.0, f"running {request.options['runtime']}")
        dispatch.ask(shell, _asked(request, "outputs"), Path(scratch), DEADLINE_S)
        request.progress(0.6, "where its operators run")
        fallback = _fallback(request, shell, limits)
        request.progress(0.8, "comparing")
        found = replace(_found(request, Path(scratch), fallback), moved=_moved(request, shell, limits))
        shipped.keep(Path(scratch), _split(request), request.model, request.out)
    checks = list(_checks(found, limits))
    facts = {
        "n": tensors.count(request.inputs["samples"], _split(request)),
        "outputs": found.outputs,
        "metric": found.metric,
        "checks": [asdict(check) for check in checks],
        "reasons": found.reasons,
        **({} if found.fallback is None else {"fallback": found.fallback}),
        **({"lost": lost} if (lost := next((c.says for c in checks if c.ok is False), "")) else {}),
    }
    return Artifact(request.out, "verdict", facts=facts).write()


def _split(request: Request) -> str:
    return str(request.options.get("split", SPLIT))


def _asked(request: Request, mode: str) -> Facts:
    """What the agent is asked."""
    name, context = request.options["runtime"], request.context
    return {
        "mode": mode,
        "runtime": {"name": name, "module": registry.load("runtimes", name).__name__},
        "artifact": str(request.model.path),
        "samples": str(request.inputs["samples"].path),
        "split": _split(request),
        "threads": context.threads,
        "batch": context.batch,
        "profile": {"ops_runs": 1},
    }


def _fallback(request: Request, shell: Shell, limits: Limits) -> tuple[list[Facts] | None, str]:
    """The operators that left the accelerator; None, or None for their times, with the reason.

    Raises what broke the per-operator pass only where a limit needs it.
    """
    asked = _asked(request, "ops")
    asked["batch"] = _batch(request)
    with tempfile.TemporaryDirectory(dir=request.out) as scratch:
        try:
            answer = dispatch.ask(shell, asked, Path(scratch), DEADLINE_S)
        except EdgeError as error:
            if limits.fallback_ops is not None or limits.fallback_share is not None:
                raise
            return None, f"the per-operator pass broke: {error}"
    return left(answer.get("fallback"), answer["ops"]), str(answer["why"])


def _batch(request: Request) -> int:
    """The batch that the model is made for, where it is fixed; else the one asked for."""
    first = request.model.inputs[0].shape[0]
    return first if isinstance(first, int) else request.context.batch


def left(names: Sequence[str] | None, ops: Sequence[Facts]) -> list[Facts] | None:
    """Each operator that left with its type, time and share of all operators' time; None where it has no time."""
    if names is None:
        return None
    total = sum(op["ms"] for op in ops)
    timed: dict[str, list[Facts]] = {}
    for op in ops:
        timed.setdefault(op["name"], []).append(op)
    found = []
    for name in names:
        op = timed[name].pop(0) if timed.get(name) else {"type": "", "ms": None}
        share = op["ms"] / total if op["ms"] is not None and total else None
        found.append({"name": str(name), "type": op["type"], "ms": op["ms"], "share": share})
    return found


def _moved(request: Request, shell: Shell, limits: Limits) -> list[shipped.Moved]:
    """How far the outputs moved since the artifact shipped, where its answers shipped along."""
    excerpt, verdict = (request.inputs.get(role) for role in ("excerpt", "verdict"))
    if excerpt is None or verdict is None or limits.as_shipped is None:
        return []
    with tempfile.TemporaryDirectory(dir=request.out) as scratch:
        dispatch.ask(shell, {**_asked(request, "outputs"), "samples": str(excerpt.path)}, Path(scratch), DEADLINE_S)
        return shipped.moved(Path(scratch), SPLIT, verdict, limits.as_shipped)


# --------------------------------------------------------------------------- what was found


def _found(request: Request, answered: Path, fallback: tuple[list[Facts] | None, str]) -> Found:
    golden, split = request.inputs["golden"], _split(request)
    ours = {spec.name: tensors.load(golden, split, spec.name) for spec in golden.outputs}
    folder = Artifact(answered, "golden")
    theirs = {name: tensors.load(folder, split, other) for name, other in _pairs(golden, request.model).items()}
    differences = {name: outputs.compare(ours[name], theirs[name], name) for name in ours}
    metric, why_not = _metric(request, ours, theirs)
    return Found(
        outputs=[{"name": name, **d.facts()} for name, d in differences.items()],
        not_finite={name: d.bad for name, d in differences.items() if d.bad},
        metric=metric,
        size_bytes=request.model.size_bytes,
        fallback=fallback[0],
        reasons={name: why for name, why in (("metric", why_not), ("fallback", fallback[1])) if why},
    )


def _pairs(golden: Artifact, model: Artifact) -> dict[str, str]:
    """The artifact's output for each of the source's: by name, else by position."""
    ours = [spec.name for spec in golden.outputs]
    theirs = [spec.name for spec in model.outputs if not spec.feeds]
    if set(ours) <= set(theirs):
        return {name: name for name in ours}
    if len(ours) != len(theirs):
        raise StageFailed(f"the source has the outputs {', '.join(ours)}, the artifact {', '.join(theirs)}")
    return dict(zip(ours, theirs, strict=True))


def _metric(request: Request, ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> tuple[Facts | None, str]:
    """The paired comparison, or why there is none; the scores are kept beside the verdict."""
    metric = metrics.find(request.options["metric"], request.options.get("output", ""))
    labels = tensors.labels(request.inputs["samples"], _split(request))
    if metric is None or labels is None:
        return None, "the source names no metric" if metric is None else "the data has no labels"
    before, after = (metrics.scores(metric, side, labels) for side in (ours, theirs))
    for name, scores in (("before", before), ("after", after)):
        tensors.write_split(request.out, {name: scores})
    found = metrics.compare(metric, before, after)
    if (
        "split" in request.options and metric.name == "top1"
    ):  # something is chosen by it: counts of few items are coarse
        output = request.options.get("output") or next(iter(ours))
        found["expected"] = risk.flips(ours[output], theirs[output], labels)
    return found, ""


# --------------------------------------------------------------------------- the limits


def _checks(found: Found, limits: Limits) -> Iterator[Check]:
    """Each promise with how it was kept; `latency_ms` and `peak_rss_bytes` are the race's to judge."""
    if limits.as_shipped is not None:
        yield from (_as_shipped(m, limits.as_shipped) for m in found.moved)
    yield _finite(found)
    yield from _metric_checks(found, limits)
    for name, unit in (("sqnr_db", " dB"), ("cosine", "")):
        limit = getattr(limits, name)
        if limit is not None:
            yield from (_at_least(name, unit, limit, output) for output in found.outputs)
    if limits.size_bytes is not None:
        says = f"{found.size_bytes:,} bytes, limit {limits.size_bytes:,}"
        yield Check("size_bytes", found.size_bytes <= limits.size_bytes, found.size_bytes, limits.size_bytes, says)
    if limits.fallback_ops is not None:
        yield _ops_check(found, limits.fallback_ops)
    if limits.fallback_share is not None:
        yield _share_check(found, limits.fallback_share)


def _as_shipped(moved: shipped.Moved, limit: float) -> Check:
    """The same answers as when it shipped, to within the tolerance."""
    value, output = moved["moved"], f"output '{moved['name']}'"
    says = f"{output} {moved['reason']}" if value is None else f"{output} moved by {100 * value:.3g} % since it shipped"
    first = f", first at operator {moved['operator']}" if moved["operator"] else ""
    return Check(
        "as_shipped", value is not None and value <= limit, value, limit, f"{says}{first}, limit {100 * limit:g} %"
    )


def _finite(found: Found) -> Check:
    said = [f"output '{name}': {items} items hold NaN or infinite values" for name, items in found.not_finite.items()]
    worst = max(found.not_finite.values(), default=0)
    return Check("finite", not worst, worst, 0, "; ".join(said) or "every output is finite")


def _metric_checks(found: Found, limits: Limits) -> Iterator[Check]:
    """The limits that mean something for this metric; where none does, each of them with the reason."""
    m = found.metric or {}
    drop = m["before"] - m["after"] if m and None not in (m["before"], m["after"]) else None
    values = {"items_lost": m.get("net_lost"), "metric_ratio": m.get("ratio"), "metric_drop": drop}
    asked = {name: getattr(limits, name) for name in values if getattr(limits, name) is not None}
    judged = {name: value for name in asked if (value := values[name]) is not None}
    for name, value in judged.items():
        yield Check(name, value <= asked[name], value, asked[name], _says(name, m, value, asked[name]))
    why = found.reasons.get("metric") or m.get("reason") or f"{m['name']} has no such number"
    for name in asked if not judged else ():
        yield Check(name, None, None, asked[name], f"{name} is not judged: {why}")


def _says(name: str, m: Facts, value: float, limit: float) -> str:
    if name == "items_lost":
        both = f"{m['items_lost']} lost, {m['items_gained']} gained"
        return f"net {value} of {m['n']} items lost ({both}), limit {limit:g}"
    change = f"{m['name']} {m['before']:.4g} before, {m['after']:.4g} after"
    word = "ratio" if name == "metric_ratio" else "drop"
    return f"{change}: {word} {value:.4g}, limit {limit:g}"


def _at_least(name: str, unit: str, limit: float, output: Facts) -> Check:
    """A limit on one output; identical outputs keep any, outputs without a number keep none."""
    value, reason = output[name], output["reason"]
    says = f"output '{output['name']}': {name} " + (f"{value:.4g}{unit}" if value is not None else f"({reason})")
    ok = reason == "identical" if value is None else value >= limit
    return Check(name, ok, value, limit, f"{says}, limit {limit:g}{unit}")


def _ops_check(found: Found, limit: int) -> Check:
    if found.fallback is None:
        return _not_judged("fallback_ops", found, limit)
    count = len(found.fallback)
    named = f" ({', '.join(op['name'] for op in found.fallback[:5])})" if found.fallback else ""
    return Check("fallback_ops", count <= limit, count, limit, f"{count} operators fell back{named}, limit {limit}")


def _share_check(found: Found, limit: float) -> Check:
    """Operators without a time have a share that nobody knows, unless there are none."""
    shares = [op["share"] for op in found.fallback or ()]
    if found.fallback is None or None in shares:
        return _not_judged("fallback_share", found, limit)
    share = sum(shares)
    says = f"operators that fell back take {100 * share:.3g} % of the operators' time, limit {100 * limit:g} %"
    return Check("fallback_share", share <= limit, share, limit, says)


def _not_judged(name: str, found: Found, limit: float) -> Check:
    why = found.reasons.get("fallback") or "the runtime gives them no time"
    return Check(name, None, None, limit, f"{name} is not judged: {why}")
