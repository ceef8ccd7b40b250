"""The index of results: what a row holds, changes from row to row, and that it never stands in a deploy's way."""

from __future__ import annotations

import copy
import json
import math
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nulls
import pytest
import report_inputs

from edgecompress.cli import main
from edgecompress.commands import job_run, report_request
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Choice, Outcome
from edgecompress.reporting import history

Report = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Report:
    report: Report = report_inputs.written(report_inputs.request(tmp_path_factory.mktemp("deploy"), runs=50))
    return report


def later(report: Report, factor: float, date: str) -> Report:
    """The same deploy once more, its sessions so many times as long."""
    again = {**copy.deepcopy(report), "date": date}
    variant = next(v for v in again["variants"] if v["name"] == again["subject"])
    for session in variant["sessions"]:
        session["median_ms"] *= factor
    number = variant["numbers"]["latency"]
    number |= {end: number[end] * factor for end in ("value", "low", "high")}
    return again


def day(number: int) -> str:
    return f"2026-01-{number:02}T00:00:00Z"


def test_a_row_keeps_what_was_measured_where_and_how(made: Report, tmp_path: Path) -> None:
    assert history.add(tmp_path, made, tmp_path / "report") == ""
    (row,) = history.rows(tmp_path)
    assert (row["command"], row["target"], row["device"], row["profile"]) == ("deploy", "x86", "host", "standard")
    assert (row["variant"], row["runtime"], row["threads"], row["batch"]) == ("int8", "onnx", 1, 1)
    assert (row["energy_status"], row["energy_scope"]) == ("estimated", "package")
    assert row["latency_low"] < row["latency_ms"] < row["latency_high"]
    assert len(row["medians_ms"]) == 6 and row["environment"]["cpu"] == made["environment"]["cpu"]
    assert row["report"] == str(tmp_path / "report")
    assert row["change"]["says"] == ""


def test_a_change_is_called_only_where_the_sessions_show_it(made: Report, tmp_path: Path) -> None:
    for i, factor in enumerate((1.0, 1.001, 2.0)):
        history.add(tmp_path, later(made, factor, f"2026-01-0{i + 1}"), tmp_path)
    called = [(row["date"], row["change"]["called"]) for row in history.rows(tmp_path)]
    assert called == [(day(3), True), (day(2), False), (day(1), False)]
    assert [row["change"] for row in history.shown(history.rows(tmp_path))][:2] == ["1.998x", "no change (1.001x)"]


def test_the_newest_is_first_in_whatever_time_zone_it_was_written_and_whenever_it_was_listed(
    made: Report, tmp_path: Path
) -> None:
    written = {  # in the order of the listing: what time it was
        "2026-03-01T12:00:00Z": "2026-03-01T12:00:00Z",
        "2026-03-01T13:30:00+02:00": "2026-03-01T11:30:00Z",  # earlier, though its words are later
        "2026-03-01T12:00:00.900000+00:00": "2026-03-01T12:00:00Z",
        "20260301T223000-0200": "2026-03-02T00:30:00Z",
        "2026-02-28": "2026-02-28T00:00:00Z",  # a stored result that is listed now
        "yesterday": "yesterday",
    }
    for i, date in enumerate(written):
        history.add(tmp_path, later(made, 1 + i, date), tmp_path)
    dates = [row["date"] for row in history.rows(tmp_path)]
    assert dates[:-1] == sorted(list(written.values())[:-1], reverse=True) and dates[-1] == "yesterday"
    assert [row["date"] for row in history.rows(tmp_path, limit=1)] == ["2026-03-02T00:30:00Z"]
    factors = dict(zip(written, range(1, 7), strict=True))
    assert history.rows(tmp_path)[0]["change"]["ratio"] == pytest.approx(
        factors["20260301T223000-0200"] / factors["2026-03-01T12:00:00.900000+00:00"], rel=0.03
    )


