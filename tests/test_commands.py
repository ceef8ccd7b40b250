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
