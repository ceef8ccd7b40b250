"""Where it ran: the device, its transport, any simulator, its clock and temperature, the agreement of outputs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from edgecompress.core import registry
from edgecompress.core.model import Artifact, Request
from edgecompress.reporting.formatting import DASH, known, percent, plain, plural, provenance
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Table
from edgecompress.reporting.model_variant import Agreement, Variant
from edgecompress.reporting.request import DeclaredDevice
from edgecompress.reporting.sessions import rounds
from edgecompress.reporting.tables import KEPT, TextTable

UNKNOWN = f"{DASH} not reported"


def environment(request: Request) -> Table:
    """What the device said of itself: as it was before the first round, and after the last."""
    states = [artifact.facts.get("environment") or {} for _, artifact in rounds(request.inputs)]
    if not states and "count" in request.inputs:
        states = [request.inputs["count"].facts.get("environment") or {}]
    if not states:
        return {}
    ends = {
        "before": (states[0].get("now") or {}).get("before"),
        "after": (states[-1].get("now") or {}).get("after"),
    }
    return {**states[0], **({"now": ends} if any(ends.values()) else {})}


def simulated(device: DeclaredDevice) -> str:
    """What stands in for the device; empty where it is itself."""
    name = str(device.get("transport") or "")
    return registry.transport(name).simulated if name in registry.names("transports") else ""


def agreement(artifact: Artifact | None) -> Agreement | None:
    """How far a variant's answers on the device lie from those here."""
    return msgspec.convert(artifact.facts, Agreement) if artifact else None


# ------------------------------------------------------------------ the environment


def table(report: Report) -> TextTable:
    """The device in one table: each line is a fact, or that it is not told."""
    rows = (*_device(report), *_machine(report.environment), *_state(report), *_energy(report))
    return TextTable("Environment", ("", ""), tuple(rows))


def _device(report: Report) -> Iterator[tuple[str, str]]:
    device = report.device
    if device.get("name"):
        yield "device", " – ".join(filter(None, (device["name"], str(device.get("description") or ""))))
        yield (
            "reached by",
            {"host": "it is this machine"}.get(device.get("transport", ""), device.get("transport") or "host"),
        )
        yield "emulated", f"yes, by {report.simulated}" if report.simulated else "no"
    yield "asked for", f"batch {report.run.batch}, {plural(report.run.threads, 'thread')}"


def _machine(facts: Table) -> Iterator[tuple[str, str]]:
    """What stays the same from run to run."""
    if not facts:
        return
    for key in ("board", "cpu", "microarchitecture"):
        if facts.get(key):
            yield key, str(facts[key])
    yield "cores", str(facts.get("cores") or UNKNOWN)
    yield "features", ", ".join(facts.get("features") or ()) or "none that matter"
    yield "memory", plain(facts.get("memory_bytes"), "bytes") if facts.get("memory_bytes") else UNKNOWN
    yield "system", ", ".join(str(facts[k]) for k in ("os", "kernel", "machine") if facts.get(k)) or UNKNOWN
    yield "virtual", str(facts.get("virtual") or UNKNOWN)


def _state(report: Report) -> Iterator[tuple[str, str]]:
    """Clock, temperature and load, before the first round and after the last; an emulator has none of its own."""
    facts = report.environment
    if not facts or report.simulated:
        return
    yield "governor", str(facts.get("governor") or UNKNOWN)
    now = facts.get("now") or {}
    before, after = (now.get(end) or {} for end in ("before", "after"))
    for key, word, unit in (("cpu_mhz", "clock", "MHz"), ("temperature_c", "temperature", "°C")):
        ends = [plain(end.get(key), unit) for end in (before, after)]
        yield word, UNKNOWN if ends == [DASH, DASH] else f"{ends[0]} before, {ends[1]} after"
    if load := [f"{end['loadavg'][0]:g}" for end in (before, after) if end.get("loadavg")]:
        yield "load, one minute", f"{load[0]} before{f', {load[1]} after' if len(load) > 1 else ''}"


def _energy(report: Report) -> Iterator[tuple[str, str]]:
    numbers = [v.numbers["energy_gross"] for v in report.variants]
    behind = sorted({provenance(n) for n in numbers if known(n)})
    reasons = sorted({n.reason for n in numbers if not known(n)})
    yield "energy", "; ".join(behind) or f"{DASH} {'; '.join(reasons) or 'not asked for'}"
    if report.not_measured:
        yield "required measured", f"no: {report.not_measured}"


def runtimes(report: Report) -> TextTable:
    """Each variant's runtime on the device, with its versions."""
    by_variant = report.environment.get("runtimes") or {}
    rows = []
    for name, facts in by_variant.items():
        versions = ", ".join(f"{library} {version}" for library, version in (facts.get("versions") or {}).items())
        runtime, python, threads = (str(facts.get(key, "")) for key in ("runtime", "python", "threads"))
        rows.append((name, runtime, versions or DASH, python, threads))
    return TextTable("Runtimes on the device", ("variant", "runtime", "versions", "Python", "threads"), tuple(rows))


# ------------------------------------------------------------------ the agreement


def agreed(report: Report) -> TextTable:
    """Each output of each variant on the device, beside what the same artifact answered here."""
    head = ("variant", "output", "from here", "limit", "kept", "note")
    rows = []
    for name, facts in ((v.name, v.agree) for v in report.variants if v.agree):
        for output, check in zip(facts.outputs, facts.checks, strict=True):
            where = f"first at operator {output.operator}" if output.operator else output.reason
            rows.append(
                (name, output.name, distance(output.moved), plain(facts.limit, "fraction"), KEPT[check.ok], where)
            )
    return TextTable("On the device", head, tuple(rows))


def distance(moved: float | None) -> str:
    """`0.30 %`, `0 %`: how far an output is, of its own size."""
    return DASH if moved is None else percent(moved)


def agrees(variant: Variant) -> str:
    """`on the device: 0.3 % from here, limit 5 %`; empty where it did not run there."""
    facts = variant.agree
    moved = [o.moved for o in facts.outputs if o.moved is not None] if facts else []
    if not facts or not moved or facts.lost:
        return str(facts.lost or "") if facts else ""
    limit = "not judged" if facts.limit is None else f"limit {100 * facts.limit:g} %"
    return f"on the device: {distance(max(moved))} from here, {limit}"
