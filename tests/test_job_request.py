"""Each keyword of a run is declared once: Python and the command line say the same of it."""

from __future__ import annotations

import argparse
import inspect
import re

import numpy as np
import pytest

import edgecompress
from edgecompress.cli import main
from edgecompress.cli.arguments import FLAGS
from edgecompress.core.errors import InputError
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
            assert str(told[name].help).replace("%%", "%").startswith(keyword.help), name
        flags = told[name].option_strings
        assert flags == ([] if name == "model" else [FLAGS.get(name, f"--{name.replace('_', '-')}")])


def test_what_is_no_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown keyword 'sample'"):
        job("net.onnx", sample=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"only": 3}, "only: is of type int; give a name, or a list of names"),
        ({"samples": "many"}, "samples: is of type str; give a whole number"),
        ({"samples": True}, "samples: is of type bool; give a whole number"),
        ({"settings": ["limits.cosine=1"]}, "settings: is of type list; give a dictionary"),
        ({"settings": {"limits": {"cosine": 1}}}, "--set limits: write --set limits.KEY=VALUE for each of its keys"),
        ({"strict": 1}, "strict: is of type int; give True or False"),
        ({"device": "x86="}, "--device x86=: write TARGET=DEVICE once for a target"),
        ({"device": "x86=host,x86=host"}, "write TARGET=DEVICE once for a target"),
    ],
)
def test_a_value_of_another_type_is_one_line_that_says_what_to_give(given: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        edgecompress.deploy(None, **given)  # type: ignore[call-overload]


def test_a_wrong_keyword_names_the_right_one_or_where_it_belongs() -> None:
    with pytest.raises(TypeError, match="unknown keyword 'smples', did you mean 'samples'"):
        edgecompress.check("net.onnx", smples=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=re.escape("unknown keyword 'untrusted'; give options=Options(untrusted=...)")):
        edgecompress.deploy("net.onnx", untrusted=True)  # type: ignore[call-overload]


def test_whole_numbers_of_numpy_are_numbers() -> None:
    made = job(batch=np.int64(2), seed=np.int32(3))
    assert (made.context.batch, made.context.seed) == (2, 3)


def test_strict_is_a_keyword_everywhere() -> None:
    assert job(strict=True).target.value.limits.strict and not job().target.value.limits.strict


def test_a_device_may_name_the_file_of_its_target() -> None:
    assert job_request.device_of({"own": "host"}, "targets/own.toml", ["targets/own.toml"]) == "host"


def test_a_request_and_its_parts_are_not_given_both() -> None:
    with pytest.raises(InputError, match="not both"):
        edgecompress.diagnose("net.onnx", edgecompress.DiagnosisRequest("int8"), variant="fp16")
    with pytest.raises(InputError, match="is a str; give a DiagnosisRequest"):
        edgecompress.diagnose("net.onnx", "x86")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="give a list of reports"):
        edgecompress.compare("before", "after")  # type: ignore[arg-type]
