"""bom.cdx.json: the bill of materials of a package, as CycloneDX 1.6: model, runtime, libraries, code, files, tools."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core.plugins import PackagerPlugin, described
from edgecompress.extras.apps import bom_files
from edgecompress.extras.apps.bom_files import component, file, licences, pypi

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

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

    model, runtime, libraries = _model(card), _runtime(card, module), list(bom_files.libraries(root))
    # What edgecompress itself put in: the runner and its agent, or the classes and pages.
    own = card["versions"].get(TOOL)
    code = component("library", TOOL, "code", own, pypi(TOOL, own))
    code.licenses.update(licences([LICENCE]))
    package = component("application", f"{card['slug']}-{card['packager']}", "package", card["version"])
    package.components.update(bom_files.files(root, but=FILE))
    digests = [digest for part in package.components for digest in (part.name, next(iter(part.hashes)).content)]
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([card, sorted(digests)], sort_keys=True)))
    bom.metadata.timestamp = datetime.fromisoformat(card["created"])
    bom.metadata.component = package
    for name, version in sorted(card["versions"].items()):  # what made it
        kind = "application" if name == TOOL else "library"
        bom.metadata.tools.components.add(component(kind, name, f"tool:{name}", version, pypi(name.lower(), version)))
    bom.components.update([model, runtime, code, *libraries])
    bom.register_dependency(package, [model, runtime, code])
    bom.register_dependency(model, [runtime])
    bom.register_dependency(code, libraries)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _model(card: Card) -> Component:
    """The model with the hash of its file, or each of its files with its own; the labels count to it."""
    files = card["model"]["files"]
    model = component("machine-learning-model", card["name"], "model", card["version"])
    model.description = card["description"] or None
    model.licenses.update(licences([card["licence"]]))
    if len(files) == 1:
        model.hashes.add(bom_files.sha256(files[0]["sha256"]))
    else:
        model.components.update(file(each["path"], each["sha256"], "model") for each in files)
    return model


def _runtime(card: Card, module: ModuleType) -> Component:
    from packageurl import PackageURL

    named = purl_of(card) if (purl_of := described(PackagerPlugin, "", module).purl) else ""
    version = card["runtime"]["version"] or None
    if not named:
        return component("library", card["runtime"]["name"], "runtime", version)
    purl = PackageURL.from_string(named)
    return component("library", purl.name, "runtime", purl.version or version, purl)
