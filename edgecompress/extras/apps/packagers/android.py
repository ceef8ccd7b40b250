"""An Android library (AAR) in a Maven repository, a sample app, and on request a Play AI pack."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.package_contents import MODEL, Contents, PackageCheck, digest, settings
from edgecompress.extras.apps import archive
from edgecompress.extras.apps.packagers import _android_checks, _android_java, _android_maven
from edgecompress.extras.apps.packagers._android_engines import Engine, audio, engine, libraries, picture
from edgecompress.extras.apps.render import render

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card, Spec

REQUIRES: tuple[str, ...] = ("jinja2>=3.1", "cyclonedx-python-lib>=11")
EXTRA = "package"
SUFFIX = ".zip"
FORMATS: tuple[str, ...] = ("tflite", "pte", "onnx", "qnn")
CARRIED = ("maven/*", "aipack/*/src/main/assets/*")
PACKAGE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
GROUP = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z][A-Za-z0-9_-]*)*")
HOME = "ai.edgecompress.models"  # the namespace and group of models that name no other
JAVA = (
    "abstract assert boolean break byte case catch char class const continue default do double else enum extends final "
    "finally float for goto if implements import instanceof int interface long native new package private protected "
    "public return short static strictfp super switch synchronized this throw throws transient try void volatile while "
    "true false null"
)
WORDS = frozenset(JAVA.split())  # no part of a package is one of them


@dataclass(frozen=True)
class Options:
    """`namespace`: of the classes, unique in the app. `group`: the artifact's, in Maven. Empty: out of the name."""

    namespace: str = ""
    group: str = ""
    ai_pack: bool = False  # the model in a Play AI pack of its own, not in the library
    packed: bool = False  # the model in its packed form, which is unpacked once into the app's cache
    cpu_allowed: bool = False  # of a model for an NPU: a phone that runs it on its CPU passes the self-test

    def __post_init__(self) -> None:
        if self.namespace and (not PACKAGE.fullmatch(self.namespace) or WORDS & {*self.namespace.split(".")}):
            raise ValueError(f"namespace {ascii(self.namespace)[:80]}: write a Java package like com.example.digits")
        if self.group and not GROUP.fullmatch(self.group):
            raise ValueError(f"group {ascii(self.group)[:80]}: write one like com.example")


def build(contents: Contents, root: Path) -> None:
    """maven/ with the library, its sources and Javadoc, sample/ with the app, README.md; with `ai_pack` also aipack/.

    Raises InputError for a model that no runtime of Android takes, MissingDependency without a JDK.
    """
    runtime, maven = engine(contents.card), root / "maven"
    values = _values(contents, runtime)
    code(contents, root, root)
    with tempfile.TemporaryDirectory(prefix="edgecompress-android-") as work:
        sources = Path(work) / "java"
        _android_java.write(sources, str(values["namespace"]), runtime, values)
        _library(contents, values, sources, Path(work), maven / _android_maven.file(values, ".aar"))
        pages = Path(work) / "javadoc"
        _android_java.document(sources, str(values["namespace"]), pages)
        archive.write(pages, maven / _android_maven.file(values, "-javadoc.jar"), ".zip")
    _android_maven.finish(maven, values)
    if values["ai_pack"]:
        assets = root / "aipack" / str(values["snake"]) / "src" / "main" / "assets" / contents.names.slug
        shutil.copytree(contents.carried / MODEL, assets / MODEL)


def code(contents: Contents, root: Path, package: Path) -> None:
    """README.md, the sample, the AI pack's script, the library's sources: what is not compiled."""
    runtime = engine(contents.card)
    values = _values(contents, runtime)
    render("android", root, values, _files(values))
    sources = root / "maven" / _android_maven.file(values, "-sources.jar")
    sources.parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="edgecompress-android-") as work:
        _android_java.write(Path(work), str(values["namespace"]), runtime, values)
        archive.write(Path(work), sources, ".zip")


def _files(values: Mapping[str, object]) -> dict[str, str]:
    """{path in the package: template}."""
    app, place = "sample/app", str(values["namespace"]).replace(".", "/")
    pack = {f"aipack/{values['snake']}/build.gradle": "aipack/build.gradle.j2"} if values["ai_pack"] else {}
    return {
        "README.md": "README.md.j2",
        "sample/settings.gradle": "sample/settings.gradle.j2",
        "sample/build.gradle": "sample/build.gradle.j2",
        "sample/gradle.properties": "sample/gradle.properties",
        f"{app}/build.gradle": "sample/app/build.gradle.j2",
        f"{app}/src/main/AndroidManifest.xml": "sample/app/AndroidManifest.xml.j2",
        f"{app}/src/main/java/{place}/sample/MainActivity.java": "sample/app/MainActivity.java.j2",
        **pack,
    }


