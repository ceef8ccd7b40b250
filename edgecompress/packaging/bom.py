"""bom.cdx.json: the bill of materials of a package, as CycloneDX 1.6: model, runtime, libraries, code, files, tools."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core.plugins import PackagerPlugin, described
from edgecompress.packaging import bom_files

if TYPE_CHECKING:
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License

    from edgecompress.core.model_card import Card

FILE = "bom.cdx.json"
TOOL = "edgecompress"
LICENCE = "Apache-2.0"  # of what it puts into packages


def text(card: Card, module: ModuleType, root: Path) -> str:
    """The bill of materials of a package that `module` built in `root`; the same for the same card and files.

    The packager may name the runtime as its users install it: `purl(card) -> str`, "pkg:maven/...". Without it the
    runtime has its name and version alone.
    """
    from cyclonedx.model.bom import Bom
    from cyclonedx.output.json import JsonV1Dot6

    model, runtime, code = _model(card), _runtime(card, module), _code(card)
    libraries, package = list(bom_files.libraries(root)), _package(card)
    package.components.update(bom_files.files(root, but=FILE))
    digests = [digest for part in package.components for digest in (part.name, next(iter(part.hashes)).content)]
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([card, sorted(digests)], sort_keys=True)))
    bom.metadata.timestamp = datetime.fromisoformat(card["created"])
    bom.metadata.component = package
    bom.metadata.tools.components.update(_tools(card))
    bom.components.update([model, runtime, code, *libraries])
    bom.register_dependency(package, [model, runtime, code])
    bom.register_dependency(model, [runtime])
    bom.register_dependency(code, libraries)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _package(card: Card) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    name = f"{card['slug']}-{card['packager']}"
    return Component(type=ComponentType.APPLICATION, name=name, version=card["version"], bom_ref="package")


def _code(card: Card) -> Component:
    """What edgecompress itself put in: the runner and its agent, or the classes and pages."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    version = card["versions"].get(TOOL)
    return Component(
        type=ComponentType.LIBRARY,
        name=TOOL,
        version=version,
        purl=PackageURL("pypi", name=TOOL, version=version),
        licenses=[LicenseFactory().make_from_string(LICENCE)],
        bom_ref="code",
    )


def _model(card: Card) -> Component:
    """The model with the hash of its file, or each of its files with its own; the labels count to it."""
    from cyclonedx.model.component import Component, ComponentType

    files = card["model"]["files"]
    alone = [bom_files.sha256(files[0]["sha256"])] if len(files) == 1 else []
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=card["name"],
        version=card["version"],
        description=card["description"] or None,
        bom_ref="model",
        hashes=alone,
        licenses=list(_licences(card)),
        components=[] if alone else [bom_files.file(file["path"], file["sha256"], "model") for file in files],
    )


def _licences(card: Card) -> Iterator[License]:
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
