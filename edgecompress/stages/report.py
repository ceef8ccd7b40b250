"""The report: one JSON with all results of a deploy, rendered for the terminal, as Markdown and as HTML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact, Request

if TYPE_CHECKING:
    from edgecompress.reporting.model import Report

FILES = ("report.json", "report.md", "report.html")


def run(request: Request) -> Artifact:
    """The stage: every input's facts as report.json, report.md and report.html; kind "report"."""
    from edgecompress.reporting import model, report_json

    request.progress(0.1, "reading the measurements")
    report = report_json.report(request)
    request.progress(0.4, "drawing the figures")
    _write(request.out, model.to_json(report), report)
    summary = report.summary
    facts = {"sentence": summary.sentence, "outcome": summary.outcome, "variant": summary.variant}
    return Artifact(request.out, "report", facts=facts).write()


def again(request: Request) -> Artifact:
    """The stage: `options["report"]`, a report.json, and its faces; raises InputError where it lacks their parts."""
    from edgecompress.reporting import model, read
    from edgecompress.reporting.formatting import cleaned

    with read.rendering("report.json"):
        document = cleaned(request.options["report"])
        _write(request.out, document, model.of(document))
    return Artifact(request.out, "report").write()


def _write(out: Path, document: Mapping[str, object], report: Report) -> None:
    from edgecompress.reporting import html, markdown

    pages = (
        json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False),
        markdown.page(report),
        html.page(report),
    )
    for name, page in zip(FILES, pages, strict=True):
        (out / name).write_text(page, encoding="utf-8")
