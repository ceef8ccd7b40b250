"""`edgecompress package`: wraps a shipped artifact for an app."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgecompress.commands.shipped_folder import folder_named, runtime_of, shipped
from edgecompress.core import environments, output_place, registry
from edgecompress.core.errors import InputError, edge_errors
from edgecompress.core.json import Json
from edgecompress.extras.apps.model_card import Shipped
from edgecompress.pipeline import shipping
from edgecompress.pipeline.job_request import Name
from edgecompress.reporting import read


@dataclass(frozen=True)
class Packaged:
    """A package's file, what it says nothing of for the source does not, and what an app store says of its size."""

    file: Path
    left_out: list[str]
    warning: str


@edge_errors
def package(
    path: Name,
    packager: str = "",
    out: Name | None = None,
    settings: Mapping[str, Json] | None = None,
    sign: Name | None = None,
) -> Path:
    """Packages a shipped artifact for an app; returns the file (by default beside the folder). Raises EdgeError.

    `packager`: empty, the target's. `settings`: "name", "version", and the packager's own options. `sign`: a secret
    key of minisign; the signature lies beside the package then.
    """
    return packaged(path, packager, out, settings, sign).file


def packaged(
    path: Name, packager: str, out: Name | None, settings: Mapping[str, Json] | None, sign: Name | None
) -> Packaged:
    """The same, with what the command says of it."""
    from edgecompress.extras.apps import download, pack, signing

    given = folder_named(path)
    shipped = _to_pack(given)
    packager = packager or str(shipped.report.target.get("package") or "tar")
    module = registry.load("packagers", packager)
    environments.require(module, f"packager '{packager}'")
    key = signing.secret(Path(sign)) if sign else None
    beside = given.resolve()
    said = beside.name.lower().split("-")[-1] == packager or packager in module.SUFFIX.split(".")
    name = beside.name if said else f"{beside.name}-{packager}"  # android.zip, not android-android.zip
    place = Path(out or beside.with_name(f"{name}{module.SUFFIX}")).resolve()
    output_place.check_file(place, "--out")
    card = pack.pack(shipped, packager, place, settings)
    if key is not None:
        signing.sign(place, key)
    warning = download.warning(packager, card["packaged"]["options"], place.stat().st_size)
    unlabelled = card["postprocess"]["task"] == "classify" and not card["labels"]["count"]
    untold = {"description": not card["description"], "labels": unlabelled, "licence": not card["licence"]}
    return Packaged(place, [key for key, lacks in untold.items() if lacks], warning)


def _to_pack(path: Path) -> Shipped:
    """What a package is made of; raises InputError for a folder that holds less than a deploy shipped."""
    artifact, excerpt, origin = shipped(path)
    if excerpt is None:
        raise InputError(f"{path}: contains no test items (excerpt); give the folder that a deploy wrote")
    report, place = read.report(artifact.path.parent), artifact.path.parent / "verdict"
    verdict = shipping.sound(place) if place.is_dir() else None
    return Shipped(artifact, excerpt, verdict, report, origin.variant, origin.runtime or runtime_of(artifact))
