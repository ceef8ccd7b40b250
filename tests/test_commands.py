"""A command of another distribution: in the help, in its own help, run; one that is broken stops no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import plugins
import pytest

CODE = '''"""Says hello."""

from edgecompress.cli.arguments import argument, asked

HELP = "say hello to a model"
PURPOSE = "{purpose}"
EXAMPLES = "hello net.onnx"
ARGUMENTS = (asked("model"), argument("--loud", action="store_true", help="in capitals"))


def run(args):
    words = f"hello {{args.model}}"
    print(words.upper() if args.loud else words)
    return 0
'''


def edgecompress(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parents[1])])}
    command = [sys.executable, "-m", "edgecompress", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)


@pytest.mark.parametrize("purpose", ["look into a model", "greet"])
def test_a_command_of_another_distribution_is_listed_helps_and_runs(purpose: str, tmp_path: Path) -> None:
    plugins.plugin(tmp_path, "commands", "hello", CODE.format(purpose=purpose))
    listed = edgecompress(tmp_path, "--help")
    assert listed.returncode == 0 and not listed.stderr
    part = listed.stdout.partition(f"\n{purpose}:\n")[2].partition("\n\n")[0]
    assert "hello" in part and "say hello to a model" in part
    own = edgecompress(tmp_path, "hello", "--help")
    assert own.returncode == 0 and "--loud" in own.stdout and "  edgecompress hello net.onnx" in own.stdout
    ran = edgecompress(tmp_path, "hello", "net.onnx", "--loud")
    assert (ran.returncode, ran.stdout) == (0, "HELLO NET.ONNX\n")


def test_the_name_of_a_command_may_have_two_words(tmp_path: Path) -> None:
    plugins.plugin(tmp_path, "commands", "hello_twice", CODE.format(purpose="greet"))
    assert edgecompress(tmp_path, "hello", "twice", "net.onnx").stdout == "hello net.onnx\n"


@pytest.mark.parametrize("code", ["import nothing_of_this_name\n", "HELP = 3 +\n", ""])
def test_a_broken_command_is_one_line_and_the_others_go_on(code: str, tmp_path: Path) -> None:
    told = 'HELP = "never works"\nPURPOSE = "greet"\n'
    plugins.plugin(tmp_path, "commands", "broken", told + code)
    assert edgecompress(tmp_path, "profiles").returncode == 0
    ended = edgecompress(tmp_path, "broken")
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and "broken" in ended.stderr


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ('HELP = "a"\nORDER = "first"\n', "ORDER is 'first', and is to be of type int"),
        ('HELP = (\n    "over two "\n    "lines"\n)\n', "its file has no HELP in plain text on one line"),
        ('HLEP = "a"\n', "its file has no HELP in plain text on one line"),
    ],
)
def test_a_command_with_a_wrong_constant_is_left_out_with_a_line(told: str, says: str, tmp_path: Path) -> None:
    plugins.plugin(tmp_path, "commands", "odd", f"{told}\ndef run(args):\n    return 0\n")
    assert edgecompress(tmp_path, "--version").returncode == 0
    ended = edgecompress(tmp_path, "odd")
    assert ended.returncode == 2 and says in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise KeyError('x')", "command 'odd' of module plugin_odd raised KeyError: 'x'; report it to its author"),
        ("pass", "command 'odd' of module plugin_odd returned None, and no exit code"),
    ],
)
def test_a_command_that_breaks_names_its_author(body: str, says: str, tmp_path: Path) -> None:
    plugins.plugin(tmp_path, "commands", "odd", f'HELP = "a"\n\n\ndef run(args):\n    {body}\n')
    ended = edgecompress(tmp_path, "odd")
    assert ended.returncode == 3 and ended.stderr == f"edgecompress: error: {says}\n"


def test_a_name_that_is_taken_and_an_entry_point_to_nothing_are_told(tmp_path: Path) -> None:
    plugins.plugin(tmp_path, "commands", "deploy", 'HELP = "mine"\n')
    assert (
        "left out: command 'deploy' of distribution plugin-deploy: edgecompress has one"
        in edgecompress(tmp_path, "--help").stderr
    )
    plugins.plugin(tmp_path, "techniques", "gone", "")
    (tmp_path / "plugin_gone.py").unlink()
    assert (
        'no module plugin_gone; correct its entry point, gone = "plugin_gone"'
        in edgecompress(tmp_path, "techniques").stderr
    )
