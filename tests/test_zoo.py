"""Every runtime through the zoo of small nets: each cell answers as torch does, or fails as zoo_expected.toml says.

The table of docs/reference/zoo.md is written from golden/zoo.json; EDGECOMPRESS_GOLDEN=write renews that file.
"""

from __future__ import annotations

import functools
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plugins
import prove
import pytest
import vectors

from edgecompress.core import environments, registry
from edgecompress.core.errors import ConfigError
from edgecompress.testing import conformance, zoo
from edgecompress.testing.conformance import ZooOutcome

HERE = Path(__file__).parent
GOLDEN = HERE / "golden" / "zoo.json"
RUNTIMES = [name for name in registry.names("runtimes") if name != "null"]
PRECISIONS = tuple(conformance.ZOO_DB)
PROMISED = {  # what is known to work upstream: no cell of these may be expected to fail
    "onnx": set(PRECISIONS),
    "openvino": set(PRECISIONS),
    "litert": set(PRECISIONS),
    "ethos_u": set(PRECISIONS),
    "qnn": {"int8"},
    "executorch": set(PRECISIONS),
    "coreml": {"fp32"},
    "torchinductor": {"fp32"},
    "tflite": {"fp32"},
}
slow = pytest.mark.slow
Zoo = Callable[[str], Mapping[str, ZooOutcome]]


@dataclass(frozen=True)
class Failure:
    """An entry of zoo_expected.toml."""

    runtime: str
    precision: str
    nets: list[str]
    error: str
    do: str


def failures() -> list[Failure]:
    table = tomllib.loads((HERE / "zoo_expected.toml").read_text(encoding="utf-8"))
    return [Failure(**entry) for entry in table.get("failure", ())]


def expected(runtime: str, cell: str) -> Failure | None:
    name, precision = cell.split()
    found = [f for f in failures() if (f.runtime, f.precision) == (runtime, precision) and name in f.nets]
    return found[0] if found else None


def unreachable(runtime: str, precision: str) -> str:
    """The planner's words where no road leads from torch to a runtime, or ""."""
    try:
        conformance.zoo_road(runtime, precision)
    except ConfigError as error:
        return str(error).partition("compress[0]: ")[2] or str(error).partition(f"variant {precision}: ")[2]
    return ""


ROADS = {(runtime, precision): unreachable(runtime, precision) for runtime in RUNTIMES for precision in PRECISIONS}
CELLS = [(r, f"{n} {p}") for r in RUNTIMES for p in PRECISIONS if not ROADS[r, p] for n in zoo.NETS]
# What goes through these in the short form.
SHORT: Mapping[str, Sequence[str]] = {
    "torchinductor": (),  # twenty seconds a cell; it has a file of its own
    "executorch": ("depthwise_cnn int8", "transformer int8"),
    "coreml": ("residual_cnn fp32", "int64 int8"),
    "onnx_gpu": ("two_ends fp32", "depthwise_cnn int8"),  # its files are those of onnx,
    "tflite": ("residual_cnn fp32", "lstm int8"),  # and of these
    "mnn": ("two_ends fp32", "residual_cnn int8"),
    "ethos_u": ("transformer int8",),  # litert's converter and quantizer have made what they take
}
# A net that one quantizer spoils needs that net, that runtime and int8: no pair of the three finds it for sure.
RUN = prove.pairwise(
    [case for case in CELLS if prove.WHOLE or case[1] in SHORT.get(case[0], (case[1],))],
    lambda case: (case[0], *case[1].split()),
    always=lambda case: case[1].endswith(" int8"),
)


def words(cell: ZooOutcome) -> str:
    """A cell as the table has it."""
    return f"no: {cell.error}" if cell.error else "fixed batch" if cell.fixed else "yes"


@pytest.fixture(scope="module")
def through_the_zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    """The cells of a runtime, computed once; in the end they are written where that is asked for."""
    folder = tmp_path_factory.mktemp("zoo")

    @functools.cache
    def cells(runtime: str) -> Mapping[str, ZooOutcome]:
        if missing := environments.missing(registry.load("runtimes", runtime)):
            pytest.skip(f"{runtime} needs {', '.join(missing)}")
        return conformance.check_zoo(runtime, folder, [cell for name, cell in RUN if name == runtime])

    yield cells
    if os.environ.get("EDGECOMPRESS_GOLDEN") == "write":
        table: dict[str, Any] = {r: {p: ROADS[r, p] for p in PRECISIONS if ROADS[r, p]} for r in RUNTIMES}
        for runtime, cell in CELLS:
            name, precision = cell.split()
            table[runtime].setdefault(precision, {})[name] = words(cells(runtime)[cell])
        GOLDEN.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("runtime", "cell"), RUN)
