"""What a board package has to keep: its scripts parse, its constants are the card's, its wheels are those it pins."""

from __future__ import annotations

import re
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import CheckFailed
from edgecompress.core.model import sha256_of
from edgecompress.core.package_contents import CARD, PackageCheck
from edgecompress.extras.apps import archive, checks
from edgecompress.extras.apps import model_card as cards
from edgecompress.extras.apps.board_runner import bundled
from edgecompress.extras.apps.checks import NotChecked

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card

# What the service must not be without.
HARDENED = {
    "DynamicUser": "yes",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "CapabilityBoundingSet": "",
    "RestrictSUIDSGID": "yes",
    "SystemCallFilter": "@system-service",
    "IPAddressDeny": "any",
}
LINE = re.compile(r"([A-Za-z0-9._-]+)==([0-9][0-9A-Za-z.+]*)((?: --hash=sha256:[0-9a-f]{64})*)")
PARSE_S = 10
SCRIPTS = ("install.sh", "run")


def every(root: Path, card: Card, work: Path) -> Iterator[PackageCheck]:
    """Each check; one that cannot be done fails."""
    return checks.made(
        {
            "scripts": lambda: _scripts(root),
            "runner": lambda: _runner(root, card, work / "runner"),
            "service": lambda: _service(root, card),
            "requirements": lambda: _requirements(root),
            "installation": _installation,
        }
    )


def _scripts(root: Path) -> None:
    """A shell reads them, and runs nothing."""
    for name in SCRIPTS:
        text = (root / name).read_bytes()
        done = subprocess.run(["sh", "-n"], input=text, capture_output=True, timeout=PARSE_S)
        if not text.startswith(b"#!/bin/sh\n") or done.returncode:
            raise CheckFailed(f"{name} is not a valid shell script: {done.stderr[:100].decode(errors='replace')}")


def _runner(root: Path, card: Card, opened: Path) -> None:
    """Its modules compile, uncalled; the card inside is the one beside."""
    opened.mkdir()
    archive.unpack(root / "run.pyz", opened)
    for file in sorted(opened.rglob("*.py")):
        try:
            with warnings.catch_warnings(action="ignore"):  # they would quote a stranger
                compile(file.read_bytes(), file.name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise CheckFailed(f"run.pyz: {file.relative_to(opened)}: {error}") from error
    cards_inside = [opened / name for name in bundled.CARDS if (opened / name).is_file()]
    if not (opened / "__main__.py").is_file() or len(cards_inside) != 1:
        raise CheckFailed("run.pyz: contains no runner with a compiled-in card")
    inside = cards_inside[0]
    if inside.read_bytes() != (root / CARD).read_bytes() or cards.read(inside) != card:
        raise CheckFailed(f"run.pyz: the compiled-in card differs from {CARD}")


def _service(root: Path, card: Card) -> None:
    """It has what keeps a service in, runs as nobody, and starts the runner alone."""
    settings: dict[str, list[str]] = {}
    for line in (root / f"{card['slug']}.service").read_text(encoding="utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            settings.setdefault(key.strip(), []).append(value.strip())
    for key, value in HARDENED.items():
        if settings.get(key) != [value]:
            raise CheckFailed(f"{key} is {settings.get(key)}, not {value or 'empty'!r}")
    if "User" in settings or "AmbientCapabilities" in settings or "MemoryMax" not in settings:
        raise CheckFailed("User= or AmbientCapabilities= is set, or MemoryMax= is not")
    begin = f"/opt/{card['slug']}/"
    starts = [value for key, values in settings.items() if key.startswith("Exec") for value in values]
    if len(starts) != 1 or not re.fullmatch(rf"{re.escape(begin)}run serve --port [0-9]+", starts[0]):
        raise CheckFailed(f"it starts {starts}, not {begin}run serve")


def _requirements(root: Path) -> None:
    """Each line is pinned, each wheel inside has its hash there, and each line its wheel."""
    lines = (root / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [match for line in lines if (match := LINE.fullmatch(line))]
    if len(pins) != len(lines) or not pins:
        raise CheckFailed("requirements.txt: a line is not NAME==VERSION with its hashes")
    if not (root / "wheels").is_dir():
        raise NotChecked("the package contains no wheels: the board downloads them")
    hashes = {digest: pin[1] for pin in pins for digest in re.findall("sha256:([0-9a-f]{64})", pin[3])}
    files = {sha256_of(file): file.name for file in sorted((root / "wheels").iterdir())}
    strange = [name for digest, name in files.items() if digest not in hashes and not name.startswith("pip-")]
    if strange:
        raise CheckFailed(f"wheels/{strange[0]}: its sha256 is not in requirements.txt")
    if missing := [name for digest, name in hashes.items() if digest not in files]:
        raise CheckFailed(f"wheels: the wheel of {missing[0]} is missing or changed")
    if bare := [pin[1] for pin in pins if not pin[3]]:
        raise CheckFailed(f"requirements.txt: {bare[0]} has no hash")


def _installation() -> None:
    raise NotChecked(f"the self-test runs on the board, at the end of {SCRIPTS[0]}")
