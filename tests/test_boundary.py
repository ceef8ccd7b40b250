"""The boundary of the command line: whatever goes wrong with a stream, a path, a disk or a stranger's file is one line.

Every command that prints meets every fault of a stream; every option that names a file meets every bad name.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import jsonschema
import nulls
import numpy as np
import pytest

from edgecompress.cli import main
from edgecompress.reporting import model

pytestmark = pytest.mark.slow

QUICK = ["--profile", "quick", *(f"--set={key}={value}" for key, value in nulls.FAST.items())]
NET = ["net.null", "--data", "data", "--target", "null.toml", *QUICK]
UNREAD, INTERRUPTED = 141, 130

# What prints, and how: with all results of a deploy in the store and in `out`.
PRINTING = {
    "help": "--help",
    "version": "--version",
    "help of a command": "deploy --help",
    "help of a group": "cache --help",
    "plan": f"plan {' '.join(NET)}",
    "plan as JSON": f"plan {' '.join(NET)} --json",
    "deploy": f"deploy {' '.join(NET)} --out out",
    "deploy as JSON": f"deploy {' '.join(NET)} --out out --json",
    "verify": "verify out",
    "report": "report out",
    "report as JSON": "report out --json",
    "report in a line": "report out --quiet",
    "compare": "compare out out --fail-if size_bytes>1",
    "compare as JSON": "compare out out --json",
    "history": "history",
    "targets": "targets",
    "devices": "devices",
    "profiles": "profiles --json",
    "techniques": "techniques",
    "runtimes": "runtimes",
    "sensors": "sensors",
    "profilers": "profilers",
    "transports": "transports --json",
    "packagers": "packagers",
    "a target": "targets x86",
    "cache ls": "cache ls",
    "cache why": "cache why plain/verify",
    "cache gc": "cache gc",
    "cache verify": "cache verify --json",
    "doctor": "doctor",
    "completion": "completion bash",
    "package": "package out --out again.tar.gz",
    "package verify": "package verify out.tar.gz",
    "pack": "pack out/report.json --out again.packed",
    "init": "init mine --kind profile --output mine.toml",
}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a null net was deployed and packaged."""
    folder = tmp_path_factory.mktemp("boundary")
    nulls.make(folder)
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        assert main.main(["deploy", *NET, "--out", "out"]) == 0
        assert main.main(["package", "out"]) == 0
    return folder


