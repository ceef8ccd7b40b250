"""The measuring stages: sessions in turns, energy, operators. Each variant runs in agents of its own, on the device."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgecompress import agent, costs, dispatch, registry, statistic
from edgecompress.errors import EdgeError, StageFailed
from edgecompress.model import Artifact, Measured, Request, Shell

KEPT = 200_000  # latencies in VARIANT.json; of more, every k-th (the statistics are over all)
START_S = 300.0  # an agent's imports, load and first inference, at most
SLACK = 10.0  # a slow model may take so many times its windows
ROUNDING = 1e-9  # of what idling costs: below it a difference is that of floating point
SIGMAS = 3.0  # a net energy nearer to zero than this is not told from idle
OPS_S = 10.0  # the per-operator pass of a variant is cut to about so long: some are a thousand times slower
STOLEN = 0.01  # processor seconds of the hypervisor's other guests per second: more is told
OTHERS = 0.25  # processors that others kept busy: more is told
GRAIN_S = 0.05  # the kernel counts processor time in hundredths of a second: less is not told
METRICS = {"energy_gross": "mJ", "energy_net": "mJ", "inferences_per_joule": "1/J", "power": "W"}


@dataclass(frozen=True)
class Bench:
    """One device, and what is asked of every agent that runs there."""

    shell: Shell
    request: Request

    @property
    def profile(self) -> Mapping[str, Any]:
        """How to measure: settings.Profile as plain data."""
        found: Mapping[str, Any] = self.request.options["profile"]
        return found

    def ask(self, mode: str, variant: str, out: Path, deadline_s: float = 0.0, **more: Any) -> dict[str, Any]:
        """What the agent answers about a variant; raises EdgeError when it does not."""
        context, name = self.request.context, self.request.options["runtimes"][variant]
        asked = {
            "mode": mode,
            "runtime": {"name": name, "module": registry.load("runtimes", name).__name__},
            "artifact": str(self.request.inputs[variant].path),
            "samples": str(self.request.inputs["samples"].path),
            "split": "test",
            "threads": context.threads,
            "batch": context.batch,
            "profile": dict(self.profile),
            "device": self.device,
            "root": self.device["options"].get("root", "/"),
            **more,
        }
        return dispatch.ask(self.shell, asked, out, deadline_s or self._deadline_s(mode))

    @property
    def device(self) -> dict[str, Any]:
        """The device as plug-ins are given it: its TOML, its cores, the threads that compute."""
        known = dict(self.request.context.device)
        known["cores"] = known.get("cores") or self.shell.facts().get("cores")
        return {**known, "options": known.get("options") or {}, "threads": self.request.context.threads}

    @property
    def sensors(self) -> list[str]:
        """The device's sensors of energy."""
        return [name for name in self.device.get("sensors", ()) if quantity(name) == "energy"]

    def _deadline_s(self, mode: str) -> float:
        p = self.profile
        energy_s = p["energy_windows"] * p["energy_window_s"] + 2 * p["idle_s"]
        window_s = float({"session": p["window_s"], "energy": energy_s}.get(mode, 0.0))
        return START_S + SLACK * (float(p["warmup_cap_s"]) + window_s)


@contextlib.contextmanager
def connected(request: Request) -> Iterator[Bench]:
    """The device, connected."""
    device = request.context.device
    shell = registry.load("transports", device.get("transport", "host")).connect(device)
    try:
        yield Bench(shell, request)
    finally:
        shell.close()


def quantity(sensor: str) -> str:
    """What a sensor tells: "energy", where its module does not name another quantity."""
    return str(getattr(registry.load("sensors", sensor), "QUANTITY", "energy"))


def variants(request: Request) -> list[str]:
    """The variants that are measured, in order."""
    return list(request.options.get("order") or (v for v in request.inputs if v != "samples"))


# --------------------------------------------------------------------------- rounds


def round(request: Request) -> Artifact:
    """One session of each variant in `options["order"]`; a variant whose agent dies is "crashed", with the reason.

    Raises StageFailed only when no variant gave an answer.
    """
    found, environments, order = {}, {}, variants(request)
    with connected(request) as bench:
        before = bench.shell.facts()
        for i, variant in enumerate(order):
            request.progress(i / len(order), f"measuring {variant}")
            try:
                found[variant], environments[variant] = _session(bench, variant)
            except EdgeError as error:
                found[variant] = {"crashed": str(error)}
        around = environment(bench, before, environments)
    raise_if_all_crashed(found)
    facts = {"variants": found, "order": order, "environment": around}
    return Artifact(request.out, "round", facts=facts).write()


