"""The stage that measures or estimates energy per inference."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from edgecompress.core import registry, stats
from edgecompress.core.errors import EdgeError, StageFailed
from edgecompress.core.model import Artifact, Measured, Request, measured_table
from edgecompress.core.plugins import SensorPlugin, described
from edgecompress.core.quantities import ENERGY
from edgecompress.core.session_stats import drifting
from edgecompress.device.agent.energy import EnergyAnswer, EnergyWindow
from edgecompress.formats import op_counts
from edgecompress.stages.device_bench import DeviceBench, connected, named, variants

ROUNDING = 1e-9  # of what idling costs: below it a difference is that of floating point
UNITS = {q.name: q.unit for q in ENERGY}
SIGMAS = 3.0  # a net energy nearer to zero than this is not told from idle
Figure: TypeAlias = Callable[[float, EnergyWindow], float]  # of the joules of a window


# --------------------------------------------------------------------------- energy


def energy(request: Request) -> Artifact:
    """Energy per inference of each variant by the first of the device's sensors that reads; the others say why not.

    One sensor serves all variants, so that scopes do not mix. An estimating sensor needs `options["latency_ms"]`.
    """
    why_not = dict[str, str]()
    with connected(request) as bench:
        for name in bench.sensors:
            measured, reason = _with_sensor(bench, name)
            if not reason:
                return _energy_artifact(request, measured, name, why_not)
            why_not[name] = reason
    reason = "; ".join(f"{s}: {r}" for s, r in why_not.items()) or "the device names no sensor"
    nothing = {v: _unavailable(f"no sensor reads ({reason})") for v in variants(request)}
    return _energy_artifact(request, nothing, "", why_not)


def _energy_artifact(
    request: Request, measured: Mapping[str, Sequence[Measured]], sensor: str, why_not: Mapping[str, str]
) -> Artifact:
    plain = {v: [measured_table(m) for m in numbers] for v, numbers in measured.items()}
    facts = {"variants": plain, "sensor": sensor, "why_not": dict(why_not), "batch": request.context.batch}
    return Artifact(request.out, "energy", facts=facts).write()


def _with_sensor(bench: DeviceBench, name: str) -> tuple[dict[str, list[Measured]], str]:
    """Every variant's numbers under one sensor, or why it cannot read."""
    sensor = registry.load("sensors", name)
    if sensor.STATUS == "estimated":
        reason = sensor.unavailable(bench.device, Path("/"))
        measured = {} if reason else _estimates(bench, sensor)
        return measured, reason or _all_unavailable(measured)
    measured = dict[str, list[Measured]]()
    for variant in variants(bench.request):
        try:
            answer = _measured_energy(bench, name, variant)
        except EdgeError as error:
            measured[variant] = _unavailable(f"crashed: {error}")
            continue
        if answer["why_not"]:
            return {}, str(answer["why_not"])
        measured[variant] = per_inference(answer)
    return measured, _all_unavailable(measured)


def _all_unavailable(measured: Mapping[str, Sequence[Measured]]) -> str:
    """The first reason, when no variant has a figure: the next sensor is then asked."""
    gross = [numbers[0] for numbers in measured.values()]
    return gross[0].reason if gross and all(m.value is None for m in gross) else ""


def _measured_energy(bench: DeviceBench, sensor: str, variant: str) -> EnergyAnswer:
    bench.request.progress(0.0, f"energy of {variant} by {sensor}")
    with tempfile.TemporaryDirectory() as scratch:
        request = dataclasses.replace(bench.agent_request("energy", variant), sensors=(named(sensor),))
        answer: EnergyAnswer = bench.ask(request, Path(scratch))
    (bench.request.out / f"{variant}.json").write_text(json.dumps(answer, allow_nan=False), encoding="utf-8")
    return answer


def _unavailable(reason: str) -> list[Measured]:
    return [Measured(metric, None, unit, "unavailable", reason=reason) for metric, unit in UNITS.items()]