@pytest.fixture
def place(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same; a file that a test adds goes."""
    before = set(shipped.iterdir())
    monkeypatch.chdir(shipped)
    yield shipped
    for path in set(shipped.iterdir()) - before:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def said(words: list[str], out: TextIO | None = None) -> tuple[int, str]:
    """The exit code of a command, and what it says on stderr."""
    with io.StringIO() as errors, contextlib.redirect_stderr(errors), contextlib.redirect_stdout(out or io.StringIO()):
        code = main.main(words)
        return code, errors.getvalue()


def refused(words: list[str], code: int = 2) -> str:
    """The one line that a command ends with."""
    ended, line = said(words)
    assert line.startswith("edgecompress: error: ") and line.count("\n") == 1, line
    assert ended == code, line
    return line


def results(place: Path) -> list[Path]:
    """What the folder has, and what the store keeps."""
    return sorted([*place.glob("*"), *place.glob(".edgecompress/store/*"), *place.glob("out/*")])


# --------------------------------------------------------------------------- streams


def unread() -> TextIO:
    """A pipe whose reader has gone."""
    read, write = os.pipe()
    os.close(read)
    return open(write, "w", encoding="utf-8")


@pytest.mark.parametrize("command", PRINTING)
def test_a_reader_that_goes_away_is_neither_an_error_nor_a_failed_check(command: str, place: Path) -> None:
    with unread() as out:
        code, errors = said(PRINTING[command].split(), out)
    assert code == UNREAD
    assert "error" not in errors and "Traceback" not in errors


@pytest.mark.parametrize("command", PRINTING)
def test_a_full_disk_behind_stdout_is_one_line(command: str, place: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as out:
        code, errors = said(PRINTING[command].split(), out)
    assert code == 3
    assert errors.splitlines()[-1].startswith("edgecompress: error: the output cannot be written: No space left")
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", PRINTING)
def test_a_terminal_of_ascii_gets_ascii(command: str, place: Path) -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii", errors="strict") as out:
        code, errors = said(PRINTING[command].split(), out)
        out.flush()
        shown = raw.getvalue().decode("ascii")
    assert code == (1 if "fail-if" in PRINTING[command] else 0), errors
    if "--json" in PRINTING[command]:
        json.loads(shown)


# --------------------------------------------------------------------------- names

# The words that a command needs beside an option that names a file; `?` stands for the name.
NAMING = {
    "deploy": ["? --data data --target null.toml", "net.null --data ?", "--target ?.toml", "--device ?.toml"]
    + [f"{' '.join(NET)} {option}" for option in ("--profile ?.toml", "--out ?", "--store ?")],
    "guard": [f"{' '.join(NET)} --out ?", "?.toml"],
    "plan": ["?.pt2", "?.onnx --data random", "?.tflite --data random", "?.keras", "?:fn --data random"],
    "analyze": ["?.onnx", "net.null --data ?", "net.null --data data --html ?", "net.null --data data --store ?"],
    "diagnose": ["net.null --data data --artifact ?", "net.null --data data --artifact out --out ?", "--target ?.toml"],
    "trim": ["? --data data --out small", "net --data a.tsv --out ?"],
    "verify": ["?", "out ?.onnx --data data", "out --data ?", "out --target ?.toml", "out --store ?"],
    "profile": ["?", "out --device ?.toml", "out --profile ?.toml", "out --store ?"],
    "report": ["?", "?.json", "out --add ?", "? --add ?"],
    "package": ["?", "out --out ?", "out --sign ?"],
    "package verify": ["?", "out.tar.gz --key ?"],
    "pack": ["?", "?.onnx", "out/report.json --out ?"],
    "unpack": ["?", "?.packed", "out.packed --out ?"],
    "compare": ["? out", "out ?.json", "out ?@plain", "out out --html ?", "out out --remeasure --device ?.toml"],
    "history": ["--store ?"],
    "targets": ["?.toml"],
    "devices": ["?.toml"],
    "profiles": ["?.toml"],
    "techniques": ["?"],
    "cache ls": ["--store ?"],
    "cache why": ["x --store ?", "?"],
    "cache gc": ["--store ?"],
    "cache verify": ["--store ?"],
    "energy calibrate": ["--device ?.toml", "--device host --profile ?.toml", "--device host --out ?"],
    "device add": ["--ssh nobody@localhost --output ?", "--ssh nobody@localhost --name ?"],
    "device blocks": ["?.toml"],
    "doctor": ["--device ?.toml"],
    "init": ["?", "x --kind device --output ?"],
}
NAMES = {
    "NUL": "a\0b",
    "not UTF-8": "a\udcffb",
    "too long": "n" * 300,
    "through a file": "net.null/x",
}


@pytest.mark.parametrize("fault", NAMES)
@pytest.mark.parametrize("command", NAMING)
def test_a_name_that_no_file_can_have_is_refused_in_one_line(command: str, fault: str, place: Path) -> None:
    before = results(place)
    for words in NAMING[command]:
        line = refused([*command.split(), *(word.replace("?", NAMES[fault]) for word in words.split())])
        assert line.isprintable() or line[:-1].isprintable(), line
    assert results(place) == before


# --------------------------------------------------------------------------- places to write to

UNSEEN = "net.null --data data --target null.toml --profile quick --store unseen"  # nothing of it is stored
WRITING = {  # the command, and what is at its place: a file where it makes a folder, a folder where it makes a file
    "deploy": (f"{UNSEEN} --out", "net.null"),
    "guard": (f"{UNSEEN} --out", "net.null"),
    "diagnose": ("--artifact out net.null --data data --store unseen --out", "net.null"),
    "analyze": ("net.null --data data --store unseen --html", "data"),
    "compare": ("out out --store unseen --html", "data"),
    "package": ("out --out", "data"),
    "energy calibrate": ("--device host --out", "data"),
    "device add": ("--ssh nobody@nowhere.invalid --output", "data"),
    "init": ("mine --output", "data"),
}


@pytest.mark.parametrize("command", WRITING)
def test_a_place_that_nothing_can_be_written_to_is_found_before_the_work(command: str, place: Path) -> None:
    words, taken = WRITING[command]
    before = results(place)
    for at in (taken, "net.null/in/it", "/proc/nowhere/at/all", "n" * 300):
        line = refused([*command.split(), *words.split(), at])
        assert "; give " in line, line
    assert [path for path in results(place) if path.name != "unseen"] == before
    assert not list(place.glob("unseen/logs/*"))


# --------------------------------------------------------------------------- what strangers write


def sparse(file: Path) -> None:
    """A gigabyte that takes no room."""
    with file.open("r+b") as stream:
        stream.truncate(1 << 30)


def told_twice(file: Path) -> None:
    """Readers differ in which one counts."""
    key, value = next(iter(json.loads(file.read_text()).items()))
    file.write_text(f"{{{json.dumps(key)}: {json.dumps(value)}, {file.read_text().lstrip()[1:]}")


def piped(file: Path) -> None:
    """Who reads it waits for a writer."""
    file.unlink()
    os.mkfifo(file)


def drives(file: Path) -> None:
    """Each key is another, and hostile."""
    table = json.loads(file.read_text())
    file.write_text(json.dumps({f"\x1b[31m{key}\n": value for key, value in table.items()}, ensure_ascii=False))


def without(key: str) -> Callable[[Path], None]:
    """The JSON without a key."""

    def change(file: Path) -> None:
        table = json.loads(file.read_text())
        del table[key]
        file.write_text(json.dumps(table))

    return change


def other(key: str, value: object) -> Callable[[Path], None]:
    """The JSON with another value."""

    def change(file: Path) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))

    return change


def numbers(**changed: dict[str, object]) -> Callable[[Path], None]:
    """The report with numbers of each variant changed."""

    def change(file: Path) -> None:
        report = json.loads(file.read_text())
        for variant in report["variants"]:
            for name, values in changed.items():
                variant["numbers"][name] |= values
        file.write_text(json.dumps(report))

    return change


def text(content: str) -> Callable[[Path], None]:
    """The content instead."""
    return lambda file: file.write_text(content, encoding="latin-1") and None


DAMAGED: dict[str, Callable[[Path], None]] = {
    "empty": text(""),
    "half": text('{"schema": '),
    "a list": text("[]"),
    "no keys": text("{}"),
    "not UTF-8": text('{"a": "\xff"}'),
    "no number": text('{"a": NaN}'),
    "infinite": text('{"a": 1e999}'),
    "long number": text('{"a": ' + "9" * 5000 + "}"),
    "deep": text("[" * 200_000),
    "deep tables": text('{"a":' * 900 + "1" + "}" * 900),
    "a gigabyte": sparse,
    "a key twice": told_twice,
    "a pipe": piped,
    "driving a terminal": drives,
}
OF_REPORT = {
    "variants of text": other("variants", ["x", "y"]),
    "a number as choice": other("choice", 1),
    "no summary": other("summary", None),
    "a later schema": other("schema", "edgecompress/stages/report/99"),
    "a time below 0": numbers(latency={"status": "measured", "value": -1.0}),
    "a share above 1": numbers(accuracy={"status": "measured", "value": 2.5, "unit": "fraction"}),
    "another unit": numbers(latency={"unit": "s"}),
    "an interval upside down": numbers(latency={"low": 2.0, "high": 1.0}),
}
OF_CARD = {
    "inputs of text": other("inputs", ["x"]),
    "a table as kind": other("kind", {}),
    "facts of text": other("facts", "../../x"),
    "a name of numbers": other("outputs", [{"name": 1, "shape": [1], "dtype": "float32"}]),
}
OF_ORIGIN = {"a list as source": other("source", [None]), "a number as target": other("target", 1)}
NO_ORIGIN = ("no keys", "driving a terminal")  # an older version wrote none
REPORTS = ("report ?", "report ? --json", "report ? -q", "report ? --add net.null", "compare ? out", "package ?")
CARDS = ("package ?", "verify ?", "profile ?", "diagnose --artifact ?", "compare --remeasure out ?")


def cases() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """A file of a shipped folder, what became of it, and who reads it."""
    yield from (("report.json", fault, REPORTS) for fault in {**DAMAGED, **OF_REPORT})
    yield from (("artifact/artifact.json", fault, CARDS) for fault in {**DAMAGED, **OF_CARD})
    yield from (("deploy.json", fault, CARDS[:3]) for fault in {**DAMAGED, **OF_ORIGIN} if fault not in NO_ORIGIN)


@pytest.mark.parametrize("change", [without("variants"), without("baseline"), other("deltas", [{"metric": "latency"}])])
def test_a_report_that_lacks_a_part_is_read_as_far_as_it_goes(change: Callable[[Path], object], place: Path) -> None:
    """Another version wrote it: a command that needs the part says so in one line."""
    shutil.copytree("out", "theirs")
    change(Path("theirs", "report.json"))
    for command in REPORTS:
        code, errors = said(command.replace("?", "theirs").split())
        assert code in (0, 1) or (code, errors.count("\n")) == (2, 1), errors
        assert "Traceback" not in errors


@pytest.mark.parametrize(("file", "fault", "readers"), list(cases()))
def test_what_a_stranger_wrote_is_refused_in_one_line(
    file: str, fault: str, readers: tuple[str, ...], place: Path
) -> None:
    shutil.copytree("out", "theirs")
    {**DAMAGED, **OF_REPORT, **OF_CARD, **OF_ORIGIN}[fault](Path("theirs", file))
    before = results(place)
    for command in readers:
        line = refused(command.replace("?", "theirs").split())
        assert "theirs" in line and line[:-1].isprintable() and len(line) < 500, line
    assert results(place) == before


@pytest.mark.parametrize(
    "changed", ["latency_ms = 'x'", "environment = '[1]'", f"environment = '{'[' * 5000}'", "medians_ms = '[\"a\"]'"]
)
def test_a_history_that_a_stranger_wrote_is_refused_in_one_line(changed: str, place: Path) -> None:
    Path("theirs").mkdir()
    shutil.copy(".edgecompress/history.sqlite", "theirs")
    with contextlib.closing(sqlite3.connect("theirs/history.sqlite")) as database, database:
        database.execute("DROP TRIGGER no_update")
        database.execute(f"UPDATE results SET {changed}")
    if "medians" in changed:  # read where two results are compared
        with contextlib.closing(sqlite3.connect("theirs/history.sqlite")) as database, database:
            columns = ", ".join(row[1] for row in database.execute("PRAGMA table_info(results)") if row[1] != "id")
            copied = columns.replace("result,", "'another',", 1)
            database.execute(f"INSERT INTO results ({columns}) SELECT {copied} FROM results")
    assert "history.sqlite: cannot be read" in refused(["history", "--store", "theirs"])


@pytest.mark.parametrize("seed", range(8))
def test_what_the_schema_refuses_is_refused_by_the_reader(seed: int, place: Path) -> None:
    """But for keys that it does not know, which a later version may have written."""
    drawn, report = random.Random(seed), json.loads(Path("out/report.json").read_text())
    library = jsonschema.Draft202012Validator(_lenient(model.json_schema()))
    assert library.is_valid(report)
    model.of(report)
    for _ in range(4):
        changed, at = copy.deepcopy(report), drawn.choice(list(_places(report)))
        holder = functools.reduce(lambda inner, key: inner[key], at[:-1], changed)
        holder[at[-1]] = drawn.choice([None, True, 0, -1, 0.5, "", "x", [], {}, [None], {"value": None}])
        if not library.is_valid(changed):
            with pytest.raises(ValueError):
                model.of(changed)


def _lenient(part: Any) -> Any:
    if isinstance(part, dict):
        kept = {key: value for key, value in part.items() if key != "additionalProperties" or value is not False}
        return {key: _lenient(value) for key, value in kept.items()}
    return [_lenient(each) for each in part] if isinstance(part, list) else part


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*at, key)
        yield from _places(each, (*at, key))


# --------------------------------------------------------------------------- a stranger's words

WORDS = "a\x1b[31mb\x9b2Jc\u202ed\ne\x7f\u2066f\U000e0041\xad\u3164\uffa0"
TOML = '"' + "".join(c if ord(c) > 0x9F else f"\\u{ord(c):04x}" for c in WORDS) + '"'


def shown(*words: str) -> str:
    """All that a command prints, none of which drives a terminal."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        main.main(list(words))
    told = out.getvalue() + errors.getvalue()
    assert all(c.isprintable() or c == "\n" for c in told), ascii(told)
    return told


@pytest.mark.parametrize("flag", ["", "--json", "--quiet"])
def test_a_strangers_words_never_drive_the_terminal(flag: str, place: Path) -> None:
    flags = [flag] if flag else []
    for kind, text in {"targets": nulls.TARGET, "devices": 'transport = "host"'}.items():
        Path(kind).mkdir()
        described = text.replace("description = ", "# ")
        Path(kind, "theirs.toml").write_text(f"description = {TOML}\n{described}")
        Path(kind, f"{WORDS[:6]}.toml").write_text(f"{TOML} = 1")
        listed = shown(kind, *flags)
        assert "\\u001b[31m" in listed
        if flag == "--json":
            assert WORDS in [row.get("description") for row in json.loads(listed)]
        assert "\\u202e" in shown(kind, "theirs", *flags)
    shutil.copytree("out", "theirs")
    report = json.loads(Path("out/report.json").read_text())
    report["device"]["name"] = report["title"] = report["summary"]["sentence"] = WORDS
    report["variants"][0]["reason"] = report["notes"][0]["text"] = WORDS
    Path("theirs/report.json").write_text(json.dumps(report))
    assert "\\u202e" in shown("report", "theirs", *flags)
    for words in (["compare", "theirs", "out"], ["plan", *NET, f"--set=source.name={TOML}"], ["history"], [WORDS]):
        shown(*words, *flags)
    for words in (["report", WORDS], ["plan", f"{WORDS}.onnx", "--data", "random"], ["deploy", "--" + WORDS]):
        assert re.search(r"\\(x|u00)1b\[31m", shown(*words, *flags))


def test_a_strangers_words_in_data_and_exceptions_are_one_clean_line(place: Path) -> None:
    np.savez("theirs.npz", **{f"test.{WORDS[:-1]}": np.zeros((4, 4), "float32")})
    line = refused(["deploy", "net.null", "--data", "theirs.npz", "--target", "null.toml"])
    assert line[:-1].isprintable() and "[31m" in line
    Path("theirs.py").write_text(f"def data(split):\n    raise ValueError({WORDS!r})\n")
    line = refused(["deploy", "net.null", "--data", "theirs:data", "--target", "null.toml"])
    assert line[:-1].isprintable() and "\\u001b" in line


# --------------------------------------------------------------------------- said once


def test_an_error_is_told_once(place: Path) -> None:
    Path("theirs.py").write_text("def data(split):\n    raise ValueError('no camera')\n")
    told = shown("deploy", "net.null", "--data", "theirs:data", "--target", "null.toml")
    assert told.count("no camera") == 1 and "FAIL" not in told


# --------------------------------------------------------------------------- what to do about it


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--device their.toml --set=device.transport=warp", "their.toml: transport: no transport 'warp'; known: adb"),
        ("--device their.toml --set=device.sensors=['rapel']", "sensors: no sensor 'rapel', did you mean 'rapl'?"),
        ("--set=target.runtime=nul", "null.toml: runtime: no runtime 'nul', did you mean 'null'?"),
        ("--set=target.also=['litrt']", "null.toml: runtime: no runtime 'litrt', did you mean 'litert'?"),
        ("--set=target.package=zip", "null.toml: package: no packager 'zip'"),
        (
            "--set=profile.profilers.memry.seconds=1",
            "quick.toml: profilers: no profiler 'memry', did you mean 'memory'?",
        ),
        ("--ouy x", "edgecompress plan: error: unrecognized arguments: --ouy x"),
        ("--profil", "edgecompress plan: error: argument --profile: expected one argument"),
        ("--proflie=quick", "unrecognized arguments: --proflie=quick, did you mean '--profile'?"),
    ],
)
def test_a_mistake_names_its_file_or_its_command(words: str, says: str, place: Path) -> None:
    Path("their.toml").write_text('description = "a board"\ntransport = "host"')
    code, errors = said(["plan", *NET, *words.split()])
    assert code == 2 and says in errors and "[-h] [--version] COMMAND" not in errors, errors


