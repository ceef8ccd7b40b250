"""A web page with the model for ONNX Runtime Web: self-test, image classification, benchmark."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.package_contents import LEVELS, Contents, PackageCheck, check_settings, is_packed, settings
from edgecompress.extras.apps.packagers import _web_checks, _web_ort
from edgecompress.extras.apps.packagers._web_checks import ICON, PAGE, POLICY, SCRIPTS, SPEC
from edgecompress.extras.apps.render import render

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card

REQUIRES: tuple[str, ...] = ("jinja2>=3.1", "cyclonedx-python-lib>=11")
EXTRA = "package"
SUFFIX = ".zip"
FORMATS: tuple[str, ...] = ("onnx",)

ORT = "ort"  # the folder of the runtime
SCHEMA = "edgecompress/web_spec/1"
# What the wrapper has compiled in, out of the card; the page reads the rest from the card.
COMPILED = ("name", "slug", "version", "model", "inputs", "outputs", "preprocess", "postprocess", "labels", "golden")
TEMPLATES = {
    name: f"{name}.j2" for name in (PAGE, SPEC, "model.js", "package.json", "README.md")
}  # path in the package -> template
COPIED = (*SCRIPTS, "page.css", ICON, "serve.py")
CARRIED = (*(f"{ORT}/{name}" for name in _web_ort.FILES),)
LICENCE = "LICENSE.ort"  # of the runtime, whose release has none of its own


@dataclass(frozen=True)
class Options:
    """`packed`: the model in its packed form, which the page unpacks in memory."""

    packed: bool = False


def build(contents: Contents, root: Path) -> None:
    """The page, its scripts, the runtime, and the payload beside them.

    Raises InputError for a model in several files, MissingDependency where nothing can fetch the runtime.
    """
    card = contents.card
    if len(card["model"]["files"]) != 1:
        count = len(card["model"]["files"])
        raise InputError(f"packager 'web': the model is {count} files; it takes one .onnx with its weights inside")
    shutil.copytree(contents.carried, root, dirs_exist_ok=True)
    (root / ORT).mkdir()
    for name, file in _web_ort.files().items():
        shutil.copyfile(file, root / ORT / name)
    code(contents, root, root)


def code(contents: Contents, root: Path, package: Path) -> None:
    """The page and its scripts."""
    files = {**{name: name for name in COPIED}, **TEMPLATES, f"{ORT}/LICENSE": LICENCE}
    render("web", root, _values(contents, package / ORT), files)


def _spec(card: Card) -> dict[str, object]:
    """What the wrapper has compiled in: spec.js is this, as one JSON value."""
    runtime = {"name": _web_ort.NAME, "version": _web_ort.VERSION}
    told = {key: value for key, value in card.items() if key in COMPILED}
    settings = card["runtime"].get("settings", {})
    return {"schema": SCHEMA, "runtime": runtime, "settings": settings, "packed": is_packed(card), **told}


def _values(contents: Contents, ort: Path) -> dict[str, object]:
    """What the templates say."""
    card = contents.card
    check_settings(card, LEVELS)
    pictured = card["preprocess"] is not None and card["preprocess"]["spectrogram"] is None
    return {
        "card": card,
        "spec": _spec(card),
        "policy": POLICY,
        "name": card["name"],
        "description": card["description"],
        "slug": card["slug"],
        "version": card["version"],
        "semver": _semver(card["version"]),
        "camel": contents.names.camel,
        "folder": f"{card['slug']}-web",
        "runtime": _web_ort.VERSION,
        "settings": settings(card),
        "threads": card["runtime"].get("threads", 1),
        "pictures": pictured and card["postprocess"]["task"] != "raw",
        "detects": pictured and card["postprocess"]["task"] == "detect",
        "segments": pictured and card["postprocess"]["task"] == "segment",
        "megabytes": round(sum((ort / name).stat().st_size for name in _web_ort.FILES) / 1e6),
        "packed": is_packed(card),
        "kilobytes": -(-sum(file["bytes"] for file in card["model"]["files"]) // 1000),
    }


def _semver(version: str) -> str:
    """As npm wants it, of three parts: "2.1-beta" is 2.1.0-beta."""
    numbers, rest = re.match(r"([0-9.]*)(.*)", version, re.DOTALL).groups()  # type: ignore[union-attr]  # it always does
    parts = [str(int(part)) for part in numbers.split(".")]
    return ".".join([*parts, "0", "0"][:3]) + rest


def payload(root: Path, work: Path) -> Path:
    """It lies beside the page."""
    return root


def purl(card: Card) -> str:
    """The runtime as the bill of materials names it."""
    return f"pkg:npm/{_web_ort.NAME}@{_web_ort.VERSION}"


def checks(root: Path, card: Card, work: Path) -> Iterator[PackageCheck]:
    """The page's policy, that it has no other code, and the runtime's bytes; the check `code` covers the rest."""
    return _web_checks.every(root, ORT)
