"""The history: an append-only index of results in SQLite. Its errors never stop a deploy."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from edgecompress.core import stats
from edgecompress.core.errors import InputError
from edgecompress.core.json import is_number, parsed
from edgecompress.core.model import Status
from edgecompress.core.quantities import unit
from edgecompress.reporting.formatting import text
from edgecompress.reporting.model import Report, of
from edgecompress.reporting.model_numbers import Number
from edgecompress.reporting.model_variant import Variant

FILE = "history.sqlite"
# What SQLite says of a file that is no database of ours; locked, full and read-only ones are well.
DAMAGED = ("not a database", "malformed", "no column", "encrypted", "corrupt")
BUSY_S = 5.0  # another process writes: a row takes milliseconds
# What makes two results comparable; of a profile the variant too: a deploy may ship another one each time.
KIND = ("command", "source", "target", "device", "profile", "threads", "batch")
MACHINE = ("cpu", "board", "cores")  # by its environment: a device's name may be another's machine now
TEXTS = (*KIND[:5], "variant", "runtime", "artifact", "report")
NUMBERS = ("latency_ms", "latency_low", "latency_high", "energy_mj", "accuracy", "size_bytes", "instructions")
COLUMNS = (
    *("result", "date", *TEXTS, "threads", "batch", *NUMBERS),
    *("energy_status", "energy_scope", "accuracy_metric", "environment", "medians_ms"),
)
TABLE = f"""
CREATE TABLE IF NOT EXISTS results (id INTEGER PRIMARY KEY, {", ".join(COLUMNS)}, UNIQUE (result));
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON results BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON results BEGIN SELECT RAISE(ABORT, 'append only'); END;
"""
Row = dict[str, Any]


def add(root: Path, document: Mapping[str, object], folder: Path, date: str = "") -> str:
    """Adds what a report.json is about; `folder` is where it is. Returns why it could not, or "": nothing is raised.

    `date` is that of the deploy; else it is that of the report: of its newest result, which an earlier deploy may have
    made. The same result twice is one row, with the date of the first. A file that is no database is
    moved aside, and a new one is started.
    """
    try:
        rows = [{**row, "date": date or row["date"]} for row in _rows(of(document), folder)]
        try:
            _insert(root, rows)
        except sqlite3.DatabaseError as error:
            if not any(words in str(error) for words in DAMAGED):
                raise
            aside = _set_aside(root)
            _insert(root, rows)
            return f"history: {root / FILE} was damaged ({error}); it is now {aside.name}, and a new one is started"
    except (sqlite3.Error, OSError, KeyError, TypeError, ValueError) as error:
        return f"history: this result is not listed in {root / FILE}: {error}"
    return ""


def rows(root: Path, source: str = "", target: str = "", limit: int = 20) -> list[Row]:
    """The newest results first; each with `change`: against the one before it of its kind. Raises InputError.

    The order is that of the dates, in UTC: a stored result that is listed later is not newer. One without a date that
    can be read is older than any other.
    """
    if not (root / FILE).is_file():
        raise InputError(f"{root}: no {FILE} here; give --store, or deploy first")
    try:
        with _opened(root, "ro") as database:
            results = [_read(dict(row)) for row in database.execute("SELECT * FROM results ORDER BY id")]
        results.sort(key=_instant)  # of one second in the order in which they were listed
        matching = [_dated(r) for r in results if source in r["source"] and target in ("", r["target"])]
        return list(reversed(_with_changes(matching)))[: max(limit, 0)]
    except (sqlite3.Error, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{root / FILE}: cannot be read: {error}; the next deploy starts a new one") from error


def merge(root: Path, other: Path) -> int:
    """Takes in the results of another store, or of its file; returns how many are new. Raises InputError.

    A result is called by its content: the same twice is one row. What is no result as this version writes it is
    refused, and nothing is taken in.
    """
    file = other / FILE if other.is_dir() else other
    if not file.is_file():
        raise InputError(f"--merge {other}: no {FILE} there")
    try:
        with _opened(file.parent, "ro", file.name) as database:
            rows = [dict(row) for row in database.execute(f"SELECT {', '.join(COLUMNS)} FROM results ORDER BY id")]
        for row in rows:
            _read(row)
        with contextlib.suppress(sqlite3.Error), _opened(root, "ro") as database:
            known = {row["result"] for row in database.execute("SELECT result FROM results")}
            rows = [row for row in rows if row["result"] not in known]
        _insert(root, rows)
        return len(rows)
    except (sqlite3.Error, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"--merge {file}: cannot be read: {error}") from error


def shown(rows: list[Row]) -> list[Row]:
    """The rows in words, for a table: what is the same in all of them is left out, but for the target."""
    told = [key for key in ("source", "device", "profile", "command") if len({row[key] for row in rows}) > 1]
    return [
        {
            "date": row["date"][:16].replace("T", " "),
            **{key: row[key] for key in (*told, "target", "variant")},
            "latency": _words(row["latency_ms"], unit("latency")),
            "instructions": _words(row["instructions"], unit("instructions")),
            "change": row["change"]["says"],
            "energy": _words(row["energy_mj"], unit("energy_gross"), row["energy_status"]),
            "accuracy": _words(row["accuracy"], "", "measured"),
            "size": _words(row["size_bytes"], unit("size")),
        }
        for row in rows
    ]


def _words(value: float | None, unit: str, status: Status = "measured") -> str:
    return "" if value is None else text(Number("", value, unit, status))


# --------------------------------------------------------------------------- a row


def _rows(report: Report, folder: Path) -> list[Row]:
    """A row of what the report is about; where several were measured in turns, one of each.

    Where nothing shipped its numbers are None.
    """
    every: list[Variant] = report.variants
    about = [v for v in every if v.name == report.subject]
    if not about and not report.exit_code:
        about = list(every)
    return [_row(report, variant, folder) for variant in about or [Variant("")]]


def _row(report: Report, variant: Variant, folder: Path) -> Row:
    numbers = variant.numbers
    latency, energy, accuracy = (numbers.get(name) for name in ("latency", "energy_gross", "accuracy"))
    size, counted = numbers.get("size"), numbers.get("instructions")
    source = report.source
    row = {
        "date": report.date,
        "command": "deploy" if report.choice.variant or report.exit_code else "profile",
        "source": source.get("name") or source.get("model") or "",
        **{key: getattr(report, key).get("name") or "" for key in ("target", "device", "profile")},
        "threads": report.threads(variant.name),
        "batch": report.run.batch,
        "variant": variant.name or "",
        "runtime": variant.runtime or "",
        "artifact": (variant.artifact.sha256 if variant.artifact else None) or "",
        "latency_ms": latency and latency.value,
        "latency_low": latency and latency.low,
        "latency_high": latency and latency.high,
        "energy_mj": energy and energy.value,
        "energy_status": energy and energy.status,
        "energy_scope": energy and energy.scope,
        "accuracy": accuracy and accuracy.value,
        "accuracy_metric": accuracy and accuracy.metric,
        "size_bytes": size and size.value,
        "instructions": counted and counted.value,
        "environment": json.dumps(report.environment),
        "medians_ms": json.dumps([s.median_ms for s in variant.sessions if s.median_ms is not None]),
    }
    digest = hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
    return {**row, "result": digest, "report": str(folder)}


def _read(row: Row) -> Row:
    """A row as data; what was JSON in the database is that no longer. Raises what a row of something else does."""
    if missing := sorted({*COLUMNS} - row.keys()):
        raise LookupError(f"no column {missing[0]}")
    environment, medians_ms = parsed(row["environment"]), parsed(row["medians_ms"])
    if not isinstance(environment, dict | None) or not isinstance(medians_ms, list):
        raise TypeError("its environment or its medians are of another kind")
    numbers = [(name, row[name]) for name in NUMBERS if row[name] is not None]
    for name, value in [*numbers, *(("medians_ms", median) for median in medians_ms)]:
        if not (is_number(value) if name == "accuracy" else is_number(value, 0)):
            raise ValueError(f"{name} is {value!r:.40}")
    return {**row, "environment": environment, "medians_ms": medians_ms}


def _instant(row: Row) -> datetime:
    """When it was made; a date without a time zone is in UTC."""
    try:
        date = datetime.fromisoformat(row["date"])
        return date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)


def _dated(row: Row) -> Row:
    """With its date as all are written, in UTC to the second; as it is, where it cannot be read."""
    made = _instant(row)
    return row if made.year == 1 else {**row, "date": made.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _with_changes(rows: list[Row]) -> list[Row]:
    last: dict[tuple[object, ...], Row] = {}
    changed = []
    for row in rows:
        machine = ((row["environment"] or {}).get(key) for key in MACHINE)
        kind = (*(row[key] for key in KIND), *machine, row["variant"] if row["command"] == "profile" else "")
        changed.append({**row, "change": _change(row, last.get(kind))})
        last[kind] = row
    return changed


def _change(row: Row, before: Row | None) -> Row:
    """What became of the latency since then; an interval decides whether it is called one."""
    if before is None or not row["medians_ms"] or not before["medians_ms"] or not all(before["medians_ms"]):
        return {"ratio": None, "low": None, "high": None, "called": False, "says": ""}
    ratio = stats.unpaired(row["medians_ms"], before["medians_ms"])
    says = f"{ratio.median:.3f}x" if ratio.changed else f"{ratio.median:.3f}x, not called"
    if ratio.low is not None and abs(ratio.median - 1) <= stats.CHANGE:
        says = f"no change ({ratio.median:.3f}x)"
    return {"ratio": ratio.median, "low": ratio.low, "high": ratio.high, "called": ratio.changed, "says": says}


# --------------------------------------------------------------------------- the file


@contextlib.contextmanager
def _opened(root: Path, mode: Literal["ro", "rwc"], name: str = FILE) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(f"{(root / name).resolve().as_uri()}?mode={mode}", timeout=BUSY_S, uri=True)
    database.row_factory = sqlite3.Row
    try:
        yield database
    finally:
        database.close()


def _insert(root: Path, rows: list[Row]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    with _opened(root, "rwc") as database:
        _prepare(database)
        marks = ", ".join(f":{name}" for name in COLUMNS)
        with database:
            database.executemany(f"INSERT OR IGNORE INTO results ({', '.join(COLUMNS)}) VALUES ({marks})", rows)


def _prepare(database: sqlite3.Connection) -> None:
    """The table, and a journal that readers need not wait for: switching to it does not wait by itself for others."""
    end = time.monotonic() + BUSY_S
    while True:
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.executescript(TABLE)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)


def _set_aside(root: Path) -> Path:
    """Renames the file with its journal, so that the new one does not read it."""
    stamp = time.strftime("%Y%m%dT%H%M%S")
    for suffix in ("-wal", "-shm", ""):
        file = root / f"{FILE}{suffix}"
        if file.exists():
            file.replace(root / f"{FILE}.damaged-{stamp}{suffix}")
    return root / f"{FILE}.damaged-{stamp}"
