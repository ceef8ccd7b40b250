"""Each keyword of a run is declared once: Python, the command line and the tools for assistants say the same of it."""

from __future__ import annotations

import argparse
import inspect

import pytest

import edgecompress
from edgecompress.cli import main
from edgecompress.cli.arguments import FLAGS
from edgecompress.extras.mcp import server
from edgecompress.pipeline import job_request
from edgecompress.pipeline.job import job
from edgecompress.pipeline.job_request import KEYWORDS, How, JobRequest


def actions(command: str) -> dict[str, argparse.Action]:
    """The arguments of a command by the names that they are stored under."""
    (below,) = (a for a in main.parser([command])._actions if isinstance(a, argparse._SubParsersAction))
    return {action.dest: action for action in below.choices[command]._actions}


@pytest.mark.parametrize("call", [edgecompress.deploy, edgecompress.check, edgecompress.verify, edgecompress.diagnose])
def test_a_function_has_every_keyword_with_its_default(call: object) -> None:
    told = inspect.signature(call).parameters  # type: ignore[arg-type]
    assert How.__annotations__.keys() <= told.keys()
    own = {"profile"} if call is edgecompress.profile else set()
    assert all(told[name].default == job_request.default(name) for name in How.__annotations__.keys() - own)


def test_the_command_line_has_every_keyword_with_its_help() -> None:
    told = actions("deploy")
    assert JobRequest.__annotations__.keys() <= told.keys()
    for name, keyword in KEYWORDS.items():
        if name not in ("target", "until"):  # a deploy takes several targets
            assert str(told[name].help).startswith(keyword.help), name
        flags = told[name].option_strings
        assert flags == ([] if name == "model" else [FLAGS.get(name, f"--{name.replace('_', '-')}")])


def test_the_tools_have_the_keywords_with_their_help() -> None:
    told = server.keywords("deploy")
    assert JobRequest.__annotations__.keys() <= told.keys()
    assert all(told[name] == KEYWORDS[name] for name in JobRequest.__annotations__)


def test_what_is_no_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown keyword 'sample'"):
        job("net.onnx", sample=3)  # type: ignore[call-arg]
