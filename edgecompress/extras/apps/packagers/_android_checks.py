"""What `package verify` looks at in an Android package. Nothing in it is executed; aapt2 reads its manifest."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from edgecompress.core.errors import InputError
from edgecompress.core.package_contents import PackageCheck, digest
from edgecompress.core.package_names import names
from edgecompress.extras.apps import archive, checks
from edgecompress.extras.apps.checks import NotChecked
from edgecompress.extras.apps.packagers import _android_java, _android_maven
from edgecompress.extras.apps.packagers._android_classes import JAVA_8, ClassFile, jar
from edgecompress.extras.apps.packagers._android_engines import engine, libraries

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card

MANIFEST = "AndroidManifest.xml"
METADATA = "META-INF/com/android/build/gradle/aar-metadata.properties"
ENTRIES = (MANIFEST, "R.txt", "classes.jar", "proguard.txt", METADATA)
FRAMEWORK = Path("/usr/share/android-framework-res/framework-res.apk")  # Debian's
LONGEST = 1 << 20  # bytes of a text that is parsed
LIMIT_S = 60.0
ANDROID = "{http://schemas.android.com/apk/res/android}"
POM = "{http://maven.apache.org/POM/4.0.0}"
REAL_JAR = "the runtime's own classes are not here: the wrapper was compiled against their signatures"


def library(root: Path) -> Path:
    """The one .aar of a package. Raises InputError."""
    libraries = sorted((root / "maven").rglob("*.aar"))
    if len(libraries) != 1 or not libraries[0].is_file():
        raise InputError(f"maven/ holds {len(libraries)} libraries (.aar), not one; pack it again")
    return libraries[0]


def every(root: Path, card: Card, work: Path) -> Iterator[PackageCheck]:
    """Each check with what it found."""
    aar = work / "aar"
    aar.mkdir()
    archive.unpack(library(root), aar)
    yield from checks.made(
        {
            "aar": lambda: _structure(aar, card),
            "classes": lambda: _classes(aar, card),
            "constants": lambda: _constants(aar, card),
            "maven": lambda: _sums(root / "maven"),
            "javadoc": lambda: _javadoc(library(root), work / "javadoc"),
            "pom": lambda: _pom(library(root), card),
            "aapt2": lambda: _linked(aar, work),
        }
    )
    yield PackageCheck("real jar", "skipped", REAL_JAR)


def _xml(file: Path) -> ElementTree.Element:
    """A small document without a DOCTYPE, for that is where entities grow. Raises InputError."""
    data = file.read_bytes()
    if len(data) > LONGEST or b"<!DOCTYPE" in data or b"\0" in data:
        raise InputError(f"{file.name}: is too large, or has a DOCTYPE")
    return ElementTree.fromstring(data)


# --------------------------------------------------------------------------- the library


def _structure(aar: Path, card: Card) -> str:
    missing = [name for name in ENTRIES if not (aar / name).is_file()]
    if missing:
        raise InputError(f"the library has no {missing[0]}")
    more = sorted(p.name for p in aar.iterdir() if p.name not in {*ENTRIES, "META-INF", "assets"})
    if more:
        raise InputError(f"the library has the unexpected entry {archive.shown(more[0])}")
    least = _xml(aar / MANIFEST).find("uses-sdk")
    min_sdk = str(engine(card).min_sdk)
    if least is None or least.get(f"{ANDROID}minSdkVersion") != min_sdk:
        raise InputError(f"{MANIFEST}: minSdkVersion is not {min_sdk}, which {engine(card).words} needs")
    return f"{sum(1 for p in aar.rglob('*') if p.is_file())} entries, from API level {min_sdk}"


def _namespace(aar: Path) -> str:
    package = _xml(aar / MANIFEST).get("package") or ""
    if not package:
        raise InputError(f"{MANIFEST}: has no package")
    return package


def _classes(aar: Path, card: Card) -> str:
    """All of Java 8, all in the library's namespace, the wrapper and one engine among them."""
    classes, namespace = jar(aar / "classes.jar"), _namespace(aar)
    if wrong := [c.name for c in classes.values() if c.major != JAVA_8]:
        raise InputError(f"{archive.shown(wrong[0])} is not of Java 8 (class file {JAVA_8})")
    if strays := [name for name in classes if not name.startswith(f"{namespace}.")]:
        raise InputError(f"{archive.shown(strays[0])} is not in the library's namespace")
    used = (f"{names(card['name']).camel}Model", "ModelSpec", "SelfTest", "Prediction", engine(card).java)
    if missing := [name for name in used if f"{namespace}.{name}" not in classes]:
        raise InputError(f"the class {namespace}.{missing[0]} is missing")
    return f"{len(classes)} classes of Java 8"


