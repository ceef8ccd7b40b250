"""What a web package has to keep: compiled in is what the card says, no other host is asked, the runtime is pinned."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from edgecompress.core.model import sha256_of
from edgecompress.core.package_contents import PackageCheck
from edgecompress.plugins.packagers import _web_ort

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
    *("processing.js", "selftest.js", "session.js", "show.js", "tensors.js"),
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


def spec(card: Mapping[str, Any]) -> dict[str, Any]:
    """What the wrapper has compiled in: spec.js is this, as one JSON value."""
    runtime = {"name": _web_ort.NAME, "version": _web_ort.VERSION}
    settings = card["runtime"].get("settings", {})
    return {"schema": SCHEMA, "runtime": runtime, "settings": settings, **{key: card[key] for key in COMPILED}}


def every(root: Path, card: Mapping[str, Any], ort: str) -> Iterator[PackageCheck]:
    """Each check, made. Nothing of the package is executed."""
    looks: dict[str, Callable[[], str]] = {
        "web: policy": lambda: _policy(root),
        "web: no other host": lambda: _hosts(root),
        "web: no other code": lambda: _strangers(root, ort),
        "web: compiled constants": lambda: _constants(root, card),
        "web: ONNX Runtime Web": lambda: _runtime(root / ort),
    }
    for name, look in looks.items():
        try:
            wrong = look()
        except (OSError, ValueError, RecursionError, AssertionError) as error:  # the last is HTMLParser's
            wrong = ascii(str(error))[1:-1][:200]
        yield PackageCheck(name, "fail" if wrong else "pass", wrong)


def _text(file: Path) -> str:
    if file.stat().st_size > LARGEST:
        raise ValueError(f"{file.name}: larger than {LARGEST >> 20} MiB")
    return file.read_text(encoding="utf-8")


class _Page(HTMLParser):
    """The policy of a page, what its attributes lead to, and what scripts it has inside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.policies: list[str] = []
        self.links: list[str] = []
        self.inline: list[str] = []
        self.before: list[str] = []  # what leads somewhere before the policy holds
        if len(text) > PAGE_CHARS or text.count("<") > TAGS:
            raise ValueError(f"{PAGE}: is larger, or has more tags, than the page of a web package")
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


def _policy(root: Path) -> str:
    page = _Page(_text(root / PAGE))
    if page.policies != [POLICY]:
        return f"{PAGE}: its Content-Security-Policy is not the one that web packages have"
    if page.before:
        return f"{PAGE}: something is loaded before its policy holds: {page.before[0][:80]!a}"
    return f"{PAGE}: has {page.inline[0][:80]!a}, which its policy refuses" if page.inline else ""


def _hosts(root: Path) -> str:
    """Links of the page, and all text of the scripts and styles; a model's name may hold what it likes."""
    for link in _Page(_text(root / PAGE)).links:
        if HOST.search(link) or link.startswith(("/", "\\")) or ".." in link:
            return f"{PAGE}: links to {link[:80]!a}"
    for name in OURS[1:]:
        if bad := HOST.search(_text(root / name)):
            return f"{name}: holds {bad[0]!a}"
    return ""


def _strangers(root: Path, ort: str) -> str:
    """Code lies only where it is known; a picture holds none."""
    known = {*OURS, SPEC, ICON, *(f"{ort}/{name}" for name in _web_ort.FILES)}
    code = (".js", ".mjs", ".cjs", ".wasm", ".html", ".htm", ".xhtml", ".css", ".svg")
    if acting := ACTING.search(_text(root / ICON)):
        return f"{ICON}: holds {acting[0]!a}"
    there = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
    extra = [name for name in there if name.lower().endswith(code) and name not in known]
    return f"{extra[0][:120]!a}: not part of a web package" if extra else ""


def _constants(root: Path, card: Mapping[str, Any]) -> str:
    literal = LITERAL.fullmatch(_text(root / SPEC))
    if not literal:
        return f"{SPEC}: is not one JSON value"
    compiled = json.loads(literal[1])
    expected = json.loads(json.dumps(spec(card)))
    differ = sorted(key for key in {*compiled, *expected} if compiled.get(key) != expected.get(key))
    return f"{SPEC}: {differ[0]} differs from the card" if differ else ""


def _runtime(folder: Path) -> str:
    for name, pinned in _web_ort.FILES.items():
        if sha256_of(folder / name) != pinned:
            return f"{folder.name}/{name}: not the file of {_web_ort.NAME} {_web_ort.VERSION} (sha256 differs)"
    return ""