@pytest.mark.parametrize(("status", "hour"), [("ok", 10), ("failed", 12)])
def test_a_report_is_dated_by_its_newest_result_never_by_the_future_and_by_now_where_something_broke(
    status: Any, hour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_767_268_800.0  # 2026-01-01T12:00:00Z
    monkeypatch.setattr(report_request.time, "time", lambda: now)
    ended = {"older": now - 90000, "newest": now - 7200, "clock was ahead": now + 86400}
    outcomes = {name: Outcome(name, "ok", made=made) for name, made in ended.items()}
    walk: Any = SimpleNamespace(outcomes={**outcomes, "c": Outcome("c", status)})
    assert report_request._date(walk, Choice("", "")) == f"2026-01-01T{hour}:00:00Z"
    assert report_request._date(walk, Choice("int8", "")) == "2026-01-01T10:00:00Z"


@pytest.mark.parametrize(("part", "key", "value"), [("run", "threads", 2), ("environment", "cpu", "another processor")])
def test_another_kind_of_result_or_machine_by_the_same_name_is_not_compared_with(
    made: Report, tmp_path: Path, part: str, key: str, value: object
) -> None:
    history.add(tmp_path, made, tmp_path)
    other = later(made, 2.0, "2026-01-02")
    other[part][key] = value
    history.add(tmp_path, other, tmp_path)
    assert history.rows(tmp_path)[0]["change"]["ratio"] is None


def test_a_result_that_was_stored_already_is_not_listed_twice(made: Report, tmp_path: Path) -> None:
    for _ in range(2):
        assert history.add(tmp_path, made, tmp_path) == ""
    assert len(history.rows(tmp_path)) == 1


def test_a_deploy_has_its_own_date_not_that_of_a_result_that_it_found(
    made: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report is dated by its newest result, which the deploy of another target may have made before."""
    (folder := tmp_path / "report").mkdir()
    (folder / "report.json").write_text(json.dumps({**made, "date": day(1)}))
    history.add(tmp_path, later(made, 1.0, day(2)), tmp_path)
    now = datetime(2026, 1, 3, tzinfo=UTC).timestamp()
    for clock in (now, now + 86400, now - 5 * 86400):  # listed, found again, and again where the clock was set back
        monkeypatch.setattr(job_run.time, "time", lambda clock=clock: clock)
        walk: Any = SimpleNamespace(
            store=SimpleNamespace(root=tmp_path), outcomes={"report": Outcome("report", "ok", made=now)}
        )
        job_run.remember(walk, Artifact(folder, "report"))
        assert [row["date"] for row in history.rows(tmp_path)] == [day(3), day(2)]


def test_what_ships_nothing_is_listed_without_numbers(made: Report, tmp_path: Path) -> None:
    nothing = {**made, "subject": "", "exit_code": 1}
    assert history.add(tmp_path, nothing, tmp_path) == ""
    (row,) = history.rows(tmp_path)
    assert (row["variant"], row["latency_ms"], row["medians_ms"]) == ("", None, [])


def test_rows_are_picked_by_source_target_and_number(made: Report, tmp_path: Path) -> None:
    for i in range(4):
        history.add(tmp_path, later(made, 1.0, f"2026-01-0{i + 1}"), tmp_path)
    assert len(history.rows(tmp_path, source="nets")) == 4
    assert history.rows(tmp_path, source="other") == history.rows(tmp_path, target="arm64") == []
    assert [row["date"] for row in history.rows(tmp_path, limit=2)] == [day(4), day(3)]


def test_rows_cannot_be_changed_or_removed(made: Report, tmp_path: Path) -> None:
    history.add(tmp_path, made, tmp_path)
    database = sqlite3.connect(tmp_path / history.FILE)
    for change in ("UPDATE results SET latency_ms = 0", "DELETE FROM results"):
        with pytest.raises(sqlite3.IntegrityError, match="append only"):
            database.execute(change)
    database.close()


# --------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_file_is_moved_aside_with_a_warning_of_one_line(content: bytes, made: Report, tmp_path: Path) -> None:
    (tmp_path / history.FILE).write_bytes(content)
    said = history.add(tmp_path, made, tmp_path)
    assert "was damaged" in said and "\n" not in said
    assert len(history.rows(tmp_path)) == 1
    (aside,) = tmp_path.glob(f"{history.FILE}.damaged-*")
    assert aside.read_bytes() == content


def test_a_table_of_another_version_is_moved_aside(made: Report, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / history.FILE)
    database.execute("CREATE TABLE results (id INTEGER PRIMARY KEY, date)")
    database.close()
    assert "was damaged" in history.add(tmp_path, made, tmp_path)
    assert len(history.rows(tmp_path)) == 1


@pytest.mark.parametrize("columns", ["foo", "source, target, environment, medians_ms"])
def test_a_table_of_something_else_is_one_line_to_read(columns: str, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / history.FILE)
    database.execute(f"CREATE TABLE results (id INTEGER PRIMARY KEY, {columns})")
    database.execute("INSERT INTO results (id) VALUES (1)")
    database.commit()
    database.close()
    with pytest.raises(InputError, match="cannot be read: no column"):
        history.rows(tmp_path)


def test_a_row_that_holds_something_else_is_one_line_to_read(made: Report, tmp_path: Path) -> None:
    history.add(tmp_path, made, tmp_path)
    database = sqlite3.connect(tmp_path / history.FILE)
    database.execute("INSERT INTO results (result, source, environment, medians_ms) VALUES ('x', 'y', '{', '[]')")
    database.commit()
    database.close()
    with pytest.raises(InputError, match="cannot be read"):
        history.rows(tmp_path)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("latency_ms", number) for number in (-1.0, math.inf, -math.inf, "5")),
        *((name, math.inf) for name in ("latency_low", "latency_high", "energy_mj", "accuracy", "instructions")),
        *(("size_bytes", number) for number in (-1, math.inf)),
        *(("medians_ms", text) for text in ("[-1.0]", "[1e999]", "[NaN]", '["1"]', "5", "{}", "[null]")),
        *(("environment", text) for text in ("[]", '"x"', "5")),
    ],
)
def test_numbers_of_a_row_that_cannot_be_are_one_line_to_read(
    column: str, value: float | str, made: Report, tmp_path: Path
) -> None:
    history.add(tmp_path, made, tmp_path)
    database = sqlite3.connect(tmp_path / history.FILE)
    database.executescript("DROP TRIGGER no_update")
    database.execute(f"UPDATE results SET {column} = ?", [value])
    database.commit()
    database.close()
    with pytest.raises(InputError, match="cannot be read: ") as told:
        history.rows(tmp_path)
    assert "\n" not in str(told.value)


def test_an_accuracy_below_0_is_one(made: Report, tmp_path: Path) -> None:
    lost = {**copy.deepcopy(made), "date": day(1)}
    variant = next(v for v in lost["variants"] if v["name"] == lost["subject"])
    variant["numbers"]["accuracy"] |= {"value": -0.5, "unit": "1"}
    history.add(tmp_path, lost, tmp_path)
    assert history.rows(tmp_path)[0]["accuracy"] == -0.5


def test_a_locked_file_is_waited_for_and_then_left(
    made: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "BUSY_S", 0.1)
    history.add(tmp_path, made, tmp_path)
    other = sqlite3.connect(tmp_path / history.FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    said = history.add(tmp_path, later(made, 1.0, "2026-01-02"), tmp_path)
    assert said.endswith("database is locked") and "\n" not in said
    other.execute("ROLLBACK")
    other.close()
    assert history.add(tmp_path, later(made, 1.0, "2026-01-02"), tmp_path) == ""
    assert len(history.rows(tmp_path)) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_a_warning(made: Report, tmp_path: Path) -> None:
    code = (
        "import json, resource, signal, sys; from pathlib import Path; from edgecompress.reporting import history\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "print(history.add(Path(sys.argv[1]), json.load(sys.stdin), Path('.')))"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "store")]
    done = subprocess.run(argv, input=json.dumps(made), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("history: this result is not listed in ") and done.stdout.count("\n") == 1


def test_a_folder_that_cannot_be_written_and_a_report_that_is_none_are_warnings(made: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is not listed" in history.add(tmp_path / "file", made, tmp_path)
    assert "is not listed" in history.add(tmp_path, {}, tmp_path)


def test_several_writers_at_once_lose_nothing(made: Report, tmp_path: Path) -> None:
    code = (
        "import json, sys; from pathlib import Path; from edgecompress.reporting import history\n"
        "made = json.load(sys.stdin)\n"
        "for i in range(10):\n"
        "    said = history.add(Path(sys.argv[1]), {**made, 'date': f'{sys.argv[2]}-{i}'}, Path('.'))\n"
        "    assert not said, said"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    writers = [subprocess.Popen([*argv, str(i)], stdin=subprocess.PIPE, text=True) for i in range(4)]
    for writer in writers:
        assert writer.stdin
        writer.stdin.write(json.dumps(made))
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert len({row["date"] for row in history.rows(tmp_path, limit=100)}) == 40


# --------------------------------------------------------------------------- with the rest


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no history\.sqlite here; give --store, or deploy first"):
        history.rows(tmp_path)
    (tmp_path / history.FILE).write_bytes(b"nothing of ours" * 100)
    with pytest.raises(InputError, match="cannot be read"):
        history.rows(tmp_path)
    assert [f.name for f in tmp_path.iterdir()] == [history.FILE]


@pytest.mark.slow
def test_deploy_and_profile_are_listed_and_a_damaged_file_costs_them_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    net = nulls.make(tmp_path / "net")
    quick = ["--profile", "quick", *(f"--set={key}={value}" for key, value in nulls.FAST.items())]
    words = [net["model"], "--data", net["data"], "--target", net["target"], "--out", "out", *quick]
    assert main.main(["deploy", *words]) == 0
    assert main.main(["profile", "out", *quick]) == 0
    capsys.readouterr()
    assert main.main(["history", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["command"], row["variant"]) for row in rows] == [("profile", "plain"), ("deploy", "plain")]
    assert {row["source"] for row in rows} == {net["model"]}
    for row in rows:
        report = job_run.Result(0, "", report=Path(row["report"])).read_report()
        (variant,) = report["variants"]
        assert variant["sessions"][0]["latencies_ms"] and report["environment"]["cores"]
    (tmp_path / ".edgecompress" / history.FILE).write_bytes(b"damaged" * 200)
    assert main.main(["deploy", *words]) == 0
    told = capsys.readouterr().err
    assert told.count("edgecompress: warning: ") == 1 and "was damaged" in told
    assert main.main(["history"]) == 0
    assert capsys.readouterr().out.count("\n") == 2