def raise_if_all_crashed(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises StageFailed when no variant gave an answer."""
    if all("crashed" in numbers for numbers in found.values()):
        raise StageFailed("; ".join(f"{v} crashed: {numbers['crashed']}" for v, numbers in found.items()))


def _session(bench: Bench, variant: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A variant's numbers and its environment; its latencies are kept as VARIANT.json."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = bench.ask("session", variant, Path(scratch))
        latencies_ms = _latencies_ms(Path(scratch) / agent.LATENCIES)
    environment = answer.pop("environment")
    _keep(bench.request.out / f"{variant}.json", latencies_ms, answer)
    numbers = {**in_numbers(latencies_ms), **{k: v for k, v in answer.items() if k != "warmup_blocks_ms"}}
    numbers["memory"] = {"artifact_bytes": bench.request.inputs[variant].size_bytes, **answer["memory"]}
    numbers["items_per_s"] = answer["batch"] * answer["n"] / answer["window_s"]
    return {**numbers, "flags": _flags(numbers)}, environment


def _latencies_ms(file: Path) -> list[float]:
    times = array.array("q")
    times.frombytes(file.read_bytes())
    return [t / 1e6 for t in times]


def _keep(file: Path, latencies_ms: Sequence[float], answer: Mapping[str, Any]) -> None:
    """The raw session: latencies in run order, the medians of the warm-up's blocks, and how often one was kept."""
    every = max(1, math.ceil(len(latencies_ms) / KEPT))
    raw = {"latencies_ms": latencies_ms[::every], "every": every, **answer}
    file.write_text(json.dumps(raw, allow_nan=False), encoding="utf-8")


def in_numbers(latencies_ms: Sequence[float]) -> dict[str, Any]:
    """Statistics over every run; a percentile only where there are runs enough to hold it."""
    tails = {
        f"p{p}_ms": statistic.percentile(latencies_ms, p) if len(latencies_ms) >= enough else None
        for p, enough in statistic.ENOUGH.items()
    }
    return {
        "median_ms": statistics.median(latencies_ms),
        "mean_ms": statistics.fmean(latencies_ms),
        "min_ms": min(latencies_ms),
        "max_ms": max(latencies_ms),
        **tails,
        "outliers": statistic.outliers(latencies_ms),
        "drift": statistic.trend(latencies_ms),
    }


def _flags(numbers: Mapping[str, Any]) -> list[str]:
    """What a reader of the numbers should know."""
    flags = [] if numbers["warm"] else [f"not warm after {numbers['warmup_s']:.0f} s"]
    if numbers["drift"]:
        flags.append(drifting(numbers["drift"], "window"))
    if numbers["outliers"]:
        flags.append(f"outliers: {numbers['outliers']} of {numbers['n']}")
    if numbers["preempted"] > numbers["n"] / 100:
        flags.append(f"preempted: {numbers['preempted']} in {numbers['n']} runs")
    return flags + _neighbours(numbers)


def drifting(change: float, over: str) -> str:
    """A trend in words."""
    return f"drifting: {change:+.0%} over the {over}".replace("-", "−")


def _neighbours(numbers: Mapping[str, Any]) -> list[str]:
    """What else took the processors during the window, where the kernel tells."""
    flags, window_s = [], numbers["window_s"]
    if (numbers.get("stolen_s") or 0.0) > GRAIN_S + STOLEN * window_s:
        flags.append(f"stolen: the hypervisor took {numbers['stolen_s']:.1f} s of processor in {window_s:.0f} s")
    if (numbers.get("others_s") or 0.0) > GRAIN_S + OTHERS * window_s:
        flags.append(f"not alone: others kept {numbers['others_s'] / window_s:.1f} processors busy")
    return flags


def environment(bench: Bench, before: Mapping[str, Any], each: Mapping[str, Any]) -> dict[str, Any]:
    """The device, how it was asked, and each variant's runtime with its versions."""
    context, facts = bench.request.context, {k: v for k, v in before.items() if k != "now"}
    now = {"before": before.get("now"), "after": bench.shell.facts().get("now")}
    return {**facts, "now": now, "threads": context.threads, "batch": context.batch, "runtimes": dict(each)}


# --------------------------------------------------------------------------- energy


def energy(request: Request) -> Artifact:
    """Energy per inference of each variant by the first of the device's sensors that reads; the others say why not.

    One sensor serves all variants, so that scopes do not mix. An estimating sensor needs `options["latency_ms"]`.
    """
    why_not = dict[str, str]()
    with connected(request) as bench:
        for name in bench.sensors:
            found, reason = _with_sensor(bench, name)
            if not reason:
                return _energy_artifact(request, found, name, why_not)
            why_not[name] = reason
    reason = "; ".join(f"{s}: {r}" for s, r in why_not.items()) or "the device names no sensor"
    nothing = {v: _unavailable(f"no sensor reads ({reason})") for v in variants(request)}
    return _energy_artifact(request, nothing, "", why_not)


def _energy_artifact(
    request: Request, found: Mapping[str, Sequence[Measured]], sensor: str, why_not: Mapping[str, str]
) -> Artifact:
    plain = {v: [dataclasses.asdict(m) for m in numbers] for v, numbers in found.items()}
    facts = {"variants": plain, "sensor": sensor, "why_not": dict(why_not), "batch": request.context.batch}
    return Artifact(request.out, "energy", facts=facts).write()


def _with_sensor(bench: Bench, name: str) -> tuple[dict[str, list[Measured]], str]:
    """Every variant's numbers under one sensor, or why it cannot read."""
    sensor = registry.load("sensors", name)
    if sensor.STATUS == "estimated":
        reason = sensor.unavailable(bench.device, Path("/"))
        found = {} if reason else _estimates(bench, sensor)
        return found, reason or _all_unavailable(found)
    found = dict[str, list[Measured]]()
    for variant in variants(bench.request):
        try:
            answer = _measured_energy(bench, name, variant)
        except EdgeError as error:
            found[variant] = _unavailable(f"crashed: {error}")
            continue
        if answer["why_not"]:
            return {}, str(answer["why_not"])
        found[variant] = per_inference(answer)
    return found, _all_unavailable(found)


def _all_unavailable(found: Mapping[str, Sequence[Measured]]) -> str:
    """The first reason, when no variant has a figure: the next sensor is then asked."""
    gross = [numbers[0] for numbers in found.values()]
    return gross[0].reason if gross and all(m.value is None for m in gross) else ""


def _measured_energy(bench: Bench, sensor: str, variant: str) -> dict[str, Any]:
    bench.request.progress(0.0, f"energy of {variant} by {sensor}")
    with tempfile.TemporaryDirectory() as scratch:
        answer = bench.ask("energy", variant, Path(scratch), sensors=[named(sensor)])
    (bench.request.out / f"{variant}.json").write_text(json.dumps(answer, allow_nan=False), encoding="utf-8")
    return answer


def named(sensor: str) -> dict[str, str]:
    """A sensor as the agent is told of it."""
    return {"name": sensor, "module": registry.load("sensors", sensor).__name__}


def _unavailable(reason: str) -> list[Measured]:
    return [Measured(metric, None, unit, "unavailable", reason=reason) for metric, unit in METRICS.items()]


def per_inference(answer: Mapping[str, Any]) -> list[Measured]:
    """Gross and net millijoules per inference, inferences per joule, and watts, from an agent's windows.

    Each is the median over the windows; its interval is Student's 95 % of their mean (for net with the variance of the
    idle power), wider by the error bound that windows of few sensor periods have; with one window that bound alone.
    """
    windows, idle = answer["windows"], answer["idle"]
    bad = [w["energy"]["reason"] for w in (*windows, *idle) if w["energy"]["value"] is None]
    if bad or not windows:
        return _unavailable(bad[0] if bad else "the profile has no energy window")
    gross = _over(windows, "energy_gross", lambda joules, w: 1e3 * joules / w["n"])
    per_joule = _over(windows, "inferences_per_joule", lambda joules, w: w["n"] / joules)
    power = _over(windows, "power", lambda joules, w: joules / w["seconds"])
    return [gross, _net(windows, idle, gross), per_joule, power]


def _over(
    windows: Sequence[Mapping[str, Any]], metric: str, figure: Callable[[float, Mapping[str, Any]], float]
) -> Measured:
    """The median of a figure over the windows, with its interval."""
    if any(w["energy"]["value"] <= 0 for w in windows):
        return Measured(metric, None, METRICS[metric], "unavailable", reason="a window without any energy")
    if vague := next((w["energy"] for w in windows if _half(w) >= w["energy"]["value"]), None):
        reason = f"its error bound is as large as the energy itself: {vague['reason']}"
        return Measured(metric, None, METRICS[metric], "unavailable", reason=reason)
    each = [figure(w["energy"]["value"], w) for w in windows]
    first, drift = windows[0]["energy"], statistic.trend(each)
    low, high = _ends(windows, each, figure)
    return Measured(
        metric,
        statistics.median(each),
        METRICS[metric],
        first["status"],
        len(each),
        low,
        high,
        first["source"],
        first["scope"],
        "; ".join(filter(None, (first["reason"], drifting(drift, "windows") if drift else ""))),
    )


def _spread(each: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean."""
    mean, half = statistics.fmean(each), statistic.half_width([(statistic.mean_variance(each), len(each))])
    return mean - half, mean + half


def _ends(
    windows: Sequence[Mapping[str, Any]], each: Sequence[float], figure: Callable[[float, Mapping[str, Any]], float]
) -> tuple[float | None, float | None]:
    """The interval of a figure: windows that are alike do not take away what each of them may be off by."""
    off = [sorted(figure(w["energy"]["value"] + side * _half(w), w) for side in (-1, 1)) for w in windows]
    below, above = (statistics.fmean(abs(e - o[end]) for e, o in zip(each, off, strict=True)) for end in (0, 1))
    if len(each) < 2:
        return (each[0] - below, each[0] + above) if _half(windows[0]) else (None, None)
    low, high = _spread(each)
    return low - below, high + above


def _half(window: Mapping[str, Any]) -> float:
    """Joules that a window's energy may be off by; 0 when it held sensor periods enough."""
    low, high = window["energy"]["low"], window["energy"]["high"]
    return 0.0 if low is None or high is None else (high - low) / 2


def _net(windows: Sequence[Mapping[str, Any]], idle: Sequence[Mapping[str, Any]], gross: Measured) -> Measured:
    """Gross less the idle power over the same time; refused within three sigma, or the error bound, of nothing."""
    watts = [w["energy"]["value"] / w["seconds"] for w in idle]
    seconds = [w["seconds"] / w["n"] for w in windows]
    idle_w = statistics.fmean(watts)
    each = [1e3 * (w["energy"]["value"] / w["n"] - idle_w * s) for w, s in zip(windows, seconds, strict=True)]
    idling = statistics.variance(watts) / len(watts) * (1e3 * statistics.fmean(seconds)) ** 2
    noise = [(idling, len(watts))]
    if len(each) > 1:
        noise.append((statistic.mean_variance(each), len(each)))
    value, sigma = statistics.median(each), math.sqrt(sum(variance for variance, _ in noise))
    bound = 1e3 * statistics.fmean(_half(w) / w["n"] for w in windows)
    bound += 1e3 * statistics.fmean(seconds) * statistics.fmean(_half(w) / w["seconds"] for w in idle)
    if value <= max(SIGMAS * sigma, bound, ROUNDING * 1e3 * idle_w * statistics.fmean(seconds)):
        off = f", off by {bound:.3g} at most" if bound else ""
        reason = f"net of idle is {value:.3g} mJ with a sigma of {sigma:.3g}{off}: not told from nothing"
        return Measured("energy_net", None, "mJ", "unavailable", source=gross.source, scope=gross.scope, reason=reason)
    net = dataclasses.replace(gross, metric="energy_net", value=value, low=None, high=None)
    if len(each) < 2:
        return dataclasses.replace(net, low=value - bound, high=value + bound) if bound else net
    mean, half = statistics.fmean(each), statistic.half_width(noise) + bound
    return dataclasses.replace(net, low=mean - half, high=mean + half)


def _estimates(bench: Bench, sensor: Any) -> dict[str, list[Measured]]:
    """By a model of the device: what it takes while computing, and while idle, over the measured latency."""
    latency_ms = bench.request.options.get("latency_ms", {})
    found = {}
    for variant in variants(bench.request):
        if latency_ms.get(variant) is None:
            found[variant] = _unavailable("no measured latency to estimate the energy from")
            continue
        seconds = latency_ms[variant] / 1e3 / bench.request.context.batch
        device = {**bench.device, "work": _work(bench, sensor, variant)}
        busy, idle = (sensor.open({**device, "threads": t}, Path("/")) for t in (device["threads"], 0))
        found[variant] = estimate(busy.energy(0.0, seconds), idle.energy(0.0, seconds), seconds)
    return found


def _work(bench: Bench, sensor: Any, variant: str) -> dict[str, Any]:
    """The MACs and bytes of a variant, for a sensor that estimates by them."""
    if not getattr(sensor, "NEEDS_WORK", False):
        return {}
    return costs.total(bench.request.inputs[variant], bench.request.context.batch)


def estimate(gross: Measured, idle: Measured, seconds: float) -> list[Measured]:
    """The same four numbers from an estimated energy of one inference, and of idling as long.

    The bands of the two are taken as independent: where their difference could be nothing, net is refused. A `gross`
    without a `high` is a lower bound, and so is what follows from it.
    """
    if gross.value is None:
        return _unavailable(gross.reason)
    if gross.high is None:
        return _floor(gross, gross.value, seconds)
    joules, low, high = _band(gross)
    idle_joules, idle_low, idle_high = _band(idle)
    net = _scaled(gross, "energy_net", joules - idle_joules, low - idle_high, high - idle_low)
    if low <= idle_high:
        reason = "the error band of the power model is wider than what it tells above idle"
        net = Measured("energy_net", None, "mJ", "unavailable", source=gross.source, scope=gross.scope, reason=reason)
    per_joule = dataclasses.replace(
        gross, metric="inferences_per_joule", unit="1/J", value=1 / joules, low=1 / high, high=1 / low if low else None
    )
    power = dataclasses.replace(
        gross, metric="power", unit="W", value=joules / seconds, low=low / seconds, high=high / seconds
    )
    return [_scaled(gross, "energy_gross", joules, low, high), net, per_joule, power]


def _floor(gross: Measured, joules: float, seconds: float) -> list[Measured]:
    """Bounds from a lower bound: `low` or `high` is the value, and the other end is open."""
    per_joule = dataclasses.replace(
        gross, metric="inferences_per_joule", unit="1/J", value=1 / joules, low=None, high=1 / joules
    )
    watts = joules / seconds
    power = dataclasses.replace(gross, metric="power", unit="W", value=watts, low=watts)
    millijoules = dataclasses.replace(gross, metric="energy_gross", unit="mJ", value=1e3 * joules, low=1e3 * joules)
    net = dataclasses.replace(millijoules, metric="energy_net")
    return [millijoules, net, per_joule, power]


def _band(energy: Measured) -> tuple[float, float, float]:
    if energy.value is None or energy.low is None or energy.high is None:
        raise StageFailed(f"{energy.source}: an estimate needs a value and a band (the sensor's fault)")
    return energy.value, energy.low, energy.high


def _scaled(like: Measured, metric: str, joules: float, low: float, high: float) -> Measured:
    return dataclasses.replace(like, metric=metric, unit="mJ", value=1e3 * joules, low=1e3 * low, high=1e3 * high)


# --------------------------------------------------------------------------- operators


def ops(request: Request) -> Artifact:
    """Milliseconds per operator of each variant, in a run of its own; `total_ms` is their sum, never rescaled.

    A variant that is slow by `options["latency_ms"]` runs fewer times.
    """
    found = {}
    with connected(request) as bench:
        for variant in variants(request):
            request.progress(0.0, f"operators of {variant}")
            found[variant] = _ops(bench, variant)
    return Artifact(request.out, "ops", facts={"variants": found}).write()


def _ops(bench: Bench, variant: str) -> dict[str, Any]:
    latency_ms = bench.request.options.get("latency_ms", {}).get(variant) or 0.0
    runs = min(bench.profile["ops_runs"], int(1e3 * OPS_S / latency_ms) + 1 if latency_ms else math.inf)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            answer = bench.ask("ops", variant, Path(scratch), profile={**bench.profile, "ops_runs": runs})
    except EdgeError as error:
        return {"ops": [], "total_ms": None, "why": f"crashed: {error}", "fallback": []}
    total = sum(op["ms"] for op in answer["ops"]) if answer["ops"] else None
    return {"ops": answer["ops"], "total_ms": total, "why": answer["why"], "fallback": answer["fallback"]}
