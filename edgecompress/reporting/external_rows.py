"""The rows of the report's section "On other devices": measurements of a device as its sessions, and what they say."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import msgspec

from edgecompress.core import stats
from edgecompress.core.session_stats import drifting, in_numbers
from edgecompress.reporting import variants
from edgecompress.reporting.external_results import Measurement
from edgecompress.reporting.external_section import step, when
from edgecompress.reporting.formatting import cleaned, known, missing, plural
from edgecompress.reporting.model import ExternalRow
from edgecompress.reporting.model_numbers import ExternalSession, Number

PACKAGES = {"ios": "ios", "macos": "ios", "linux": "tar"}  # whose benchmark runs there, where it has another name
COARSE = 0.01  # of the latency: a clock that steps further is told of
FAILED = "its self-test failed: it does not compute what shipped, so it is not ranked"
NO_ENERGY = "a package's benchmark reads no sensor"


def rows(measurements: Sequence[Measurement]) -> list[ExternalRow]:
    """A row per device, runtime and way of asking, the fastest first; what failed its self-test is last, unranked."""
    ordered = sorted(measurements, key=lambda m: (repr(_place(m)), m.run.started, m.name))
    alike = (list(group) for _, group in itertools.groupby(ordered, key=_place))
    placed = sorted((_row(sessions) for sessions in alike), key=_order)
    ranks = itertools.count(1)
    for row in placed:
        row.rank = next(ranks) if _ranked(row) else None
    return msgspec.convert(cleaned(msgspec.to_builtins(placed)), list[ExternalRow])


def _place(m: Measurement) -> tuple[object, ...]:
    """What the sessions of a row share."""
    return m.device, m.runtime, m.run.threads, m.self_test, m.clock


def _ranked(row: ExternalRow) -> bool:
    return row.self_test == "pass" and known(row.numbers["latency"])


def _order(row: ExternalRow) -> tuple[object, ...]:
    value = row.numbers["latency"].value
    return not _ranked(row), row.self_test != "pass", value or 0.0, row.device.name


def _row(measurements: Sequence[Measurement]) -> ExternalRow:
    first, sessions = measurements[0], [_session(m) for m in measurements]
    system = first.device.platform.partition("-")[0]
    row = ExternalRow(
        rank=None,
        device=first.device,
        runtime=first.runtime,
        model=first.model,
        package=PACKAGES.get(system, system),
        threads=first.run.threads,
        self_test=first.self_test,
        clock=first.clock,
        clock_step_ns=max(s.step_ns for s in sessions),
        numbers={},
        sessions=sessions,
        says=[],
    )
    row.numbers = _numbers(row)
    row.says = _says(row)
    return row


def _session(m: Measurement) -> ExternalSession:
    """One file: the statistics of its latencies as of any session here."""
    statistics = in_numbers([ns / 1e6 for ns in m.latencies_ns])
    run = {"started": m.run.started, "warmup": m.run.warmup, "n": len(m.latencies_ns), "step_ns": m.step_ns}
    return msgspec.convert({"round": m.name, **run, **statistics}, ExternalSession)


# --------------------------------------------------------------------------- its numbers


def _numbers(row: ExternalRow) -> dict[str, Number]:
    """As those of a variant; each latency is off by a step of the clock at most, and so is what follows from it."""
    timed = {"latency": variants.median(row.sessions, "latency", ""), **variants.percentiles(row.sessions, "")}
    where = f"{row.clock} on {row.device.name}, {when(row.sessions)}"
    source = f"{where}, by the benchmark of its {row.package} package"
    reason = "" if row.self_test == "pass" else FAILED
    stepped = {name: _stepped(n, row.clock_step_ns / 1e6, (source, reason)) for name, n in timed.items()}
    rate = variants.throughput(stepped["latency"], 1)
    rate = rate if rate.value is None else dataclasses.replace(rate, source=source, reason=reason)
    return {**stepped, "throughput": rate, "energy_gross": missing("energy_gross", NO_ENERGY)}


def _stepped(n: Number, step_ms: float, behind: tuple[str, str]) -> Number:
    """With the interval as much wider; no number where the step is as long as what it times."""
    if n.value is None:
        return n
    if step_ms >= n.value:
        return missing(n.metric, f"its clock steps by {step(round(1e6 * step_ms))}, no less than it takes")
    low, high = n.low and max(0.0, n.low - step_ms), n.high and n.high + step_ms
    return dataclasses.replace(n, low=low, high=high, source=behind[0], reason=behind[1])


# --------------------------------------------------------------------------- what to know of them


def _says(row: ExternalRow) -> list[str]:
    """What a reader of the row should know, the gravest first."""
    flags = [] if row.self_test == "pass" else ["self-test FAILED: not ranked"]
    took, several = row.numbers["latency"], len(row.sessions) > 1
    if not known(took):
        flags.append(took.reason)
    elif row.clock_step_ns / 1e6 >= COARSE * took.known:
        flags.append(f"its clock steps by {step(row.clock_step_ns)}")
    flags += _sure(row.sessions)
    drifts = [(f"session {i} " if several else "", s.drift) for i, s in enumerate(row.sessions, 1) if s.drift]
    return [*flags, *(f"{whose}{drifting(drift, 'run')}" for whose, drift in drifts)]


def _sure(sessions: Sequence[ExternalSession]) -> Iterator[str]:
    """What the interval over the sessions lacks."""
    interval = stats.interval([s.median_ms for s in sessions])
    if interval is None:
        yield "one session: no interval"
    elif interval[2] < stats.COVERAGE:
        yield f"{plural(len(sessions), 'session')}: the interval covers {100 * interval[2]:.3g} %"