# --------------------------------------------------------------------------- what templates are given


def _values(contents: Contents, runtime: Engine) -> dict[str, object]:
    card, names, options = contents.card, contents.names, contents.options or Options()
    spectrogram = card["preprocess"]["spectrogram"] if card["preprocess"] else None
    task = card["postprocess"]
    segment = f"{names.snake}_model" if names.snake in WORDS else names.snake  # of a Java package: no word of Java
    return {
        "card": card,
        "name": card["name"],
        "description": card["description"],
        "version": card["version"],
        "licence": card["licence"],
        "slug": names.slug,
        "snake": names.snake,
        "camel": names.camel,
        "artifact": names.slug,
        "namespace": options.namespace or f"{HOME}.{segment}",
        "group": options.group or HOME,
        "ai_pack": options.ai_pack,
        "packed": options.packed,
        "runtime": card["runtime"]["name"],
        "runtime_version": card["runtime"]["version"],
        "settings": settings(card),
        "threads": card["runtime"].get("threads", 1),
        "runtime_package": runtime.package,
        "libraries": libraries(card),
        "compiled": card["runtime"].get("compiled"),
        "cpu_allowed": options.cpu_allowed,
        "engine": runtime.java,
        "engine_name": runtime.words,
        "min_sdk": runtime.min_sdk,
        "suffix": Path(card["model"]["main"]).suffix.lstrip(".") or "bin",
        "model_sha256": digest(card),
        "parts": _android_java.parts(_android_java.facts(card)),
        "updated": _android_maven.updated(card["created"]),
        "picture": picture(card),
        "audio": audio(card),
        "rate": spectrogram["rate"] if spectrogram else 0,
        "classifies": task["task"] == "classify",
        "detects": task["task"] == "detect",
        "segments": task["task"] == "segment",
        "single": len(card["inputs"]) == 1,
        "top_k": task["top_k"],
        "ends": [*_ends("input", card["inputs"]), *_ends("output", card["outputs"])],
    }


def _ends(side: str, specs: Sequence[Spec]) -> Iterator[str]:
    for i, spec in enumerate(specs):
        parts = [spec["name"], " x ".join(map(str, spec["shape"])), spec["layout"], spec["dtype"]]
        becomes = f", becomes '{spec['feeds']}'" if spec["feeds"] else ""
        yield f"{side} {i}: {', '.join(part for part in parts if part)}{becomes}"


# --------------------------------------------------------------------------- the library


def _library(contents: Contents, values: Mapping[str, object], sources: Path, work: Path, out: Path) -> None:
    """The .aar: manifest, compiled wrapper, rules for shrinkers, and the payload as assets."""
    classes, tree = work / "classes", work / "aar"
    _android_java.compile(sorted(sources.rglob("*.java")), classes)
    files = {
        "AndroidManifest.xml": "aar/AndroidManifest.xml.j2",
        "proguard.txt": "aar/proguard.txt.j2",
        "META-INF/com/android/build/gradle/aar-metadata.properties": "aar/aar-metadata.properties",
    }
    render("android", tree, values, files)
    archive.write(classes, tree / "classes.jar", ".zip")
    (tree / "R.txt").write_bytes(b"")  # no resources
    assets = tree / "assets" / contents.names.slug
    left = (MODEL,) if values["ai_pack"] else ()
    shutil.copytree(
        contents.carried, assets, ignore=lambda folder, names: left if folder == str(contents.carried) else ()
    )
    archive.write(tree, out, ".zip")


# --------------------------------------------------------------------------- reading one


def payload(root: Path, work: Path) -> Path:
    """The library's assets, unpacked, with the AI pack's model where that holds it. Raises InputError."""
    archive.unpack(_android_checks.library(root), work)
    folders = [p for p in (work / "assets").glob("*") if p.is_dir()]
    if len(folders) != 1:
        raise InputError(f"the library has {len(folders)} folders of assets, not one; pack it again")
    for pack in (root / "aipack").glob(f"*/src/main/assets/{folders[0].name}/{MODEL}"):
        shutil.copytree(pack, folders[0] / MODEL)
    return folders[0]


def purl(card: Card) -> str:
    """The runtime as the bill of materials names it."""
    runtime = engine(card)
    return f"pkg:maven/{runtime.group}/{runtime.artifact}@{card['runtime']['version']}"


def checks(root: Path, card: Card, work: Path) -> Iterator[PackageCheck]:
    """The library's structure, its classes and what is compiled in, the repository's sums, the manifest by aapt2."""
    return _android_checks.every(root, card, work)
