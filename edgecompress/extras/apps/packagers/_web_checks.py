"""What a web package has to keep: compiled in is what the card says, no other host is asked, the runtime is pinned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.model import sha256_of
from edgecompress.core.package_contents import PackageCheck, is_packed
from edgecompress.extras.apps import checks
from edgecompress.extras.apps.packagers import _web_ort

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card

SCHEMA = "edgecompress/web_spec/1"
# What the wrapper has compiled in, out of the card; the page reads the rest from the card.
COMPILED = ("name", "slug", "version", "model", "inputs", "outputs", "preprocess", "postprocess", "labels", "golden")
PAGE, SPEC, ICON = "index.html", "spec.js", "icon.svg"
ACTING = re.compile(r"<script|<foreignObject|<!|\son\w+\s*=|href|style", re.IGNORECASE)  # what an SVG may do
TEMPLATES: Mapping[str, str] = {
    name: f"{name}.j2" for name in (PAGE, SPEC, "model.js", "package.json", "README.md")
}  # path in the package -> template
SCRIPTS = (
    *("canvas.js", "files.js", "measure.js", "page.js", "pictures.js"),
    *("processing.js", "selftest.js", "session.js", "show.js", "tensors.js", "unpack.js"),
)
OURS = (PAGE, "page.css", "model.js", *SCRIPTS)  # files that a browser acts on
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HOST = re.compile(r"\b(?:https?|wss?|ftp)://|\b(?:data|javascript):\w|(?-i:url\()|[\"'`(]\s*//[\w.-]", re.IGNORECASE)
LINKS = {"src", "href", "srcset", "action", "formaction", "poster", "ping", "data", "background", "style", "srcdoc"}
LITERAL = re.compile(r"(?:// [^\n]*\n)*export default (\{.*\});\n", re.DOTALL)
LARGEST = 64 << 20  # bytes of a text that is read
PAGE_CHARS, TAGS = 1 << 16, 256  # of the page, at most: a parser takes the square of them


def spec(card: Card) -> dict[str, object]:
    """What the wrapper has compiled in: spec.js is this, as one JSON value."""
    runtime = {"name": _web_ort.NAME, "version": _web_ort.VERSION}
    told = {key: value for key, value in card.items() if key in COMPILED}
    settings = card["runtime"].get("settings", {})
    return {"schema": SCHEMA, "runtime": runtime, "settings": settings, "packed": is_packed(card), **told}


def every(root: Path, card: Card, ort: str) -> Iterator[PackageCheck]:
    """Each check, made."""
    return checks.made(
        {
            "web: policy": lambda: _policy(root),
            "web: no other host": lambda: _hosts(root),
            "web: no other code": lambda: _strangers(root, ort),
            "web: compiled constants": lambda: _constants(root, card),
            "web: ONNX Runtime Web": lambda: _runtime(root / ort),
        }
    )


def _text(file: Path) -> str:
    return checks.text(file, LARGEST)


class _Page(HTMLParser):
    """The policy of a page, what its attributes lead to, and what scripts it has inside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.policies: list[str] = []
        self.links: list[str] = []
        self.inline: list[str] = []
        self.before: list[str] = []  # what leads somewhere before the policy holds
        if len(text) > PAGE_CHARS or text.count("<") > TAGS:
            raise InputError(f"{PAGE}: is larger, or has more tags, than the page of a web package")
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {key: value or "" for key, value in attrs}
        if tag == "meta" and named.get("http-equiv", "").lower() == "content-security-policy":
            self.policies.append(named.get("content", ""))
        elif tag == "meta" and "http-equiv" in named:
            self.inline.append("<meta http-equiv>")  # a refresh goes where it likes
        links = [value for key, value in named.items() if key in LINKS or key.startswith("xlink")]
        self.links += links
        self.before += [] if self.policies else links
        self.inline += [f"<{tag} {key}>" for key in named if key.startswith("on") or key == "style"]
        if (tag == "script" and "src" not in named) or tag in ("style", "base", "iframe", "object", "embed"):
            self.inline.append(f"<{tag}>")


def _policy(root: Path) -> None:
    page = _Page(_text(root / PAGE))
    if page.policies != [POLICY]:
        raise InputError(f"{PAGE}: its Content-Security-Policy is not the one that web packages have")
    if page.before:
        raise InputError(f"{PAGE}: something is loaded before its policy holds: {page.before[0][:80]!a}")
    if page.inline:
        raise InputError(f"{PAGE}: has {page.inline[0][:80]!a}, which its policy refuses")


def _hosts(root: Path) -> None:
    """Links of the page, and all text of the scripts and styles; a model's name may hold what it likes."""
    for link in _Page(_text(root / PAGE)).links:
        if HOST.search(link) or link.startswith(("/", "\\")) or ".." in link:
            raise InputError(f"{PAGE}: links to {link[:80]!a}")
    for name in OURS[1:]:
        if bad := HOST.search(_text(root / name)):
            raise InputError(f"{name}: holds {bad[0]!a}")


def _strangers(root: Path, ort: str) -> None:
    """Code lies only where it is known; a picture holds none."""
    known = {*OURS, SPEC, ICON, *(f"{ort}/{name}" for name in _web_ort.FILES)}
    code = (".js", ".mjs", ".cjs", ".wasm", ".html", ".htm", ".xhtml", ".css", ".svg")
    if acting := ACTING.search(_text(root / ICON)):
        raise InputError(f"{ICON}: holds {acting[0]!a}")
    there = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
    if extra := [name for name in there if name.lower().endswith(code) and name not in known]:
        raise InputError(f"{extra[0][:120]!a}: not part of a web package")


def _constants(root: Path, card: Card) -> None:
    literal = LITERAL.fullmatch(_text(root / SPEC))
    if not literal:
        raise InputError(f"{SPEC}: is not one JSON value")
    compiled = json.loads(literal[1])
    expected = json.loads(json.dumps(spec(card)))
    if differ := sorted(key for key in {*compiled, *expected} if compiled.get(key) != expected.get(key)):
        raise InputError(f"{SPEC}: {differ[0]} differs from the card")


def _runtime(folder: Path) -> None:
    for name, pinned in _web_ort.FILES.items():
        if sha256_of(folder / name) != pinned:
            raise InputError(
                f"{folder.name}/{name}: not the file of {_web_ort.NAME} {_web_ort.VERSION} (sha256 differs)"
            )