def per_inference(answer: EnergyAnswer) -> list[Measured]:
    """Gross and net millijoules per inference, inferences per joule, and watts, from an agent's windows.

    Each is the median over the windows; its interval is Student's 95 % of their mean (for net with the variance of the
    idle power), wider by the error bound that windows of few sensor periods have; with one window that bound alone.
    """
    windows, idle = answer["windows"], answer["idle"]
    bad = [w["energy"]["reason"] for w in (*windows, *idle) if w["energy"]["value"] is None]
    if bad or not windows:
        return _unavailable(bad[0] if bad else "the profile has no energy window")
    gross = _over(windows, "energy_gross", lambda energy_j, w: 1e3 * energy_j / w["n"])
    per_joule = _over(windows, "inferences_per_joule", lambda energy_j, w: w["n"] / energy_j)
    power = _over(windows, "power", lambda energy_j, w: energy_j / w["seconds"])
    return [gross, _net(windows, idle, gross), per_joule, power]


def _over(windows: Sequence[EnergyWindow], metric: str, figure: Figure) -> Measured:
    """The median of a figure over the windows, with its interval."""
    if any(joules_of(w) <= 0 for w in windows):
        return Measured(metric, None, UNITS[metric], "unavailable", reason="a window with no energy at all")
    if vague := next((w["energy"] for w in windows if _half(w) >= joules_of(w)), None):
        reason = f"its error bound is as large as the energy itself: {vague['reason']}"
        return Measured(metric, None, UNITS[metric], "unavailable", reason=reason)
    each = [figure(joules_of(w), w) for w in windows]
    first, drift = windows[0]["energy"], stats.trend(each)
    low, high = _ends(windows, each, figure)
    return Measured(
        metric,
        statistics.median(each),
        UNITS[metric],
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
    mean, half = statistics.fmean(each), stats.half_width([(stats.mean_variance(each), len(each))])
    return mean - half, mean + half


def _ends(windows: Sequence[EnergyWindow], each: Sequence[float], figure: Figure) -> tuple[float | None, float | None]:
    """The interval of a figure: the spread of the windows, and the sensor's error, which no mean reduces."""
    off = [sorted(figure(joules_of(w) + side * _half(w), w) for side in (-1, 1)) for w in windows]
    below, above = (statistics.fmean(abs(e - o[end]) for e, o in zip(each, off, strict=True)) for end in (0, 1))
    if len(each) < 2:
        return (each[0] - below, each[0] + above) if _half(windows[0]) else (None, None)
    low, high = _spread(each)
    return low - below, high + above


def joules_of(window: EnergyWindow) -> float:
    """The joules of a window. Raises StageFailed, with the sensor's reason, for a window that has none."""
    value = window["energy"]["value"]
    if value is None:
        raise StageFailed(window["energy"]["reason"])
    return value


def _half(window: EnergyWindow) -> float:
    """Joules that a window's energy may be off by; 0 when it held sensor periods enough."""
    low, high = window["energy"]["low"], window["energy"]["high"]
    return 0.0 if low is None or high is None else (high - low) / 2


def _net(windows: Sequence[EnergyWindow], idle: Sequence[EnergyWindow], gross: Measured) -> Measured:
    """Gross less the idle power over the same time; refused within three sigma, or the error bound, of nothing."""
    watts = [joules_of(w) / w["seconds"] for w in idle]
    seconds = [w["seconds"] / w["n"] for w in windows]
    idle_w = statistics.fmean(watts)
    each = [1e3 * (joules_of(w) / w["n"] - idle_w * s) for w, s in zip(windows, seconds, strict=True)]
    idling = statistics.variance(watts) / len(watts) * (1e3 * statistics.fmean(seconds)) ** 2
    noise = [(idling, len(watts))]
    if len(each) > 1:
        noise.append((stats.mean_variance(each), len(each)))
    value, sigma = statistics.median(each), math.sqrt(sum(variance for variance, _ in noise))
    bound = 1e3 * statistics.fmean(_half(w) / w["n"] for w in windows)
    bound += 1e3 * statistics.fmean(seconds) * statistics.fmean(_half(w) / w["seconds"] for w in idle)
    if value <= max(SIGMAS * sigma, bound, ROUNDING * 1e3 * idle_w * statistics.fmean(seconds)):
        off = f", off by {bound:.3g} at most" if bound else ""
        reason = f"net of idle is {value:.3g} mJ with a sigma of {sigma:.3g}{off}: not distinguishable from zero"
        return Measured(
            "energy_net",
            None,
            UNITS["energy_net"],
            "unavailable",
            source=gross.source,
            scope=gross.scope,
            reason=reason,
        )
    net = dataclasses.replace(gross, metric="energy_net", value=value, low=None, high=None)
    if len(each) < 2:
        return dataclasses.replace(net, low=value - bound, high=value + bound) if bound else net
    mean, half = statistics.fmean(each), stats.half_width(noise) + bound
    return dataclasses.replace(net, low=mean - half, high=mean + half)


def _estimates(bench: DeviceBench, sensor: ModuleType) -> dict[str, list[Measured]]:
    """By a model of the device: what it takes while computing, and while idle, over the measured latency."""
    latency_ms = bench.request.options.get("latency_ms", {})
    estimates = {}
    for variant in variants(bench.request):
        if latency_ms.get(variant) is None:
            estimates[variant] = _unavailable("no measured latency to estimate the energy from")
            continue
        seconds = latency_ms[variant] / 1e3 / bench.request.context.batch
        device = {**bench.device, "work": {}}
        if described(SensorPlugin, "", sensor).needs_work:
            device["work"] = op_counts.total(bench.request.inputs[variant], bench.request.context.batch)
        busy, idle = (sensor.open({**device, "threads": t}, Path("/")) for t in (bench.threads(variant), 0))
        estimates[variant] = estimate(busy.energy(0.0, seconds), idle.energy(0.0, seconds), seconds)
    return estimates


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
        reason = "the error band of the power model is wider than its estimate above idle"
        unknown = Measured("energy_net", None, UNITS["energy_net"], "unavailable", reason=reason)
        net = dataclasses.replace(unknown, source=gross.source, scope=gross.scope)
    per_joule = dataclasses.replace(
        gross,
        metric="inferences_per_joule",
        unit=UNITS["inferences_per_joule"],
        value=1 / joules,
        low=1 / high,
        high=1 / low if low else None,
    )
    power = dataclasses.replace(
        gross, metric="power", unit=UNITS["power"], value=joules / seconds, low=low / seconds, high=high / seconds
    )
    return [_scaled(gross, "energy_gross", joules, low, high), net, per_joule, power]


def _floor(gross: Measured, joules: float, seconds: float) -> list[Measured]:
    """Bounds from a lower bound: `low` or `high` is the value, and the other end is open."""
    per_joule = dataclasses.replace(
        gross,
        metric="inferences_per_joule",
        unit=UNITS["inferences_per_joule"],
        value=1 / joules,
        low=None,
        high=1 / joules,
    )
    watts = joules / seconds
    power = dataclasses.replace(gross, metric="power", unit=UNITS["power"], value=watts, low=watts)
    millijoules = dataclasses.replace(
        gross, metric="energy_gross", unit=UNITS["energy_gross"], value=1e3 * joules, low=1e3 * joules
    )
    net = dataclasses.replace(millijoules, metric="energy_net")
    return [millijoules, net, per_joule, power]


def _band(energy: Measured) -> tuple[float, float, float]:
    if energy.value is None or energy.low is None or energy.high is None:
        raise StageFailed(f"{energy.source}: an estimate needs a value and a band (a bug of the sensor)")
    return energy.value, energy.low, energy.high


def _scaled(like: Measured, metric: str, joules: float, low: float, high: float) -> Measured:
    return dataclasses.replace(
        like, metric=metric, unit=UNITS[metric], value=1e3 * joules, low=1e3 * low, high=1e3 * high
    )
