"""The report: one JSON of everything a deploy found out, and its faces: terminal, Markdown, HTML."""

from __future__ import annotations

import json

from edgecompress.model import Artifact, Request

FILES = ("report.json", "report.md", "report.html")


def run(request: Request) -> Artifact:
    """The stage: every input's facts as report.json, report.md and report.html; kind "report"."""
    from edgecompress.stages.report import build, html, markdown

    request.progress(0.1, "reading the measurements")
    report = build.report(request)
    request.progress(0.4, "drawing the figures")
    pages = (
        json.dumps(report, indent=1, allow_nan=False, ensure_ascii=False),
        markdown.page(report),
        html.page(report),
    )
    for name, page in zip(FILES, pages, strict=True):
        (request.out / name).write_text(page, encoding="utf-8")
    summary = report["summary"]
    facts = {"sentence": summary["sentence"], "outcome": summary["outcome"], "variant": summary["variant"]}
    return Artifact(request.out, "report", facts=facts).write()