@pytest.mark.parametrize("name", ["net.pth", "net.pt", "net.safetensors"])
def test_weights_alone_are_told_from_a_model(name: str, place: Path) -> None:
    Path(name).touch()
    code, errors = said(["plan", name, "--data", "data"])
    assert code == 2 and "weights only: write a factory that makes the net and loads them" in errors


# --------------------------------------------------------------------------- as a process of its own

PROGRAM = f"{sys.executable} -m edgecompress.cli.main"
ASCII = "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"
SHELL = {  # a command in a shell, its exit code, how its last line begins
    f"{PROGRAM} techniques | true; exit ${{PIPESTATUS[0]}}": (UNREAD, ""),
    f"{PROGRAM} --help | true; exit ${{PIPESTATUS[0]}}": (UNREAD, ""),
    f"{PROGRAM} report none 2>&1 >/dev/full": (2, "edgecompress: error: none: no such file or folder"),
    f"{PROGRAM} targets >&-": (0, ""),
    f"{PROGRAM} report none 2>&-": (2, ""),
    f"{PROGRAM} report none 2>/dev/full": (2, ""),
    f"mkdir gone && cd gone && rmdir ../gone && {PROGRAM} targets": (
        2,
        "edgecompress: error: the folder you are in was",
    ),
    f"{ASCII} PYTHONIOENCODING=ascii {PROGRAM} report out --quiet": (0, "plain ships"),
    f"{ASCII} {PROGRAM} report \u00fc": (2, "edgecompress: error: \\udcc3\\udcbc: is not UTF-8; set LC_ALL=C.UTF-8"),
    f"{PROGRAM} report $'\\xff'": (2, "edgecompress: error: \\udcff: is not UTF-8; rename it"),
}


