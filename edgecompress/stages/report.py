"""The report: one JSON with all results of a deploy, rendered for the terminal, as Markdown and as HTML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgecompress.core.model import Artifact, Request

FILES = ("report.json", "report.md", "report.html")


def run(request: Request) -> Artifact:
    """The stage: every input's facts as report.json, report.md and report.html; kind "report"."""
    from edgecompress.reporting import report_json

    request.progress(0.1, "reading the measurements")
    report = report_json.report(request)
    request.progress(0.4, "drawing the figures")
    _write(request.out, report)
    summary = report["summary"]
    facts = {"sentence": summary["sentence"], "outcome": summary["outcome"], "variant": summary["variant"]}
    return Artifact(request.out, "report", facts=facts).write()


def again(request: Request) -> Artifact:
    """The stage: `options["report"]`, a report.json, and its faces; raises InputError where it lacks their parts."""
    from edgecompress.reporting import read
    from edgecompress.reporting.formatting import cleaned

    with read.rendering("report.json"):
        _write(request.out, cleaned(request.options["report"]))
    return Artifact(request.out, "report").write()


def _write(out: Path, report: dict[str, Any]) -> None:
    from edgecompress.reporting import html, markdown

    pages = (
        json.dumps(report, indent=1, allow_nan=False, ensure_ascii=False),
        markdown.page(report),
        html.page(report),
    )
    for name, page in zip(FILES, pages, strict=True):
        (out / name).write_text(page, encoding="utf-8")
