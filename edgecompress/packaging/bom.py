"""bom.cdx.json: the bill of materials of a package, as CycloneDX 1.6: the model, its runtime, the tools."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgecompress.core.plugins import PackagerPlugin, described
from edgecompress.packaging.contents import Card

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

FILE = "bom.cdx.json"
TOOL = "edgecompress"


def text(card: Card, module: ModuleType) -> str:
    """The bill of materials of a package that `module` built; the same for the same card.

    The packager may name the runtime as its users install it: `purl(card) -> str`, "pkg:maven/...". Without it the
    runtime has its name and version alone.
    """
    from cyclonedx.model.bom import Bom
    from cyclonedx.output.json import JsonV1Dot6

    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(card, sort_keys=True)))
    model, runtime = _model(card), _runtime(card, module)
    bom.metadata.timestamp = _moment(str(card["created"]))
    bom.metadata.component = package = _package(card)
    bom.metadata.tools.components.update(_tools(card))
    bom.components.update([model, runtime])
    bom.register_dependency(package, [model, runtime])
    bom.register_dependency(model, [runtime])
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _moment(written: str) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(written)


def _package(card: Card) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    name = f"{card['slug']}-{card['packager']}"
    return Component(type=ComponentType.APPLICATION, name=name, version=card["version"], bom_ref="package")


def _model(card: Card) -> Component:
    """The model with the hash of its file, or each of its files with its own; the labels count to it."""
    from cyclonedx.model.component import Component, ComponentType

    files = card["model"]["files"]
    alone = [_sha256(files[0]["sha256"])] if len(files) == 1 else []
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=card["name"],
        version=card["version"],
        description=card["description"] or None,
        bom_ref="model",
        hashes=alone,
        licenses=list(_licences(card)),
        components=[] if alone else [_file(file) for file in files],
    )


def _file(file: Any) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    name = file["path"]
    return Component(type=ComponentType.FILE, name=name, bom_ref=f"file:{name}", hashes=[_sha256(file["sha256"])])


def _sha256(digest: str) -> Any:
    from cyclonedx.model import HashAlgorithm, HashType

    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def _licences(card: Card) -> Iterator[Any]:
    """The licence as SPDX where it is such an expression, else by what its author calls it."""
    from cyclonedx.contrib.license.factories import LicenseFactory

    if card["licence"]:
        yield LicenseFactory().make_from_string(card["licence"])


def _runtime(card: Card, module: ModuleType) -> Component:
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    named = purl_of(card) if (purl_of := described(PackagerPlugin, "", module).purl) else ""
    purl = PackageURL.from_string(named) if named else None
    name = purl.name if purl else card["runtime"]["name"]
    version = (purl.version if purl else None) or card["runtime"]["version"] or None
    group = purl.namespace if purl else None
    return Component(type=ComponentType.LIBRARY, name=name, group=group, version=version, purl=purl, bom_ref="runtime")


def _tools(card: Card) -> Iterator[Component]:
    """The packages that made it, with the versions that the report tells."""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    for name, version in sorted(card["versions"].items()):
        purl = PackageURL("pypi", name=name.lower(), version=version)
        kind = ComponentType.APPLICATION if name == TOOL else ComponentType.LIBRARY
        yield Component(type=kind, name=name, version=version, purl=purl, bom_ref=f"tool:{name}")
