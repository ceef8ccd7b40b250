"""The tables of the profilers: what each found of each variant."""

from __future__ import annotations

from collections.abc import Sequence

from edgecompress.reporting.formatting import DASH, known, plain, significant, text
from edgecompress.reporting.model import Number, Report, Table
from edgecompress.reporting.profilers import answers, number
from edgecompress.reporting.tables import TextTable

THROTTLED = {True: "throttled", False: "held", None: "not told"}
PERCENTS = ("p50", "p95", "p99", "max")
STARTS = ("import_ms", "load_ms", "first_ms", "second_ms")


def findings(report: Report, name: str = "") -> TextTable:
    """What each profiler (or only `name`) says of each variant in its own words, or why it says nothing."""
    rows = []
    for look in report.passes:
        for variant, outcome in look.variants.items() if name in ("", look.profiler) else ():
            rows += [(variant, look.profiler, line) for line in ([outcome.why] if outcome.why else outcome.lines)]
    head = ("variant", "profiler", "what it found")
    return TextTable("Profilers", head, tuple(rows))


def sustained(report: Report) -> TextTable:
    """The rate at first, and the rate at last: never one average of the two."""
    head = ("variant", "at first", "at last", "last / first", "throttling", "because")
    return TextTable("Sustained", head, tuple(_sustained(v, a) for v, a in answers(report, "sustained").items()))


def _sustained(name: str, answer: Table) -> tuple[str, ...]:
    ends = [plain(answer[end]["items_per_s"], "/s") if answer[end] else DASH for end in ("burst", "sustained")]
    ratio = significant(answer["ratio"], 3) if answer["ratio"] else DASH
    throttling = answer["throttling"]
    why = "; ".join(filter(None, (throttling["reason"], *throttling["evidence"])))
    return name, *ends, ratio, THROTTLED[throttling["flagged"]], why


def windows(report: Report) -> TextTable:
    """Each window of a long run."""
    head = ("variant", "from", "runs", "items per second", "median", "p95", "clock", "temperature", "power")
    rows = [(v, row, a["power"]["status"]) for v, a in answers(report, "sustained").items() for row in a["series"]]
    return TextTable("Sustained, window by window", head, tuple(_window(*row) for row in rows))


def _window(name: str, row: Table, status: str) -> tuple[str, ...]:
    times = (plain(row[key], "ms") for key in ("median_ms", "p95_ms"))
    now = (plain(row[key], unit) for key, unit in (("cpu_mhz", "MHz"), ("temperature_c", "°C")))
    watts = plain(row["power_w"], "W") + (f", {status}" if row["power_w"] is not None and status != "measured" else "")
    return name, f"{row['t_s']:.0f} s", f"{row['runs']:,}", plain(row["items_per_s"], "/s"), *times, *now, watts


def timeline(report: Report) -> TextTable:
    """Resident memory, phase by phase."""
    head = ("variant", "phase", "from", "to", "at its end", "of it anonymous", "of it file-backed", "highest sample")
    rows = [(v, phase) for v, a in answers(report, "memory").items() for phase in a["phases"]]
    return TextTable("Memory by phase", head, tuple(_phase(v, phase) for v, phase in rows))


def _phase(name: str, phase: Table) -> tuple[str, ...]:
    ends = (f"{significant(phase[key], 3)} s" for key in ("begin_s", "end_s"))
    sizes = (plain(phase[key], "bytes") for key in ("end_bytes", "anon_bytes", "file_bytes", "peak_bytes"))
    return name, phase["name"], *ends, *sizes


def periodic(report: Report) -> TextTable:
    """At a fixed rate: the response counts from when an inference was due, so waiting in line is in it."""
    head = ("variant", "time of", *PERCENTS, "late", "busy", "energy per period", "power")
    rows = [row for v, a in answers(report, "periodic").items() for row in _periodic(v, a)]
    return TextTable("At a fixed rate", head, tuple(rows))


def _periodic(name: str, answer: Table) -> list[tuple[str, ...]]:
    least = "≥ " if answer["floor"] else ""
    late = f"{answer['missed']:,} of {answer['due']:,} ({plain(answer['missed_share'], 'fraction')})"
    energy = (_or_why(number(answer["energy_per_period"])), text(number(answer["power"]), spread=True))
    first = (late, plain(answer["duty"], "fraction"), *energy)
    rest = ("",) * len(first)
    period = f"response, due every {plain(answer['period_ms'], 'ms')}"
    return [
        (name, period, *_percents(answer["response_ms"], least), *first),
        (name, "the inference alone", *_percents(answer["service_ms"]), *rest),
        (name, "waking up", *_percents(answer["wake_ms"]), *rest),
    ]


def _percents(times: Table, least: str = "") -> list[str]:
    return [f"{least}{plain(times[p], 'ms')}" if times[p] is not None else DASH for p in PERCENTS]


def _or_why(n: Number) -> str:
    return text(n, spread=True) if known(n) else f"{DASH} {n.reason}"


def throughput(report: Report) -> TextTable:
    """Items per second by the size of the batch."""
    head = ("variant", "batch", "items per second", "median of a run", "p95", "per item", "energy per item", "")
    rows = [row for v, a in answers(report, "throughput").items() for row in _throughput(v, a)]
    return TextTable("Throughput by batch", head, tuple(rows))


def _throughput(name: str, answer: Table) -> list[tuple[str, ...]]:
    marks = [_marks(answer, row["batch"]) for row in answer["rows"]]
    energies = [number(row["energy_per_item"]) for row in answer["rows"]]
    energy = [_or_why(energies[0]), *(text(n, spread=True) for n in energies[1:])] if energies else []
    rows = [_batch(name, row, end) for row, *end in zip(answer["rows"], energy, marks, strict=True)]
    left = answer["left_out"].items()
    return [*rows, *((name, str(batch), *[DASH] * 5, f"left out: {why}") for batch, why in left)]


def _marks(answer: Table, batch: float) -> str:
    return ", ".join(word for key, word in (("knee", "knee"), ("best", "most")) if answer[key]["batch"] == batch)


def _batch(name: str, row: Table, end: Sequence[str]) -> tuple[str, ...]:
    times = (plain(row[key], "ms") for key in ("median_ms", "p95_ms", "ms_per_item"))
    return name, f"{row['batch']:g}", plain(row["items_per_s"], "/s"), *times, *end


def cold(report: Report) -> TextTable:
    """From nothing to the first answer, the median of the starts and their ends."""
    head = ("variant", "the files were", "import", "load", "first inference", "second inference")
    rows = [row for v, a in answers(report, "cold").items() for row in _cold(v, a)]
    return TextTable("From a cold start", head, tuple(rows))


def _cold(name: str, answer: Table) -> list[tuple[str, ...]]:
    summary = answer["summary"]
    rows = [(name, "in memory already", *_starts(summary["warm"]))]
    if summary["dropped"]:
        return [*rows, (name, f"dropped from memory ({answer['dropped']})", *_starts(summary["dropped"]))]
    why = answer["dropped_reason"]
    return [*rows, (name, f"on disk only: {why}", *[DASH] * len(STARTS))] if why else rows


def _starts(summary: Table) -> Sequence[str]:
    return [_spread(summary[key]) for key in STARTS]


def _spread(times: Table) -> str:
    if times["median"] is None:
        return DASH
    return text(Number("", times["median"], "ms", low=times["min"], high=times["max"]), spread=True)
