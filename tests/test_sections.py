"""A section of the report of another distribution that breaks: a line names it, and the report is there without it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import plugins
import pytest
import report_inputs

from edgecompress.core import registry
from edgecompress.reporting import html, markdown, model

CODE = '''"""A section for a test."""

from edgecompress.reporting.model import Part
from edgecompress.reporting.tables import TextTable

TITLE = "Weather"
KEY = "{key}"


class Data(Part):
    words: str


def found(request, job, report):
    {found}


def tables(report):
    {tables}
'''
FOUND, TABLES = (
    'return Data("sunny")',
    'return [TextTable(TITLE, ("said",), (("sunny",),) if report.rest.get(KEY) else ())]',
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, whose distributions are found."""
    monkeypatch.syspath_prepend(tmp_path)
    for cached in (registry.entry_points, registry.left_out):
        cached.cache_clear()
    yield tmp_path
    for cached in (registry.entry_points, registry.left_out):
        cached.cache_clear()
    importlib.invalidate_caches()


def install(folder: Path, name: str, key: str = "weather", found: str = FOUND, tables: str = TABLES) -> None:
    plugins.plugin(folder, "sections", name, CODE.format(key=key, found=found, tables=tables))
    registry.entry_points.cache_clear()
    importlib.invalidate_caches()


def test_it_is_in_every_form_and_stays_in_what_a_reader_without_it_writes(installed: Path, tmp_path: Path) -> None:
    install(installed, "sunny")
    made = report_inputs.written(report_inputs.request(tmp_path / "made", sessions=1, runs=20))
    assert made["weather"] == {"words": "sunny"}
    report = model.of(made)
    assert "<h2>Weather</h2>" in html.page(report) and "## Weather" in markdown.page(report)
    (installed / "plugin_sunny-1.0.dist-info" / "entry_points.txt").unlink()
    registry.entry_points.cache_clear()
    assert "Weather" not in html.page(model.of(made)) and model.to_json(model.of(made)) == made


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("loud", {"found": "raise KeyError('rain')"}, "section 'loud' of module plugin_loud raised KeyError: 'rain'"),
        ("torn", {"tables": "raise ValueError('hail')"}, "raised ValueError: hail; report it to its author"),
        ("other", {"found": "return {'words': 3}"}, "section 'other' of module plugin_other raised ValidationError"),
        ("odd", {"found": "return {'words': object()}"}, "section 'odd' of module plugin_odd raised TypeError"),
        ("greedy", {"key": "variants"}, "section 'greedy' of module plugin_greedy: its KEY, variants, is taken"),
        ("second", {"key": "ladders"}, "its KEY, ladders, is taken; give it another"),
    ],
)
def test_one_that_breaks_is_named_and_the_report_is_there_without_it(
    name: str, given: dict[str, str], says: str, installed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(installed, name, **given)
    report = model.of(report_inputs.written(report_inputs.request(tmp_path / "made", sessions=1, runs=20)))
    assert "<h2>Variants</h2>" in html.page(report) and "## Variants" in markdown.page(report)
    assert says in capsys.readouterr().err
    told = [note.text for note in report.notes]
    assert "key" in given or any(says in text for text in told)