def test_a_net_answers_as_in_torch_or_fails_as_expected(runtime: str, cell: str, through_the_zoo: Zoo) -> None:
    found, failure = through_the_zoo(runtime)[cell], expected(runtime, cell)
    if vectors.saturates(runtime, cell.split()[1]) and vectors.NEAR.search(found.error):
        return
    if failure is None:
        assert not found.error
    else:
        assert found.error, "it works now: take it out of zoo_expected.toml"
        assert re.search(failure.error, found.error)
    if os.environ.get("EDGECOMPRESS_GOLDEN") != "write":
        name, precision = cell.split()
        stored = stored_table()[runtime][precision][name]
        assert words(found) == stored or (failure and re.search(failure.error, stored))


@functools.cache
def stored_table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return table


def test_the_stored_table_has_every_runtime_and_what_cannot_be_reached() -> None:
    table = stored_table()
    assert sorted(table) == sorted(RUNTIMES)
    for (runtime, precision), why in ROADS.items():
        assert table[runtime][precision] == why if why else set(table[runtime][precision]) == set(zoo.NETS)


def test_nothing_that_upstream_can_do_is_expected_to_fail() -> None:
    assert [f for f in failures() if f.precision in PROMISED.get(f.runtime, ())] == []


def test_each_expected_failure_is_of_a_cell_and_says_what_to_do() -> None:
    for failure in failures():
        assert {(failure.runtime, f"{n} {failure.precision}") for n in failure.nets} <= set(CELLS)
        assert failure.do.endswith(".") and len(failure.error) > 10


FAULTY = '''"""A runtime that breaks in many ways."""
import json
import os
from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact

REQUIRES = ()
EXTRA = SUFFIX = ""
FORMAT = "faulty"
READS = ("module",)


def read(request):
    raise StageFailed("its files are no sources")


def export(request):
    net = json.loads(request.model.file("module.json").read_text())["factory"].partition(":")[2]
    if net == "lstm":
        raise StageFailed("the converter knows no lstm")
    if net == "transformer":
        raise ValueError("two\\nlines")
    (request.out / "model.faulty").write_text(net)
    return Artifact(request.out, FORMAT, request.model.inputs, request.model.outputs).write()


def open(artifact, threads, profile=False):
    return Session(artifact)


class Session:
    def __init__(self, artifact):
        self.outputs, self.net = artifact.outputs, artifact.file(".faulty").read_text()
        if self.net == "int64":
            os.abort()

    def run(self, inputs):
        import numpy as np
        import torch
        from edgecompress.testing import zoo
        with torch.no_grad():
            found = getattr(zoo, self.net)()(**{k: torch.from_numpy(v) for k, v in inputs.items()})
        found = found if isinstance(found, dict) else {"output": found}
        if self.net == "two_ends":
            found["code"] = found["code"] * 1.001
        if self.net == "depthwise_cnn":
            found["output"] = found["output"] * np.nan
        return {name: array.numpy() for name, array in found.items()}

    def close(self):
        pass
'''
SAID = {
    "residual_cnn": "",
    "lstm": "the converter knows no lstm",
    "int64": r"the process was ended by SIGABRT; its log is faulty\.log",
    "two_ends": r"output 'code' is 60\.0 dB from torch's, limit 100 dB",
    "depthwise_cnn": "output 'output': 32 of 32 items hold NaN",
    "transformer": "ValueError: two lines",
    "dynamic_batch": "",
}


@slow
def test_what_breaks_costs_its_own_cell_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins.plugin(tmp_path, "runtimes", "faulty", FAULTY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = conformance.check_zoo("faulty", tmp_path / "zoo", [f"{net} fp32" for net in SAID])
    for net, said in SAID.items():
        assert re.fullmatch(f"{said}.*" if said else "", found[f"{net} fp32"].error), net