def _constants(aar: Path, card: Card) -> str:
    """What is compiled in is what the card says: the wrapper reads nothing but that text."""
    spec: ClassFile | None = jar(aar / "classes.jar").get(f"{_namespace(aar)}.ModelSpec")
    if spec is None:
        raise InputError("ModelSpec was not found")
    parts = sorted((int(name[5:]), text) for name, text in spec.texts.items() if name.startswith("JSON_"))
    if "".join(text for _, text in parts) != _android_java.facts(card):
        raise InputError("the values compiled into ModelSpec differ from the card")
    facts = {"NAME": card["name"], "VERSION": card["version"], "MODEL_SHA256": digest(card)}
    facts |= {"RUNTIME": card["runtime"]["name"], "RUNTIME_VERSION": card["runtime"]["version"]}
    for name, fact in facts.items():
        if spec.texts.get(name) != fact:
            raise InputError(f"ModelSpec.{name} differs from the card")
    return f"{len(_android_java.FACTS) + len(facts)} facts"


# --------------------------------------------------------------------------- the repository


def _sums(maven: Path) -> str:
    files = [p for p in maven.rglob("*") if p.is_file() and p.suffix[1:] not in _android_maven.SUMS]
    for file in files:
        for name in _android_maven.SUMS:
            beside = file.with_name(f"{file.name}.{name}")
            if name == "md5" and not beside.exists():
                continue  # packages of earlier versions have none
            digest = hashlib.new(name, file.read_bytes(), usedforsecurity=False).hexdigest()
            if not beside.is_file() or beside.read_text().strip() != digest:
                raise InputError(f"{file.name}: its {name} is missing or wrong")
    return f"{len(files)} files"


def _javadoc(aar: Path, work: Path) -> str:
    """Its Javadoc has pages. Its sources, as all that is not compiled, are for the check `code`."""
    file = aar.with_name(f"{aar.stem}-javadoc.jar")
    if not file.is_file():
        raise NotChecked("packages of earlier versions have none")
    work.mkdir()
    archive.unpack(file, work)
    if not (pages := [*work.rglob("*.html")]):
        raise NotChecked("the JDK that compiled it has no javadoc: the jar holds a README only")
    return f"{len(pages)} pages"


def _pom(aar: Path, card: Card) -> str:
    """Its coordinates are its place, its dependencies the runtime that verified the model, and what that needs."""
    pom = _xml(aar.with_suffix(".pom"))
    group, artifact, version = (pom.findtext(f"{POM}{key}") or "" for key in ("groupId", "artifactId", "version"))
    where = _android_maven.place(group, artifact, version) / f"{artifact}-{version}.aar"
    if not aar.as_posix().endswith(f"/maven/{where.as_posix()}"):
        raise InputError("the coordinates in the pom are not those of its folder")
    if version != card["version"]:
        raise InputError("the version in the pom is not the card's")
    needs = [
        tuple(dependency.findtext(f"{POM}{key}") for key in ("groupId", "artifactId", "version"))
        for dependency in pom.iter(f"{POM}dependency")
    ]
    wanted = libraries(card)
    named = " and ".join(map(":".join, wanted))
    if needs != wanted:
        raise InputError(f"the pom must depend on {named} only")
    return named


# --------------------------------------------------------------------------- Android's own tool


def framework() -> Path | None:
    """A jar of Android's resources: an SDK's newest, or Debian's."""
    sdk = os.environ.get("ANDROID_HOME") or os.environ.get("ANDROID_SDK_ROOT") or ""
    jars = sorted(Path(sdk).glob("platforms/*/android.jar")) if sdk else []
    return jars[-1] if jars else FRAMEWORK if FRAMEWORK.is_file() else None


def _linked(aar: Path, work: Path) -> str:
    """aapt2 takes the manifest and the assets, against Android's resources."""
    tool, base = shutil.which("aapt2"), framework()
    if tool is None or base is None:
        lacking = "aapt2" if tool is None else "android.jar"
        raise NotChecked(f"no {lacking} here (Debian: apt-get install aapt android-framework-res)")
    command = [tool, "link", "-o", str(work / "linked.apk"), "-I", str(base), "--manifest", str(aar / MANIFEST)]
    done = subprocess.run(
        [*command, "-A", str(aar / "assets")],
        capture_output=True, encoding="utf-8", errors="replace", timeout=LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise InputError(f"aapt2 refuses it: {ascii(' '.join(done.stderr.split()))[1:200]}")
    return f"linked against {base.name}"
