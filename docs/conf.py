"""The site of these pages (`make site`): Sphinx reads README.md, docs/ and the other pages where they are."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parent.parent
NAVIGATION = {
    "Start": "Overview <self>, docs/tutorial, docs/concepts, All pages <docs/README>",
    "Guides": "docs/sources, docs/python, docs/verification, docs/check, docs/analyze, docs/compression, docs/guard, "
    "docs/diff, docs/search, docs/sparsity, docs/schedules, docs/language-model, docs/measuring, docs/performance, "
    "docs/packages, docs/assistants, docs/fleet",
    "Targets": "docs/formats, docs/devices, docs/detectors, docs/npu, docs/ethos-u, docs/web",
    "Reference": "docs/reference/commands, docs/reference/targets, docs/reference/files, docs/reference/plugins, "
    "docs/reference/zoo, docs/reference/operators, docs/reference/errors",
    "Project": "docs/architecture, CONTRIBUTING, examples/**, docs/security, "
    "Reporting a vulnerability <SECURITY>, CHANGELOG",
}
ABOUT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = ABOUT["name"]
release = ABOUT["version"]
author = copyright = ABOUT["authors"][0]["name"]
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "examples/**.md"]
exclude_patterns = [p.name for p in ROOT.iterdir() if p.is_dir() and p.name not in ("docs", "examples")]
myst_heading_anchors = 4
smartquotes = False
html_theme = "furo"
html_theme_options = {"light_css_variables": {"code-font-size": "0.75rem"}}
html_static_path = html_css_files = ["site.css"]
html_title = f"{project} {release}"
html_copy_source = False
html_use_index = False
html_show_search_summary = False  # a browser does not let a page that is a local file read the others


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Ends the first page with what the sidebar shows."""
    if page == root_doc:
        for caption, pages in NAVIGATION.items():
            lines = [
                "",
                "```{toctree}",
                ":hidden:",
                ":glob:",
                f":caption: {caption}",
                "",
                *pages.split(", "),
                "```",
                "",
            ]
            source[0] += "\n".join(lines)


class LinksToCode(SphinxTransform):
    """The site has no folders and no Python files: a link to one becomes its path."""

    default_priority = 100

    def apply(self, **kwargs: Any) -> None:
        here = Path(self.env.doc2path(self.env.docname)).parent
        kinds = (addnodes.pending_xref, addnodes.download_reference)
        for link in [node for kind in kinds for node in self.document.findall(kind)]:
            path = (here / link["reftarget"]).resolve()
            readme = self.env.path2doc(path / "README.md")
            if link["refdomain"] == "doc":
                continue
            if path.is_dir() and readme in self.env.found_docs:
                link.attributes.update(refdomain="doc", reftarget=readme, reftargetid=None)
            elif path.is_dir() or path.suffix == ".py":
                link.parent.replace(link, in_words(link, path.relative_to(ROOT)))


def in_words(link: nodes.Element, path: Path) -> list[nodes.Node]:
    """A link whose text is the path, or its end, is just that; other text is followed by the path."""
    text, shown = link.astext(), path.as_posix()
    if text == path.stem or shown.endswith(text.strip("/")):
        return [nodes.literal("", text)]
    return [*link[0].children, nodes.Text(" ("), nodes.literal("", shown), nodes.Text(")")]


class Flowcharts(SphinxTransform):
    """Mermaid draws its flowcharts with a script from another host; here they are lists."""

    default_priority = 100

    def apply(self, **kwargs: Any) -> None:
        for block in list(self.document.findall(nodes.literal_block)):
            if block.get("language") == "mermaid":
                block.parent.replace(block, flowchart(block.astext()))


def flowchart(text: str) -> nodes.Element:
    """A chain of boxes becomes its numbered steps; arrows in all directions become what each box leads to."""
    boxes = dict(re.findall(r'^ *(\w+)\["(.+)"\]$', text, re.MULTILINE))
    chain = re.search(r"^ *\w+( --> \w+){2,}$", text, re.MULTILINE)
    if chain:
        steps = [boxes[name].partition("<br/>") for name in chain[0].strip().split(" --> ")]
        rows = [[nodes.literal("", what), nodes.Text(f" {does}")] for what, _, does in steps]
        return listed(nodes.enumerated_list(enumtype="arabic", suffix="."), rows)
    arrows = re.findall(r"^ *(\w+) -(?:->|\. (.+) \.->) (\w+)$", text, re.MULTILINE)
    led = {name: [(how, to) for start, how, to in arrows if start == name] for name in boxes}
    return listed(nodes.bullet_list(), [arrow(boxes[name], to, boxes) for name, to in led.items() if to])


def arrow(start: str, led: list[tuple[str, str]], boxes: dict[str, str]) -> list[nodes.Node]:
    """A box, an arrow, and the boxes that it leads to."""
    found: list[nodes.Node] = [nodes.literal("", start)]
    for before, (how, to) in zip([" → ", *[", "] * len(led)], led, strict=False):
        found += [nodes.Text(before), nodes.literal("", boxes[to]), nodes.Text(f" ({how})" if how else "")]
    return found


def listed(into: nodes.Element, rows: list[list[nodes.Node]]) -> nodes.Element:
    """The list, with a paragraph for each row."""
    into.extend(nodes.list_item("", nodes.paragraph("", "", *row)) for row in rows)
    return into


def write_index(app: Sphinx, error: Exception | None) -> None:
    """A server and a reader look for index.html first."""
    if error is None:
        shutil.copyfile(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """What Sphinx calls with itself."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", write_index)
    app.add_transform(LinksToCode)
    app.add_transform(Flowcharts)
