"""What a web package of any version has to keep: its policy, no script that it adds, the runtime that is pinned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from edgecompress.core.errors import InputError
from edgecompress.core.model import sha256_of
from edgecompress.core.package_contents import PackageCheck
from edgecompress.extras.apps import checks
from edgecompress.extras.apps.packagers import _web_ort

PAGE, SPEC, ICON = "index.html", "spec.js", "icon.svg"
ACTING = re.compile(r"<script|<foreignObject|<!|\son\w+\s*=|href|style", re.IGNORECASE)  # what an SVG may do
SCRIPTS = (
    *("canvas.js", "files.js", "measure.js", "page.js", "pictures.js"),
    *("processing.js", "selftest.js", "session.js", "show.js", "tensors.js", "unpack.js"),
)
OURS = (PAGE, "page.css", "model.js", *SCRIPTS)  # files that a browser acts on
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
LINKS = {"src", "href", "srcset", "action", "formaction", "poster", "ping", "data", "background", "style", "srcdoc"}
LARGEST = 64 << 20  # bytes of a text that is read
PAGE_CHARS, TAGS = 1 << 16, 256  # of the page, at most: a parser takes the square of them


def every(root: Path, ort: str) -> Iterator[PackageCheck]:
    """Each check, made."""
    return checks.made(
        {
            "web: policy": lambda: _policy(root),
            "web: no other code": lambda: _strangers(root, ort),
            "web: ONNX Runtime Web": lambda: _runtime(root / ort),
        }
    )


def _text(file: Path) -> str:
    return checks.text(file, LARGEST)


class _Page(HTMLParser):
    """The policy of a page, what its attributes lead to before it, and what scripts it has inside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.policies: list[str] = []
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
        if not self.policies:
            self.before += [value for key, value in named.items() if key in LINKS or key.startswith("xlink")]
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


def _strangers(root: Path, ort: str) -> None:
    """Code lies only where it is known; a picture holds none."""
    known = {*OURS, SPEC, ICON, *(f"{ort}/{name}" for name in _web_ort.FILES)}
    code = (".js", ".mjs", ".cjs", ".wasm", ".html", ".htm", ".xhtml", ".css", ".svg")
    if acting := ACTING.search(_text(root / ICON)):
        raise InputError(f"{ICON}: holds {acting[0]!a}")
    there = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
    if extra := [name for name in there if name.lower().endswith(code) and name not in known]:
        raise InputError(f"{extra[0][:120]!a}: not part of a web package")


def _runtime(folder: Path) -> None:
    for name, pinned in _web_ort.FILES.items():
        if sha256_of(folder / name) != pinned:
            raise InputError(
                f"{folder.name}/{name}: not the file of {_web_ort.NAME} {_web_ort.VERSION} (sha256 differs)"
            )
