"""A Swift package for iOS and macOS: the model as a resource, a typed wrapper, a self-test and a benchmark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.package_contents import PAYLOAD, Contents, PackageCheck, is_packed
from edgecompress.extras.apps import checks as made
from edgecompress.extras.apps import packed_payload
from edgecompress.extras.apps.packagers import _ios_spec
from edgecompress.extras.apps.render import render

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card

REQUIRES: tuple[str, ...] = ("jinja2>=3.1", "cyclonedx-python-lib>=11")
EXTRA = "package"
SUFFIX = ".zip"
FORMATS: tuple[str, ...] = tuple(_ios_spec.ENGINES)
PRIVACY = "PrivacyInfo.xcprivacy"
CARRIED: tuple[str, ...] = ()
LARGEST = 4 << 20  # bytes of the manifest of a .mlpackage: ours have some kilobytes
SOURCES = (
    *("Benchmark", "Boxes", "Digest", "Engine", "Machine", "Numbers", "Packaged", "Picture", "Pixels", "Processing"),
    *("Resize", "Segments", "SelfTest", "Spectrogram"),
)


@dataclass(frozen=True)
class Options:
    """Versions of the runtimes' own Swift packages; empty: that which verified the model, or the newest known here.

    `packed`: the model in its packed form, which is unpacked once into the app's caches.
    """

    litert: str = ""  # the branch release/VERSION
    onnxruntime: str = ""  # a release of onnxruntime-swift-package-manager
    executorch: str = ""  # the branch swiftpm-VERSION
    packed: bool = False


def build(contents: Contents, root: Path) -> None:
    """The code, with the payload as its resources."""
    code(contents, root, root)
    shutil.copytree(contents.carried, root / "Sources" / _ios_spec.module(contents.names.camel) / "Resources")


def code(contents: Contents, root: Path, package: Path) -> None:
    """Package.swift, the wrapper, its tests, a benchmark and an example."""
    options: Options = contents.options or Options()
    values = {**_ios_spec.values(contents, vars(options)), "packed": options.packed}
    resources = [*(f"Resources/{name}" for name in PAYLOAD if (contents.payload / name).exists()), PRIVACY]
    camel, engine = _ios_spec.module(contents.names.camel), _ios_spec.ENGINES[contents.card["model"]["format"]].type
    module = f"Sources/{camel}"
    files = {
        "Package.swift": "Package.swift.j2",
        "README.md": "README.md.j2",
        f"{module}/{camel}Model.swift": "Model.swift.j2",
        f"{module}/ModelSpec.swift": "ModelSpec.swift.j2",
        f"{module}/{engine}.swift": f"engines/{engine}.swift",
        f"{module}/{PRIVACY}": f"sources/{PRIVACY}",
        "Sources/benchmark/main.swift": "main.swift.j2",
        f"Tests/{camel}Tests/{camel}Tests.swift": "Tests.swift.j2",
        "Examples/BenchmarkView.swift": "BenchmarkView.swift.j2",
        **{f"{module}/{name}.swift": f"sources/{name}.swift" for name in SOURCES},
        **(_unpacking(module) if options.packed else {}),
    }
    render("ios", root, {**values, "resources": resources}, files)


def _unpacking(module: str) -> dict[str, str]:
    """What unpacks a packed model, and the system's zlib as a module of its own."""
    return {
        f"{module}/Unpack.swift": "Unpack.swift.j2",
        f"{module}Zlib/module.modulemap": "module.modulemap.j2",
        f"{module}Zlib/shim.h": "sources/shim.h",
    }


def payload(root: Path, work: Path) -> Path:
    """The one folder of resources. Raises InputError for a package that has none, or several."""
    folders = sorted(p for p in root.glob("Sources/*/Resources") if p.is_dir())
    if len(folders) != 1:
        raise InputError(f"{root.name}: has {len(folders)} folders Sources/*/Resources, not one; pack it again")
    return folders[0]


def checks(root: Path, card: Card, work: Path) -> Iterator[PackageCheck]:
    """The items of a .mlpackage; the check `code` covers all that lies around the model."""
    if card["model"]["format"] != "mlpackage":
        return iter(())
    models = payload(root, work)
    if is_packed(card):
        packed_payload.opened(card, models, work / "unpacked")
        models = work / "unpacked"
    return made.made({"mlpackage items": lambda: _items(models / card["model"]["main"])})


def _items(package: Path) -> None:
    """What the manifest of a .mlpackage lists is there, and its root model is among it."""
    try:
        manifest = json.loads(made.text(package / "Manifest.json", LARGEST))
        entries, first = dict(manifest["itemInfoEntries"]), manifest["rootModelIdentifier"]
        paths = {key: str(entry["path"]) for key, entry in entries.items()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{package.name}/Manifest.json: damaged: {ascii(str(error))[1:80]}") from error
    if first not in paths:
        raise InputError(f"{package.name}/Manifest.json: its root model is not among its items")
    for path in paths.values():
        if ".." in PurePosixPath(path).parts or path.startswith("/"):
            raise InputError(f"{package.name}/Manifest.json names {path[:100]!a}, which points outside the package")
        if not (package / "Data" / path).exists():
            raise InputError(f"{package.name}/Manifest.json names {ascii(path)[:100]}, which is not there")
