"""The files of a package as components of its bill of materials: each with its sha256, wheels as libraries."""

from __future__ import annotations

import email.parser
import hashlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.model import sha256_of

if TYPE_CHECKING:
    from email.message import Message

    from cyclonedx.model import HashType
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License

WHEELS = "wheels"
REQUIREMENTS = "requirements.txt"
PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")
NATIVE = re.compile(r"\.(so|dylib|dll|pyd)(\.[0-9.]+)?$")  # a library of machine code, with or without its version
LONGEST = 100  # characters of a licence's name; longer ones are its text


def sha256(digest: str) -> HashType:
    """A sha256 as CycloneDX writes it."""
    from cyclonedx.model import HashAlgorithm, HashType

    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def file(path: str, digest: str, owner: str = "package") -> Component:
    """A file by its path in `owner`."""
    from cyclonedx.model.component import Component, ComponentType

    return Component(type=ComponentType.FILE, name=path, bom_ref=f"{owner}:{path}", hashes=[sha256(digest)])


def files(root: Path, but: str) -> Iterator[Component]:
    """Every file of a package."""
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        if (name := path.relative_to(root).as_posix()) != but:
            yield file(name, sha256_of(path))


def libraries(root: Path) -> Iterator[Component]:
    """Each wheel with the native libraries in it, and each distribution that the board fetches by its pin."""
    carried = set()
    for wheel in sorted((root / WHEELS).glob("*.whl")):
        component = _wheel(wheel)
        carried.add(_normal(component.name))
        yield component
    pins = root / REQUIREMENTS
    for name, version in PIN.findall(pins.read_text(encoding="utf-8")) if pins.is_file() else ():
        if _normal(name) not in carried:
            yield _library(name, version, f"pin:{name}")


def _library(name: str, version: str, reference: str) -> Component:
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    purl = PackageURL("pypi", name=_normal(name), version=version)
    return Component(type=ComponentType.LIBRARY, name=name, version=version, purl=purl, bom_ref=reference)


def _wheel(wheel: Path) -> Component:
    """A wheel by the metadata in it."""
    with zipfile.ZipFile(wheel) as opened:
        entries = opened.namelist()
        metadata = next(name for name in entries if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        told = email.parser.BytesParser().parsebytes(opened.read(metadata), headersonly=True)
        native = [
            file(name, hashlib.sha256(opened.read(name)).hexdigest(), wheel.name)
            for name in entries
            if NATIVE.search(name)
        ]
    component = _library(str(told["Name"]), str(told["Version"]), f"wheel:{wheel.name}")
    component.hashes.add(sha256(sha256_of(wheel)))
    component.licenses.update(_licences(told))
    component.components.update(native)
    return component


def _licences(told: Message) -> Iterator[License]:
    """The licence that a wheel's metadata names, in the field of today or in one of the older ones."""
    from cyclonedx.contrib.license.factories import LicenseFactory

    older = [text for text in (told["License"],) if text and len(text) <= LONGEST and "\n" not in text]
    classified = [c.split(" :: ")[-1] for c in told.get_all("Classifier", []) if c.startswith("License :: ")]
    named = [text for text in (told["License-Expression"],) if text] or older or classified[:1]
    for text in named:
        yield LicenseFactory().make_from_string(text)


def _normal(name: str) -> str:
    """A distribution's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