@pytest.mark.parametrize("command", SHELL)
def test_a_shell_gets_the_exit_code_and_no_traceback(command: str, place: Path) -> None:
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=300)
    told = (done.stdout + done.stderr).decode("ascii" if ASCII in command else "utf-8")
    code, line = SHELL[command]
    assert done.returncode == code, told
    assert "Traceback" not in told and "Exception ignored" not in told
    assert (told.splitlines() or [""])[-1].startswith(line), told


@pytest.mark.parametrize("at", ["out", "store"])
def test_a_disk_that_takes_nothing_is_one_line_that_says_what_to_do(at: str, place: Path) -> None:
    """A file system of 64 KiB and one that is read-only, in a mount namespace of their own; all results are stored."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("unshare -rm is not allowed here")
    words = " ".join(["deploy", *NET, *(("--out", "disk/it") if at == "out" else ("--store", "disk/it"))])
    for mount in ("size=64k", "ro"):
        script = f"mkdir -p disk && mount -t tmpfs -o {mount} none disk && exec {PROGRAM} {words}"
        done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, timeout=300)
        (line,) = done.stderr.splitlines()
        assert line.startswith("edgecompress: error: ") and "/disk" in line, line
        assert f"another {'--out' if at == 'out' else 'place with --store'}" in line or "another --store" in line, line
        assert done.returncode == (2 if (at, mount) == ("out", "ro") else 3), line  # a place is asked before the work


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [
        (signal.SIGINT, INTERRUPTED, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_a_signal_while_a_factory_runs_ends_in_one_line_and_leaves_nothing(
    place: Path, number: signal.Signals, code: int, says: str
) -> None:
    Path("slow.py").write_text(
        "import os, time\n"
        "def data(split):\n"
        "    print('began', os.getpid(), file=open(os.environ['TMPDIR'] + '/began', 'w'), flush=True)\n"
        "    time.sleep(300)\n"
    )
    words = ["deploy", "net.null", "--data", "slow:data", "--target", "null.toml", "--store", "theirs"]
    begun = [sys.executable, "-m", "edgecompress.cli.main", *words]
    heard = {"preexec_fn": lambda: signal.signal(number, signal.SIG_DFL)}  # a job in the background ignores some
    with subprocess.Popen(
        begun, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0, **heard
    ) as process:
        while not (began := [file.read_text() for file in Path("theirs").glob("tmp/*/tmp/began")]) or not began[0]:
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, number)  # as a terminal does
        _, errors = process.communicate(timeout=120)
    assert process.returncode == code
    assert errors == f"edgecompress: {says}; run the same command again to resume\n"
    assert not list(Path("theirs/store").iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(int(began[0].split()[1]), 0)
