"""Packs a shipped folder into one file: payload, packager's files, bill of materials, SHA256SUMS."""

from __future__ import annotations

import dataclasses
import shutil
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core import atomic_file, config, registry, work_folder
from edgecompress.core.errors import InputError, StageFailed, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.model import sha256_of
from edgecompress.core.package_contents import CARD, Contents, artifact, is_packed
from edgecompress.core.package_names import names
from edgecompress.extras.apps import archive, bom, model_card, packed_payload
from edgecompress.extras.apps.model_card import Common, Shipped
from edgecompress.formats import packed_file, stored_tensors

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from edgecompress.core.model_card import Card

SUMS = "SHA256SUMS"  # sorted lines "sha256  path", of every other file of the package


def pack(shipped: Shipped, packager: str, place: Path, settings: Mapping[str, Json] | None = None) -> Card:
    """Writes the package to `place`, all of it or nothing; returns its card.

    `settings`: "name", "version" and the packager's own options, texts as after --set.
    Raises InputError, MissingDependency; StageFailed where it cannot be written: no room, no folder.
    """
    try:
        return _packed(shipped, packager, place, settings or {})
    except OSError as error:
        raise StageFailed(
            f"{place}: cannot be written: {error.strerror or error}; free some space, or give another --out"
        ) from error


def _packed(shipped: Shipped, packager: str, place: Path, settings: Mapping[str, Json]) -> Card:
    module = registry.load("packagers", packager)
    check_format(packager, module, shipped.artifact.kind)
    common, options = _options(module, settings, packager)
    with work_folder.folder(place) as work:
        tree = work / "tree"
        contents = packed_model(payload(shipped, packager, common, work / "payload", options), work / "packed")
        root = tree / f"{contents.names.slug}-{packager}"
        root.mkdir(parents=True)
        module.build(contents, root)
        seal(root, contents, module)
        archive.write(tree, work / "package", module.SUFFIX)
        atomic_file.sync(work / "package")
        (work / "package").replace(place)
        atomic_file.sync(place.parent)
    return contents.card


def payload(
    shipped: Shipped, packager: str, common: Common, folder: Path, options: DataclassInstance | None = None
) -> Contents:
    """The input of a packager, created in `folder`, which must not exist."""
    folder.mkdir(parents=True)
    return contents(model_card.build(shipped, packager, common, folder, options), folder, options)


def packed_model(contents: Contents, folder: Path) -> Contents:
    """With the files of the model packed in `folder`, where the options ask for that. Raises MissingDependency."""
    card = contents.card
    if not is_packed(card):
        return contents
    shutil.copytree(contents.payload, folder)
    tensors = list(stored_tensors.of(artifact(card, contents.payload)))
    for told in card["model"]["files"]:
        file = folder / told["path"]
        packed_payload.packed(file).write_bytes(packed_file.pack(file.read_bytes(), tensors))
        file.unlink()
    return dataclasses.replace(contents, packed=folder)


def contents(card: Card, folder: Path, options: DataclassInstance | None) -> Contents:
    """The input of a packager, from a card and the folder of its payload."""
    return Contents(card, names(card["name"]), folder, options, tuple(card["packaged"]["platforms"]))


def seal(root: Path, contents: Contents, module: ModuleType) -> None:
    """Adds to what the packager built: the card, the bill of materials, and the sums of all files."""
    if not (root / "README.md").is_file():
        raise InputError(f"packager '{contents.card['packager']}' wrote no README.md")
    shutil.copyfile(contents.payload / CARD, root / CARD)
    (root / bom.FILE).write_text(bom.text(contents.card, module, root), encoding="utf-8")
    (root / SUMS).write_text(sums(root), encoding="utf-8")


def sums(root: Path) -> str:
    """The lines of SHA256SUMS, as sha256sum writes and checks them."""
    files = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    return "".join(f"{sha256_of(file)}  {name}\n" for name, file in sorted(files.items()) if name != SUMS)


def check_format(packager: str, module: ModuleType, kind: str) -> None:
    """Raises InputError, with those that do, where a packager does not take this format."""
    if module.FORMATS and kind not in module.FORMATS:
        others = [name for name, other in registry.every("packagers") if not other.FORMATS or kind in other.FORMATS]
        raise InputError(
            f"packager '{packager}' takes {', '.join(module.FORMATS)}, not {kind}; {kind} is packed with --as "
            f"{' or '.join(others)}"
        )


def _options(module: ModuleType, settings: Mapping[str, Json], packager: str) -> tuple[Common, DataclassInstance]:
    """The settings that every packager has, and its own."""
    own = {f.name for f in dataclasses.fields(module.Options)}
    shared = {f.name for f in dataclasses.fields(Common)}
    for key in settings:
        if key not in own | shared:
            raise InputError(f"packager '{packager}': no option '{key}'{did_you_mean(key, own | shared)}")
    common = config.build(Common, _typed(Common, settings, shared), "--set")
    return common, config.build(module.Options, _typed(module.Options, settings, own), "--set")


def _typed(cls: type, settings: Mapping[str, Json], names: Collection[str]) -> dict[str, Json]:
    """Those settings; a text stays one where a text is wanted (version 1.10 is no number), else it is read as TOML."""
    hints = typing.get_type_hints(cls)
    texts = {name for name, hint in hints.items() if hint is str or str in typing.get_args(hint)}
    chosen = {name: value for name, value in settings.items() if name in names}
    return {n: config.from_text(v) if isinstance(v, str) and n not in texts else v for n, v in chosen.items()}
