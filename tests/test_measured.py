"""Measured elsewhere: what is believed of a stranger's JSON, what follows from it, and that none of it is lost."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import measured_inputs
import msgspec
import nulls
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_inputs import Told, of, read, sessions, shipped, told, without
from report_inputs import HOSTILE
from rich.console import Console

from edgecompress.cli import main
from edgecompress.commands import deploy
from edgecompress.commands import report as reporting
from edgecompress.core import stats
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact
from edgecompress.core.package_contents import digest
from edgecompress.core.session_stats import in_numbers
from edgecompress.pipeline.job_request import Options
from edgecompress.reporting import external_results, external_rows, html, markdown, model, model_numbers, terminal
from edgecompress.reporting import external_section as faces

pytestmark = pytest.mark.slow

SCHEMA = json.loads(
    Path(external_results.__file__).with_name("external_results.schema.json").read_text(encoding="utf-8")
)
REPORT = model.json_schema()
Checked = jsonschema.Draft202012Validator(SCHEMA)

# --------------------------------------------------------------------------- reading


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)
counts = st.integers(1, 4096)
latencies = st.lists(st.integers(1, external_results.LONGEST_NS), min_size=20, max_size=60)
moments = st.datetimes().map(lambda t: t.strftime("%Y").zfill(4) + t.strftime("-%m-%dT%H:%M:%SZ"))
tellings = st.fixed_dictionaries(
    {
        "schema": st.just(external_results.SCHEMA),
        "model": st.fixed_dictionaries({"name": names, "sha256": st.binary(min_size=32, max_size=32).map(bytes.hex)}),
        "runtime": st.fixed_dictionaries({"name": names, "version": st.text(max_size=9)}),
        "device": st.fixed_dictionaries(
            {"name": names, "platform": st.from_regex(r"[a-z0-9]{1,9}-[a-z0-9_]{1,9}", fullmatch=True)}
            | {"os": st.text(max_size=20), "cpu": st.text(max_size=20), "cores": st.none() | counts},
            optional={"browser": st.none() | st.text(max_size=20)},
        ),
        "run": st.fixed_dictionaries(
            {"threads": counts, "batch": st.just(1), "warmup": st.integers(0, 10**6), "started": moments}
        ),
        "self_test": st.sampled_from(["pass", "fail"]),
        "latencies_ns": latencies,
        "clock": st.sampled_from(SCHEMA["properties"]["clock"]["enum"]),
        "clock_step_ns": st.integers(1, external_results.LONGEST_NS),
    }
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False).filter(lambda f: f % 1) | st.text()
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


def refused(data: bytes) -> str:
    with pytest.raises(InputError) as raised:
        external_results.parsed(data, "x.json")
    return str(raised.value)


@settings(max_examples=60, deadline=None)
@given(tellings)
def test_what_the_schema_allows_is_read_and_kept_as_it_was(given_: Told) -> None:
    Checked.validate(given_)
    (found,) = read(given_)
    assert list(found.latencies_ns) == given_["latencies_ns"]
    assert external_results.parsed(found.canonical, "again") == found
    jsonschema.Draft202012Validator(REPORT["$defs"]["ExternalRow"] | {"$defs": REPORT["$defs"]}).validate(
        msgspec.to_builtins(external_rows.rows([found]))[0]
    )


@settings(max_examples=60, deadline=None)
@given(tellings, st.randoms(use_true_random=False))
def test_a_measurement_has_one_name_however_its_json_is_written(given_: Told, rng: Any) -> None:
    (found,) = read(given_)
    shuffled = dict(rng.sample(list(given_.items()), len(given_)))
    pretty = json.dumps(shuffled, indent=3, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert external_results.parsed(pretty, "x.json").name == found.name


@settings(max_examples=150, deadline=None)
@given(st.data(), anything)
def test_the_reader_and_the_schema_agree_on_what_is_changed(data: st.DataObject, value: Any) -> None:
    """But for the day of the month, which no pattern knows."""
    changed = told()
    tables = [changed, *(v for v in changed.values() if isinstance(v, dict))]
    table = data.draw(st.sampled_from(tables))
    key = data.draw(st.sampled_from([*table, "more"]))
    table[key] = value
    try:
        read(changed)
        accepted = True
    except InputError as error:
        accepted = False
        assert "\n" not in str(error) and len(str(error)) < 500
    assert accepted == Checked.is_valid(changed)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | anything.map(lambda v: json.dumps(v).encode()))
def test_no_bytes_make_the_reader_break(data: bytes) -> None:
    line = refused(data)
    assert line.startswith("x.json: ") and "\n" not in line


def text(given_: Told) -> str:
    return json.dumps(given_)


WRONG: list[tuple[str, str]] = [
    ("{", "not the JSON of a measurement: Expecting property name"),
    ("[" * 100_000, "not the JSON of a measurement: "),
    ("[]", 'its schema is null, not "edgecompress/measured/1"'),
    (
        text(told(schema="edgecompress/measured/2")),
        'its schema is edgecompress/measured/2, not "edgecompress/measured/1"',
    ),
    (text(told()).replace('"pass"', "NaN"), "NaN is not a number"),
    (text(told()).replace('"clock_step_ns": 1', '"clock_step_ns": 1, "clock_step_ns": 2'), "a key occurs twice"),
    (text(told(device__name="x" * 501)), "name: a text of 501 characters, more than 500"),
    (text(told(device__name="")), "x.json: device: name is empty"),
    (text(told(device__cored=4)), "x.json: device: unknown key 'cored', did you mean 'cores'?"),
    (text(told(device__cores=0)), "x.json: device: cores is not 1 to 4096, or null"),
    (text(told(device__cores=True)), "x.json: device: cores: must be a whole number, not True"),
    (text(told(device__platform="../x")), "x.json: device: platform is not like android-arm64 or web-x86_64"),
    (text(told(model__sha256="AB" * 32)), "x.json: model: sha256 is not 64 hexadecimal digits in lower case"),
    (text(told(run__batch=2)), "x.json: run: batch is 2; a package runs one item at a time: 1"),
    (text(told(run__threads=0)), "x.json: run: threads is 0, not 1 to 4096"),
    (text(told(run__warmup=-1)), "x.json: run: warmup is -1, not 0 to 1000000"),
    (text(told(run__started="2026-02-30T12:00:00Z")), "started is not a time in UTC: write it as 2026-11-22T14:03:05Z"),
    (text(told(run__started="2026-02-03T12:00:00+01:00")), "started is not a time in UTC"),
    (text(told(self_test="passed")), "x.json: self_test: 'passed' is not a valid value, did you mean 'pass'?"),
    (text(told(clock="Date.now")), "x.json: clock: 'Date.now' is not a valid value"),
    (text(told(clock_step_ns=0)), "x.json: clock_step_ns is 0, not 1 or more"),
    (text(told(n=19)), "x.json: latencies_ns has 19 values, not 20 to 1000000"),
    (text(told(latencies_ns=[5.5] * 20)), "latencies_ns[0] is 5.5, not a positive whole number of nanoseconds"),
    (text(told(latencies_ns=[5] * 20 + [-5])), "latencies_ns[20] is -5, not a positive whole number"),
    (text(told(latencies_ns=[10**30] * 20)), f"latencies_ns[0] is {10**30}, not a positive whole number"),
    (
        text(told(latencies_ns=[0] * 20, clock_step_ns=100_000)),
        "the inference is shorter than the clock's step of 100000 ns",
    ),
    (text(told(latencies_ns="no")), "x.json: latencies_ns: must be a list, not 'no'"),
    (text(without(told(), "latencies_ns")), "x.json: key 'latencies_ns' is missing; it must be a list"),
    (text(without(told(), "device__os")), "x.json: device: key 'os' is missing; it must be a string"),
    (text({**told(), HOSTILE: 1}), "x.json: unknown key '"),
]


@pytest.mark.parametrize(("data", "says"), WRONG, ids=[says[-40:] for _, says in WRONG])
def test_each_thing_that_is_wrong_has_its_line(data: str, says: str) -> None:
    line = refused(data.encode())
    assert says in line
    assert line.isprintable() and len(line) < 500


def test_a_file_is_read_up_to_its_limit_and_no_further(tmp_path: Path) -> None:
    (tmp_path / "huge.json").write_bytes(b" " * (external_results.LARGEST + 1))
    for name, says in (
        ("huge.json", "larger than 16 MiB"),
        ("none.json", "cannot be read: No such file"),
        ("", "is a folder"),
    ):
        with pytest.raises(InputError, match=says):
            external_results.read(tmp_path / name)


# --------------------------------------------------------------------------- what follows


def row(*given_: Told) -> dict[str, Any]:
    (found,) = msgspec.to_builtins(external_rows.rows(read(*given_)))
    return found


def test_one_session_has_its_numbers_and_no_interval() -> None:
    given_ = told(n=100)
    found = row(given_)
    own, latency = in_numbers([ns / 1e6 for ns in given_["latencies_ns"]]), found["numbers"]["latency"]
    assert (latency["value"], latency["low"], latency["high"], latency["n"]) == (own["median_ms"], None, None, 1)
    assert latency["status"] == "measured"
    assert latency["source"] == "System.nanoTime on Pixel 8, 2026-01-01, by the benchmark of its android package"
    assert found["numbers"]["p90"]["value"] == own["p90_ms"]
    assert found["numbers"]["throughput"]["value"] == pytest.approx(1e3 / own["median_ms"])
    assert "needs 299 runs" in found["numbers"]["p99"]["reason"]
    assert found["says"] == ["one session: no interval"]


def test_energy_is_unavailable_and_says_why() -> None:
    energy = row(told())["numbers"]["energy_gross"]
    assert (energy["value"], energy["status"]) == (None, "unavailable")
    assert energy["reason"] == "a package's benchmark reads no sensor"


@pytest.mark.parametrize(("count", "says"), [(2, ["2 sessions: the interval covers 50 %"]), (6, [])])
def test_sessions_of_a_device_have_an_interval_as_wide_as_the_clock_is_coarse(count: int, says: list[str]) -> None:
    given_ = sessions(count, clock_step_ns=40)
    found = row(*given_)
    medians = [statistics.median(t["latencies_ns"]) / 1e6 for t in given_]
    interval = stats.interval(medians)
    assert interval is not None
    latency, rate = found["numbers"]["latency"], found["numbers"]["throughput"]
    assert latency["value"] == pytest.approx(statistics.median(medians))
    assert (latency["low"], latency["high"]) == pytest.approx((interval[0] - 40e-6, interval[1] + 40e-6))
    assert (rate["low"], rate["high"]) == pytest.approx((1e3 / latency["high"], 1e3 / latency["low"]))
    assert latency["n"] == count and found["says"] == says
    assert [s["started"][:10] for s in found["sessions"]] == [f"2026-01-{i:02}" for i in range(1, count + 1)]


def test_a_clock_that_steps_as_far_as_an_inference_takes_gives_no_number() -> None:
    found = row(told(clock="performance.now", clock_step_ns=1_000_000, latencies_ns=[1_000_000] * 40))
    assert {n["value"] for n in found["numbers"].values()} == {None}
    assert found["says"] == ["its clock steps by 1 ms, no less than it takes", "one session: no interval"]
    assert found["rank"] is None


def test_latencies_betray_a_clock_that_steps_further_than_it_says() -> None:
    found = row(told(latencies_ns=[400_000, 500_000] * 20, clock_step_ns=1))
    assert found["clock_step_ns"] == 100_000
    assert "its clock steps by 100 µs" in found["says"]
    assert row(told(latencies_ns=[500_000] * 40, clock_step_ns=1))["clock_step_ns"] == 1


@pytest.mark.parametrize(
    ("value", "step_ms", "says"),
    [(0.5, 0.02, "0.50 ms"), (5.0, 1.0, "5 ms"), (0.09217, 5e-5, "0.09217 ms"), (12.3456, 0.1, "12.3 ms")],
)
def test_no_digit_is_finer_than_the_clock(value: float, step_ms: float, says: str) -> None:
    assert faces.timed(model_numbers.Number("latency", value, "ms"), step_ms) == says


def test_drift_within_a_session_is_told() -> None:
    rising = [100_000 + 1000 * i + i % 7 for i in range(60)]
    found = row(told(), told(session=1, latencies_ns=rising))
    assert any(says.startswith("session 2 drifting: +") for says in found["says"])


def test_the_fastest_is_first_and_what_failed_its_self_test_is_not_ranked() -> None:
    given_ = [told("slow", 900_000), told("wrong", 10_000, self_test="fail"), told("fast", 200_000)]
    found = msgspec.to_builtins(external_rows.rows(read(*given_)))
    assert [(r["device"]["name"], r["rank"]) for r in found] == [("fast", 1), ("slow", 2), ("wrong", None)]
    assert found[2]["says"][0] == "self-test FAILED: not ranked"
    assert "not ranked" in found[2]["numbers"]["latency"]["reason"]


def test_another_way_of_asking_is_another_row() -> None:
    others = [told(run__threads=4), told(runtime__version="2.4"), told(device__os="Android 16"), told(self_test="fail")]
    assert len(external_rows.rows(read(told(), *others))) == 5


@pytest.mark.parametrize(
    ("platform", "package"),
    [("android-arm64", "android"), ("web-x86_64", "web"), ("macos-arm64", "ios"), ("linux-armv7l", "tar")],
)
def test_a_row_names_the_package_whose_benchmark_it_was(platform: str, package: str) -> None:
    assert row(told(device__platform=platform))["package"] == package


# --------------------------------------------------------------------------- in the folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a deploy wrote; the faces are not drawn, but report.json is written."""

    def write(said: dict[str, Any], home: Path) -> None:
        (home / "report.json").write_text(json.dumps(said), encoding="utf-8")

    monkeypatch.setattr(reporting, "_drawn", lambda walk, said: said)
    monkeypatch.setattr(reporting, "_place", write)
    monkeypatch.chdir(tmp_path)
    return shipped(tmp_path)


