"""What people read in a terminal of 80 columns: no line is wider, and no word or number is cut."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import nulls
import pytest
import report_compressed
import report_diagnosis
import report_inputs
import report_looks
from rich.console import Console
from small_onnx import conv_net

import edgecompress
from edgecompress import Options, Result
from edgecompress.commands import cache, compare, deploy, diagnose, listing
from edgecompress.core.model import Request
from edgecompress.core.plain_text import columns, fitted, folded
from edgecompress.reporting import compare_output, model, terminal
from edgecompress.stages import report as stage

WIDE, NARROW = 2000, 80
ADDED = {"lost", "failed", "…"}  # words that only a narrow table has
LONG = ("litert-int8-dynamic-per-channel", "openvino-mixed-precision-w8a16", "tensorflow-qat-int8-entropy")


def words(text: str) -> set[str]:
    """Those of a text, without what is only drawn and what stands after a name."""
    return {word.strip(":─") for word in text.split()} - {""}


def paths(line: str) -> list[str]:
    """Words that no line of 80 columns has room for beside others: they are not cut."""
    return [word for word in line.split() if len(word) > NARROW // 2 and "/" in word]


def assert_fits(render: Callable[[int], str], width: int = NARROW) -> None:
    """Each line has its room, and each word of it is one of the text that has all the room."""
    narrow, wide = render(width), render(WIDE)
    assert [line for line in narrow.splitlines() if len(line) > width and not paths(line)] == []
    cut = {word for word in words(narrow) - words(wide) - ADDED if not word.startswith("…")}
    assert cut == set()


def in_console(made: Any, width: int) -> str:
    screen = Console(width=width, force_terminal=True, no_color=True, color_system=None, file=StringIO())
    with screen.capture() as told:
        screen.print(made, crop=False)
    return re.sub(r"\x1b\[[\d;]*m", "", told.get())


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Request]:
    """A report of eight variants, three with long names."""
    with pytest.MonkeyPatch.context() as patch:
        for at, name in enumerate(LONG):
            patch.setitem(report_inputs.MEDIANS, name, 0.0041 * 10**at)
            patch.setitem(report_inputs.SIZES, name, 400_000)
            patch.setitem(report_inputs.RIGHT, name, 455)
            patch.setitem(report_inputs.RUNTIMES, name, "onnx")
        yield report_inputs.request(tmp_path_factory.mktemp("many"), runs=60)


@pytest.fixture(scope="module", params=["many", "board", "simulated", "compressed"])
def facts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    made = {
        "board": report_looks.on_a_board,
        "simulated": report_looks.simulated,
        "compressed": report_compressed.request,
    }
    asked = made[request.param](folder) if request.param in made else request.getfixturevalue("many")
    return report_inputs.written(asked)


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [80, 100])
def test_a_report(facts: dict[str, Any], verbose: bool, width: int) -> None:
    report = model.of(facts)
    assert_fits(lambda room: in_console(terminal.render(report, verbose), room), width)


def test_a_comparison(facts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = json.dumps(facts)
    names = ["before.json", "after.json", "third.json"]
    for name in names:
        Path(name).write_text(text, encoding="utf-8")
    for some in (names[:2], names):
        found = compare.compare(some, compare.ComparisonRequest(("size_bytes > 1.01x",)))
        assert_fits(lambda room, found=found: in_console(compare_output.render(found, terminal=True), room))


def test_a_diagnosis() -> None:
    made = report_diagnosis.diagnosis()
    for row in made["layers"]:
        row["name"] = f"features.stage3.{row['name']}"
    made["says"] = "the layer makes 97% of the noise"
    found = diagnose.Diagnosis(made, None)
    assert_fits(lambda room: folded(diagnose.text(found, width=room), room))


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_what_print_shows_of_a_result_is_as_wide_as_the_terminal(
    many: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("after.json").write_text(json.dumps(report_inputs.written(many)), encoding="utf-8")
    conv_net(tmp_path / "net.onnx")
    options = Options(store="store", progress=False)
    ended = Result(0, f"plain: {'the fastest that keeps the budget, ' * 5}", tmp_path)
    results: list[Any] = [
        ended,
        deploy.Results(x86=ended, arm64=ended),
        edgecompress.compare(["after.json", "after.json"], fail_if="size_bytes > 1.01x"),
        diagnose.Diagnosis(report_diagnosis.diagnosis(), tmp_path),
        edgecompress.analyze("net.onnx", options=options),
        edgecompress.check("net.onnx", ["web", "android"], options=options),
        edgecompress.advise("net.onnx", "web", options=options),
    ]

    def shown(result: object, width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        with contextlib.redirect_stdout(Terminal()) as screen:
            print(result)
        commands = (line for line in screen.getvalue().splitlines() if not line.lstrip().startswith("edgecompress "))
        return "\n".join(commands)

    for result in results:
        for width in (NARROW, 60):
            assert [line for line in shown(result, width).splitlines() if len(line) > width and not paths(line)] == []
        assert "\n" not in repr(result) or isinstance(result, dict)
        assert len(repr(result)) < 1000


ROWS = [
    {"stage": f"{'executorch-int8-dynamic' * many}/verify", "kind": "verdict", "size_bytes": 10**at, "age_h": 1.25,
     "took_s": 12.5, "lost": "the converter ended with signal 6, as the graph has a cycle" * many, "key": "0f" * 8}
    for at, many in enumerate((1, 0, 1))
]  # fmt: skip


def test_rows_of_the_store_and_of_the_history() -> None:
    assert_fits(lambda room: columns(ROWS, room))
    parts = {"code": "ab" * 8, "options": "{'calibrator': 'entropy', 'per_channel': True, 'items': 200, 'seed': 0}" * 2}
    assert_fits(lambda room: cache.reasons_text([{"name": "net>x86:int8", "parts": parts, "files": {}}], room))


@pytest.mark.parametrize("kind", ["targets", "profiles", "techniques", "runtimes", "sensors", "transports"])
def test_lists(kind: str) -> None:
    rows = listing.all_of(kind)
    assert_fits(lambda room: listing.text(rows, room))


def test_a_table_of_many_columns_is_shown_in_blocks_with_the_first_column() -> None:
    rows = [("layer", *(f"column {i}" for i in range(12))), ("conv", *(f"{i}.25 ms" for i in range(12)))]
    lines = fitted(rows, 40)
    assert max(map(len, lines)) <= 40
    assert [line.split()[0] for line in lines if line] == ["layer", "conv"] * (len(lines) // 3 + 1)
    assert all(f"{i}.25 ms" in "\n".join(lines) for i in range(12))


def test_a_long_name_is_cut_at_its_beginning_and_a_command_never() -> None:
    lines = fitted([("name", "ms", "size"), ("blocks." * 20 + "depth", "1.25 ms", "300 KiB")], 50)
    assert lines[1].startswith("…") and "depth  1.25 ms  300 KiB" in lines[1] and len(lines[1]) <= 50
    command = f"  edgecompress deploy --set {'x' * 90} --out y"
    assert folded(command, 40) == command


def in_terminal(command: str, folder: Path) -> str:
    """What a command prints in a terminal of 80 columns."""
    words = f"stty cols {NARROW}; env -u COLUMNS {sys.executable} {command}"
    return subprocess.run(["script", "-qec", words, "/dev/null"], cwd=folder, capture_output=True, text=True).stdout


needs_script = pytest.mark.skipif(not shutil.which("script"), reason="no script: apt-get install bsdutils")


@needs_script
@pytest.mark.parametrize("words", ["report .", "report . -v", "devices", "compare . . --fail-if 'size_bytes > 1.01x'"])
def test_commands_in_a_terminal(many: Request, words: str) -> None:
    if not (many.out / "report.json").exists():
        stage.run(many)
    told = in_terminal(f"-m edgecompress {words}", many.out)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", told).splitlines()
    assert len(lines) > 5
    assert [line for line in lines if len(line) > NARROW] == []


PLUG_IN = """
from edgecompress import analyze
from edgecompress.cli import streams

with streams.guarded():  # as a command of a plug-in, which gives no listener
    analyze("net.null", data="data")
"""


@needs_script
@pytest.mark.parametrize("command", ["-m edgecompress init --source net.null", "plug_in.py"])
def test_a_live_line_moves_the_cursor_of_a_terminal(command: str, tmp_path: Path) -> None:
    nulls.make(tmp_path)
    (tmp_path / "plug_in.py").write_text(PLUG_IN)
    told = in_terminal(command, tmp_path)
    assert re.search(r"about [\d.]+ s left", told) and "\\u00" not in told
