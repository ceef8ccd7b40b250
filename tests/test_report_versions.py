"""Reports that earlier versions wrote (synthetic inputs, each in the words of its commit) are still read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from edgecompress.commands import compare
from edgecompress.reporting import html, markdown, read

REPORTS = sorted((Path(__file__).parent / "data" / "reports").glob("*.json.gz"))


@pytest.fixture(params=REPORTS, ids=lambda file: file.name.removesuffix(".json.gz"))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What a deploy of that version left."""
    (tmp_path / "report.json").write_bytes(gzip.decompress(request.param.read_bytes()))
    return tmp_path


def test_a_report_of_an_earlier_version_is_read(folder: Path) -> None:
    assert len(read.report(folder).variants) == 7


def test_a_report_of_an_earlier_version_is_shown_and_compared_as_one_of_today(folder: Path) -> None:
    report = read.report(folder)
    assert "int8 ships" in html.page(report) and "int8 ships" in markdown.page(report)
    assert not compare.compare([folder, f"{folder}@fp32"]).exit_code
