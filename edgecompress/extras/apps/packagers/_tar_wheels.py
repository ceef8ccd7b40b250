"""The wheels of a board: fetched by pip for another machine than this, kept in the user's cache, never run here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import child_process, home
from edgecompress.core.errors import InputError, StageFailed, brief
from edgecompress.core.model import sha256_of

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card

OFFLINE = "EDGECOMPRESS_OFFLINE"  # set: nothing may be fetched
MACHINES = {"linux-aarch64": "aarch64", "linux-x86_64": "x86_64"}
# The versions of constraints.txt: what runs there is what was tried here. pip installs the rest from its own wheel.
PINS = {"numpy": "2.3.5", "pillow": "13.0.0", "pip": "26.3"}
GLIBC = range(5, 40)  # 2.x: pip takes the tag of a wheel literally
TAG = re.compile(r"manylinux_2_([0-9]+)_")
OLD_TAGS = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
VERSION = re.compile(r"[0-9][0-9A-Za-z.+]*")
PATIENCE = ("--timeout", "10", "--retries", "1")  # of pip, where nobody answers: its own are minutes
WAIT_S = 300  # for one wheel


def pinned(card: Card, opens_with: Sequence[str], image: bool) -> list[str]:
    """NAME==VERSION of all that the board needs: NumPy, the runtime as it verified the model, Pillow for pictures."""
    engine = card["runtime"]["version"]
    if opens_with and not VERSION.fullmatch(engine):
        raise InputError(f"packager 'tar': {opens_with[0]} {engine!r:.40}: a version that has no wheel; deploy again")
    needed = {
        "numpy": PINS["numpy"],
        **dict.fromkeys(opens_with, engine),
        **({"pillow": PINS["pillow"]} if image else {}),
    }
    return sorted(f"{name}=={version}" for name, version in needed.items())


def fetched(requirement: str, platform: str, python: str) -> Path:
    """The wheel of NAME==VERSION, from the cache or by pip. Raises InputError, StageFailed."""
    place = home.cache() / "wheels" / f"{platform}-{python}" / requirement
    if not (wheels := sorted(place.glob("*.whl"))):
        _fetch(requirement, platform, python, place)
        wheels = sorted(place.glob("*.whl"))
    return wheels[0]


def _fetch(requirement: str, platform: str, python: str, place: Path) -> None:
    """By pip into a folder beside, which is put in place by a rename."""
    if os.environ.get(OFFLINE):
        raise InputError(
            f"packager 'tar': no wheel of {requirement} in the cache, and --offline allows no downloads; package "
            "once without --offline, or with --set wheels=false"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as work:
        into = Path(work) / "found"
        into.mkdir()
        _pip(requirement, platform, python, into)
        try:
            into.rename(place)
        except OSError:  # another packager was faster
            if not place.is_dir():
                raise


def _pip(requirement: str, platform: str, python: str, into: Path) -> None:
    tags = [f"manylinux_2_{minor}_{MACHINES[platform]}" for minor in GLIBC]
    platforms = [word for tag in (*tags, f"manylinux2014_{MACHINES[platform]}") for word in ("--platform", tag)]
    how = ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms]
    quiet = ["-q", "--disable-pip-version-check", "--no-input", *PATIENCE]
    words = child_process.python("pip", "download", *quiet, *how, "--dest", str(into), requirement)
    wanted = f"{requirement} for {platform}, Python {python}"
    print(f"edgecompress: fetching the wheel of {wanted}; --set wheels=false needs no network", file=sys.stderr)
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT_S)
        errors = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.startswith("ERROR")]
        why = brief(errors[-1]) if errors else f"pip ended with code {done.returncode}"
    except subprocess.TimeoutExpired:
        why = f"it took more than {WAIT_S} s"
    if len(list(into.glob("*.whl"))) != 1:
        raise StageFailed(
            f"packager 'tar': no wheel of {wanted}: {why}; check the network, choose another --set python=, or package "
            "with --set wheels=false"
        )


def requirements(wheels: Mapping[str, Sequence[Path]]) -> str:
    """The lines of requirements.txt; a wheel for each Python has a hash."""
    lines = []
    for requirement, files in sorted(wheels.items()):
        hashes = sorted({f"--hash=sha256:{sha256_of(file)}" for file in files})
        lines.append(" ".join([requirement, *hashes]))
    return "".join(f"{line}\n" for line in lines)


def glibc(names: Sequence[str]) -> int:
    """The 2.x that every one of these wheels runs with: the lowest tag of each, the highest of all."""
    tags = ([*map(int, TAG.findall(name)), *(n for tag, n in OLD_TAGS.items() if tag in name)] for name in names)
    return max((min(minors) for minors in tags if minors), default=17)
