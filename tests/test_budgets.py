"""How large the package may be: the core, each extra, and what one deploy by one engine reaches by imports.

Raising a number of budgets.toml is a commit of its own, which says which user pays for it and with what.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from test_layers import MODULES, imports

from edgecompress.core import registry
from edgecompress.core.model import Stage
from edgecompress.core.package_files import PACKAGE

BUDGETS = tomllib.loads(Path(__file__).with_name("budgets.toml").read_text(encoding="utf-8"))
EXTRAS = sorted(path.parent.name for path in PACKAGE.glob("extras/*/__init__.py"))


def lines(files: Iterable[Path]) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in files)


SLICES = ("engines", "techniques")


def test_the_core_is_within_its_budget() -> None:
    parts = {file: file.relative_to(PACKAGE).parts for file in PACKAGE.rglob("*.py")}
    assert lines(file for file, names in parts.items() if names[0] not in ("extras", *SLICES)) <= BUDGETS["core"]


@pytest.mark.parametrize("folder", SLICES)
def test_engines_and_techniques_are_within_theirs(folder: str) -> None:
    assert lines((PACKAGE / folder).rglob("*.py")) <= BUDGETS[folder]


def test_each_extra_has_a_budget_and_is_within_it() -> None:
    assert [*BUDGETS["extras"]] == EXTRAS
    sizes = {name: lines((PACKAGE / "extras" / name).rglob("*.py")) for name in EXTRAS}
    assert {name: size for name, size in sizes.items() if size > BUDGETS["extras"][name]} == {}


def reached() -> set[str]:
    """The modules that a deploy of the demo by ONNX Runtime reaches: by its plan, and from there by imports."""
    from edgecompress.pipeline import plan
    from edgecompress.pipeline.job import job

    steps = plan.deploy(job(only="int8,fp32"))
    calls = [step.call if isinstance(step, Stage) else step.stage.call for step in steps.stages]
    calls += ["stages.latency:round", "stages.energy:energy", "stages.operators:ops", "stages.profilers:run"]
    names = [registry.call(call)[0].__name__ for call in (*calls, "stages.report:run")]
    names += [f"edgecompress.{name}" for name in ("cli.main", "cli.commands.deploy", "pipeline.worker")]
    names += ["edgecompress.device.agent.__main__", registry.load("transports", "host").__name__]
    found, queue = set[str](), names
    while queue:
        name = queue.pop()
        if name in MODULES and name not in found:
            found.add(name)
            queue += [n for n in imports(MODULES[name], types=False) if n in MODULES]
            parent = name.rpartition(".")[0]
            queue += [parent] if parent != PACKAGE.name else []
    return found


def test_a_deploy_by_one_engine_reaches_no_more_than_its_budget() -> None:
    found = reached()
    assert lines(MODULES[name] for name in found) <= BUDGETS["deploy"]
    assert not [name for name in found if name.startswith("edgecompress.extras")]


@pytest.mark.parametrize("folder", ["benchmarks", "tests"])
def test_what_is_beside_the_package_is_within_its_budget(folder: str) -> None:
    assert lines((PACKAGE.parent / folder).rglob("*.py")) <= BUDGETS[folder]


@pytest.mark.parametrize("page", BUDGETS["pages"])
def test_a_page_that_everybody_reads_is_short(page: str) -> None:
    assert lines([PACKAGE.parent / page]) <= BUDGETS["pages"][page]