def kept(folder: Path) -> list[str]:
    return [f.name for f in external_results.files(folder)]


def test_the_digest_is_the_one_of_the_card(folder: Path) -> None:
    files = {"model/model.onnx": b"m" * 999, "model/weights.bin": b"w" * 99}
    listed = [{"path": p, "bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for p, d in files.items()]
    found = external_results.digest(Artifact.read(folder / "artifact"))
    assert found == digest({"model": {"files": listed}})


def test_the_same_file_twice_is_the_same_row(folder: Path) -> None:
    (file,) = of(folder, told())
    first = reporting.add(folder, [file, file])
    again = file.with_name("pretty.json")
    again.write_text(json.dumps(json.loads(file.read_text()), indent=2, sort_keys=True))
    assert reporting.add(folder, [again]) == first
    assert len(kept(folder)) == len(first["elsewhere"]) == len(first["elsewhere"][0]["sessions"]) == 1


def test_it_is_in_the_report_ever_after(folder: Path) -> None:
    reporting.add(folder, of(folder, *sessions(2)))
    found = reporting.report(folder)
    assert found == reporting.report(folder / "report.json")
    assert found["elsewhere"][0]["numbers"]["latency"]["n"] == 2
    jsonschema.Draft202012Validator(REPORT).validate(found)
    assert all((folder / "measured" / f"{s['round']}.json").is_file() for s in found["elsewhere"][0]["sessions"])


def test_all_are_looked_at_before_one_is_kept(folder: Path) -> None:
    good, other = of(folder, told(), told(session=1))
    other.write_text(text(told()))
    with pytest.raises(InputError, match=r"told-1\.json: measured another model \(sha256 abababababab…, what shipped"):
        reporting.add(folder, [good, other])
    assert kept(folder) == []


def test_a_session_that_is_told_again_with_other_numbers_is_refused(folder: Path) -> None:
    reporting.add(folder, of(folder, told()))
    with pytest.raises(InputError, match=r"Pixel 8, 2026-01-01T12:00:00Z: this session occurs twice"):
        reporting.add(folder, of(folder, told(latencies_ns=[250_000 + i for i in range(20)])))
    assert len(kept(folder)) == 1


@pytest.mark.parametrize("spoil", ["changed", "renamed", "link"])
def test_what_is_kept_is_what_was_added(folder: Path, spoil: str) -> None:
    reporting.add(folder, of(folder, told()))
    (file,) = external_results.files(folder)
    if spoil == "changed":
        file.write_bytes(file.read_bytes().replace(b"Pixel 8", b"Pixel 9"))
    else:
        place = file.with_name("0" * 12 + ".json") if spoil == "renamed" else folder.parent / "outside.json"
        file.rename(place)
        if spoil == "link":
            file.symlink_to(place)
    with pytest.raises(InputError, match="changed after it was added"):
        reporting.report(folder)


def test_a_folder_without_an_artifact_takes_nothing(folder: Path, tmp_path: Path) -> None:
    (file,) = of(folder, told())
    (folder / "artifact").rename(tmp_path / "gone")
    with pytest.raises(InputError, match="no artifact in this folder"):
        reporting.add(folder, [file])


def test_a_report_of_before_is_read_and_added_to(folder: Path) -> None:
    old = json.loads((folder / "report.json").read_text())
    del old["elsewhere"]
    (folder / "report.json").write_text(json.dumps(old))
    assert faces.TITLE not in markdown.page(model.of(old)) + html.page(model.of(old)) + shown(old)
    assert "elsewhere" not in reporting.report(folder)
    assert len(reporting.add(folder, of(folder, told()))["elsewhere"]) == 1


def test_a_report_that_ranks_what_failed_its_self_test_is_refused(folder: Path) -> None:
    found = reporting.add(folder, of(folder, told(self_test="fail")))
    found["elsewhere"][0]["rank"] = 1
    with pytest.raises(ValueError, match="self-test failed"):
        model.of(found)


KILLED = """
import os, signal, sys
from pathlib import Path
from edgecompress.commands import report as reporting
reporting._drawn = lambda walk, said: said
where, name = (reporting, "_place") if sys.argv[1] == "between" else (Path, "replace")
setattr(where, name, lambda *given: os.kill(os.getpid(), signal.SIGKILL))
reporting.add(Path("out"), [Path("told-0.json")])
"""


@pytest.mark.parametrize(("moment", "count"), [("between", 1), ("before", 0)])
def test_a_kill_between_keeping_and_showing_loses_nothing(folder: Path, moment: str, count: int) -> None:
    of(folder, told())
    done = subprocess.run([sys.executable, "-c", KILLED, moment], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(reporting.report(folder).get("elsewhere", [])) == len(kept(folder)) == count
    reporting.add(folder, [Path("told-0.json")])
    assert len(json.loads((folder / "report.json").read_text())["elsewhere"]) == len(kept(folder)) == 1


@pytest.mark.prove
def test_a_new_deploy_of_the_same_bytes_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = Options(store=tmp_path / "store", out=tmp_path / "out")
    ways = {"profile": "quick", "settings": nulls.FAST}
    deploy.deploy(**nulls.make(tmp_path / "net"), **ways, options=options)
    reporting.add(tmp_path / "out", of(tmp_path / "out", told()), options)
    deploy.deploy(**nulls.make(tmp_path / "net"), **ways, options=options)
    assert len(kept(tmp_path / "out")) == 1
    assert json.loads((tmp_path / "out" / "report.json").read_text())["elsewhere"][0]["device"]["name"] == "Pixel 8"
    assert "1. Pixel 8" in (tmp_path / "out" / "report.html").read_text()
    deploy.deploy(**nulls.make(tmp_path / "net", scale=2.0), **ways, options=options)
    assert kept(tmp_path / "out") == []


# --------------------------------------------------------------------------- what is shown


def shown(report: dict[str, Any], width: int = 200, verbose: bool = True) -> str:
    sent = io.StringIO()
    Console(width=width, file=sent).print(terminal.render(model.of(report), verbose))
    return sent.getvalue()


@pytest.fixture
def hostile(folder: Path) -> dict[str, Any]:
    words = {f"device__{key}": HOSTILE for key in ("name", "os", "cpu", "browser")}
    return reporting.add(folder, of(folder, told(**words, model__name=HOSTILE, runtime__name=HOSTILE)))


class Tags(HTMLParser):
    """The elements and attributes that a browser would make."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}


def test_a_hostile_name_is_only_text(folder: Path, hostile: dict[str, Any]) -> None:
    plain = reporting.add(folder, of(folder, told("Plain")))
    plain["elsewhere"] = [r for r in plain["elsewhere"] if r["device"]["name"] == "Plain"]
    for page in (html.page(model.of(hostile)), markdown.page(model.of(hostile)), shown(hostile)):
        assert "\u202e" not in page and "\x1b" not in page and "\x00" not in page
    page = html.page(model.of(hostile))
    assert Tags(page).found == Tags(html.page(model.of(plain))).found and "&lt;script&gt;" in page
    assert "<script" not in markdown.page(model.of(hostile))


@pytest.mark.parametrize("count", [1, 2])
def test_each_face_has_the_same_words(folder: Path, count: int) -> None:
    given_ = [*sessions(count), told("Redmi", 800_000), told("Broken", self_test="fail")]
    found = reporting.add(folder, of(folder, *given_))
    table, places = faces.table(model.of(found)), faces.places(model.of(found))
    unescaped = " ".join(shown(found, 300).split())
    for cell in (cell for t in (table, places) for line in (t.head, *t.rows) for cell in line):
        assert cell in unescaped
        assert markdown.text(cell) in markdown.page(model.of(found))
    assert [line[0] for line in table.rows] == ["1. Pixel 8", "2. Redmi", "– Broken"]


def test_two_rows_of_one_name_are_told_apart(folder: Path) -> None:
    given_ = [told(self_test="fail"), told(self_test="fail", run__threads=2), told("x" * 400)]
    found = reporting.add(folder, of(folder, *given_))
    assert faces.names(model.of(found).elsewhere) == [f"1. {'x' * 60}…", "– Pixel 8", "– Pixel 8 (2)"]


def test_the_terminal_keeps_to_its_width(folder: Path) -> None:
    found = reporting.add(folder, of(folder, told("x" * 400), *sessions(2)))
    assert max(map(len, shown(found, 80).splitlines())) <= 80


def test_a_narrow_terminal_splits_no_name_and_no_number(folder: Path) -> None:
    given_ = [*sessions(2), told("Samsung Galaxy S24 Ultra (SM-S928B)"), told("Broken", self_test="fail")]
    lines = shown(reporting.add(folder, of(folder, *given_)), 80, verbose=False).splitlines()
    assert max(map(len, lines)) <= 80
    head = next(line for line in lines if line.startswith("on other devices"))
    assert head.split("  ")[0] == "on other devices" and "median" in head and "inferences/s" in head
    (row,) = (line for line in lines if "Samsung Galaxy S24 Ultra (SM-S928B)" in line and " ms" in line)
    assert "/s" not in row and len(row.split("  ")) >= 4


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_the_command_adds_and_shows(folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    files = [str(f) for f in of(folder, *sessions(2))]
    assert main.main(["report", "out", "--add", *files, *flags]) == 0
    first = capsys.readouterr().out
    assert main.main(["report", "out", *flags]) == 0
    assert capsys.readouterr().out == first and "Pixel 8" in first


def test_a_refused_file_is_one_line_and_exit_code_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.json").write_text("[]")
    assert main.main(["report", "out", "--add", "bad.json"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("edgecompress: error: bad.json: its schema is null") and said.err.count("\n") == 1
    assert not said.out


def spoil(report: dict[str, Any]) -> None:
    del report["variants"]


@pytest.mark.parametrize("change", [spoil, lambda report: report.update(deltas=3)])
def test_a_report_that_cannot_be_drawn_is_one_line_and_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shipped(tmp_path)
    report = json.loads((folder / "report.json").read_text())
    wrong = copy.deepcopy(report)
    change(wrong)
    (folder / "report.json").write_text(json.dumps(wrong))
    files = of(folder, told())
    with pytest.raises(InputError, match=r"report\.json: (damaged|not as this version)"):
        reporting.add(folder, files)
    assert not kept(folder) and json.loads((folder / "report.json").read_text()) == wrong
    (folder / "report.json").write_text(json.dumps(report))
    reporting.add(folder, files)
    assert sorted(p.name for p in folder.iterdir()) == [
        "artifact",
        "measured",
        "report.html",
        "report.json",
        "report.md",
    ]
    assert json.loads((folder / "report.json").read_text()) == reporting.report(folder)
    assert measured_inputs.told()["device"]["name"] in (folder / "report.html").read_text()
