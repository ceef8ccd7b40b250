"""Components of a bill of materials: the files of a package, each with its sha256, and wheels as libraries."""

from __future__ import annotations

import email.parser
import hashlib
import re
import zipfile
from collections.abc import Iterable, Iterator
from email.message import Message
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.model import sha256_of

if TYPE_CHECKING:
    from cyclonedx.model import HashType
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License
    from packageurl import PackageURL

WHEELS = "wheels"
REQUIREMENTS = "requirements.txt"
PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")
NATIVE = re.compile(r"\.(so|dylib|dll|pyd)(\.[0-9.]+)?$")  # a library of machine code, with or without its version
LONGEST = 100  # characters of a licence's name; longer ones are its text


def component(
    kind: str, name: str, reference: str, version: str | None = None, purl: PackageURL | None = None
) -> Component:
    """A component; `kind` is CycloneDX's word for it."""
    from cyclonedx.model.component import Component, ComponentType

    group = purl.namespace if purl else None
    return Component(type=ComponentType(kind), name=name, bom_ref=reference, version=version, purl=purl, group=group)


def pypi(name: str, version: str | None) -> PackageURL:
    """A distribution as registries name it."""
    from packageurl import PackageURL

    return PackageURL("pypi", name=name, version=version)


def licences(named: Iterable[str]) -> Iterator[License]:
    """Each as SPDX where it is such an expression, else by what its author calls it."""
    from cyclonedx.contrib.license.factories import LicenseFactory

    return (LicenseFactory().make_from_string(text) for text in named if text)


def sha256(digest: str) -> HashType:
    """A sha256 as CycloneDX writes it."""
    from cyclonedx.model import HashAlgorithm, HashType

    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def file(path: str, digest: str, owner: str = "package") -> Component:
    """A file by its path in `owner`."""
    made = component("file", path, f"{owner}:{path}")
    made.hashes.add(sha256(digest))
    return made


def files(root: Path, but: str) -> Iterator[Component]:
    """Every file of a package."""
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        if (name := path.relative_to(root).as_posix()) != but:
            yield file(name, sha256_of(path))


def libraries(root: Path) -> Iterator[Component]:
    """Each wheel with the native libraries in it, and each distribution that the board fetches by its pin."""
    carried = set()
    for wheel in sorted((root / WHEELS).glob("*.whl")):
        library = _wheel(wheel)
        carried.add(_normal(library.name))
        yield library
    pins = root / REQUIREMENTS
    for name, version in PIN.findall(pins.read_text(encoding="utf-8")) if pins.is_file() else ():
        if _normal(name) not in carried:
            yield component("library", name, f"pin:{name}", version, pypi(_normal(name), version))


def _wheel(wheel: Path) -> Component:
    """A wheel by the metadata in it."""
    with zipfile.ZipFile(wheel) as opened:
        entries = opened.namelist()
        metadata = next(name for name in entries if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        told = email.parser.BytesParser().parsebytes(opened.read(metadata), headersonly=True)
        name, version = str(told["Name"]), str(told["Version"])
        library = component("library", name, f"wheel:{wheel.name}", version, pypi(_normal(name), version))
        native = (entry for entry in entries if NATIVE.search(entry))
        digests = {entry: hashlib.sha256(opened.read(entry)).hexdigest() for entry in native}
    library.hashes.add(sha256(sha256_of(wheel)))
    library.licenses.update(licences(_licences(told)))
    library.components.update(file(entry, digest, wheel.name) for entry, digest in digests.items())
    return library


def _licences(told: Message) -> list[str]:
    """The licence that a wheel's metadata names, in the field of today or in one of the older ones."""
    older = [text for text in (told["License"],) if text and len(text) <= LONGEST and "\n" not in text]
    classified = [c.split(" :: ")[-1] for c in told.get_all("Classifier", []) if c.startswith("License :: ")]
    return [text for text in (told["License-Expression"],) if text] or older or classified[:1]


def _normal(name: str) -> str:
    """A distribution's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
