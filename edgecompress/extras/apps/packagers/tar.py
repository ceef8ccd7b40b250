"""A tar for Linux boards: the model, one file that runs it, its wheels, a script that installs, a service that serves.

options: `platform` (linux-aarch64, linux-x86_64; empty: the target's), `python` ("3.11", or several: "3.11,3.13"),
`wheels` (false: a small package, pinned by version alone; the board fetches them), `port` of the service, `packed`
(the model's files packed, unpacked when it is installed).
"""

from __future__ import annotations

import fnmatch
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import CheckFailed, InputError
from edgecompress.core.model import sha256_of
from edgecompress.core.package_contents import CARD, Contents, PackageCheck, settings
from edgecompress.extras.apps import checks as made
from edgecompress.extras.apps.board_runner import bundled
from edgecompress.extras.apps.board_runner.predictor import PAYLOAD
from edgecompress.extras.apps.packagers import _tar_wheels
from edgecompress.extras.apps.render import render

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card

REQUIRES: tuple[str, ...] = ("jinja2>=3.1", "cyclonedx-python-lib>=11")
EXTRA = "package"
SUFFIX = ".tar.gz"
FORMATS: tuple[str, ...] = ()  # any; what no board's wheel runs comes without a runner, and the README says so
WHEELS = "wheels"
CARRIED = (f"{WHEELS}/*", "requirements.txt")
PIN = re.compile(r"([A-Za-z0-9._-]+)==([0-9][0-9A-Za-z.+]*)((?: --hash=sha256:[0-9a-f]{64})*)")
PYTHON = re.compile(r"3\.[1-9][0-9]")
PORTS = range(1024, 65536)  # those that need no root
MEMORY_MIB, TIMES = 512, 8  # what the service may take: so much, and so many times the model
STEP_MIB = 64


@dataclass(frozen=True)
class Options:
    """The board, and what the package contains."""

    platform: str = ""
    python: str = "3.11"
    wheels: bool = True
    port: int = 8000
    packed: bool = False

    def __post_init__(self) -> None:
        if self.platform and self.platform not in _tar_wheels.MACHINES:
            raise ValueError(f"platform '{self.platform}': must be one of {', '.join(_tar_wheels.MACHINES)}")
        if bad := [version for version in self.pythons if not PYTHON.fullmatch(version)]:
            raise ValueError(f"python '{bad[0]}': write 3.11, or several as 3.11,3.13")
        if self.port not in PORTS:
            raise ValueError(f"port {self.port}: {PORTS.start} to {PORTS.stop - 1}")

    @property
    def pythons(self) -> list[str]:
        """Each minor version, in order, once."""
        return sorted({version.strip() for version in self.python.split(",")})


def build(contents: Contents, root: Path) -> None:
    """The payload; where a board's wheel runs it, its wheels, and the code."""
    options: Options = contents.options or Options()
    shutil.copytree(contents.carried, root / PAYLOAD)
    needed = bundled.opens_with(contents.card["runtime"]["name"])
    if needed is not None:
        pins = _tar_wheels.pinned(contents.card, needed, _pictured(contents.card))
        _put_wheels(root, pins, _platform(contents, options), options)
    code(contents, root, root)


def code(contents: Contents, root: Path, package: Path) -> None:
    """The runner and all that installs it, for the wheels in `package`; for what no board's wheel runs, a README."""
    options: Options = contents.options or Options()
    runtime = contents.card["runtime"]["name"]
    if bundled.opens_with(runtime) is None:
        bare = {"card": contents.card, "settings": settings(contents.card)}
        render("tar", root, bare, {"README.md": "README-bare.md.j2"})
        return
    bundled.write(root / "run.pyz", runtime, (contents.payload / CARD).read_bytes())
    model = sum(file["bytes"] for file in contents.card["model"]["files"])
    values = {
        "card": contents.card,
        "settings": settings(contents.card),
        "slug": contents.names.slug,
        "machine": _tar_wheels.MACHINES[_platform(contents, options)],
        "pythons": options.pythons,
        "glibc": _tar_wheels.glibc([file.name for file in package.glob(f"{WHEELS}/*.whl")]),
        "wheels": options.wheels,
        "pip": _tar_wheels.PINS["pip"],
        "port": options.port,
        "memory": -(-(MEMORY_MIB + TIMES * model // 2**20) // STEP_MIB) * STEP_MIB,
        "picture": _pictured(contents.card),
    }
    service = f"{contents.names.slug}.service"
    files = {"README.md": "README.md.j2", "install.sh": "install.sh.j2", "run": "run", service: "service.j2"}
    render("tar", root, values, files)
    for name in ("install.sh", "run"):
        (root / name).chmod(0o755)


def _pictured(card: Card) -> bool:
    """Whether it takes pictures, which a board then opens."""
    return card["preprocess"] is not None and not card["preprocess"]["spectrogram"]


def _platform(contents: Contents, options: Options) -> str:
    """The one asked for, else the first that the target is for. Raises InputError for a target of other machines."""
    patterns = contents.platforms or ("*",)
    platforms = [p for p in _tar_wheels.MACHINES if any(fnmatch.fnmatchcase(p, pattern) for pattern in patterns)]
    if not options.platform and not platforms:
        raise InputError(
            f"packager 'tar': the target is for {', '.join(patterns)}; for a Linux board --set platform=linux-aarch64"
        )
    return options.platform or platforms[0]


def _put_wheels(root: Path, pins: list[str], platform: str, options: Options) -> None:
    """requirements.txt and, unless the package is to be small, the wheels."""
    if not options.wheels:
        (root / "requirements.txt").write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
        return
    wheels = {pin: [_tar_wheels.fetched(pin, platform, python) for python in options.pythons] for pin in pins}
    pip = _tar_wheels.fetched(f"pip=={_tar_wheels.PINS['pip']}", platform, options.pythons[0])
    (root / WHEELS).mkdir()
    for file in {file for files in (*wheels.values(), [pip]) for file in files}:
        shutil.copyfile(file, root / WHEELS / file.name)
    (root / "requirements.txt").write_text(_tar_wheels.requirements(wheels), encoding="utf-8")


def payload(root: Path, work: Path) -> Path:
    """It lies as it is."""
    return root / PAYLOAD


def purl(card: Card) -> str:
    """The engine as the bill of materials names it; nothing where none is installed on boards."""
    needed, version = bundled.opens_with(card["runtime"]["name"]), card["runtime"]["version"]
    return f"pkg:pypi/{needed[0]}@{version}" if needed and version else ""


def checks(root: Path, card: Card, work: Path) -> Iterator[PackageCheck]:
    """The requirements and their wheels; the check `code` covers the runner, the scripts and the service."""
    if not (root / "run.pyz").is_file():
        why = "the package has none: no wheel for boards runs this format"
        yield PackageCheck("runner", "skipped", why)
        return
    yield from made.made({"requirements": lambda: _requirements(root)})
    yield PackageCheck("installation", "skipped", "the self-test runs on the board, at the end of install.sh")


def _requirements(root: Path) -> None:
    """Each line is pinned, each wheel inside has its hash there, and each line its wheel."""
    lines = (root / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [match for line in lines if (match := PIN.fullmatch(line))]
    if len(pins) != len(lines) or not pins:
        raise CheckFailed("requirements.txt: a line is not NAME==VERSION with its hashes")
    if not (root / "wheels").is_dir():
        raise made.NotChecked("the package contains no wheels: the board downloads them")
    hashes = {digest: pin[1] for pin in pins for digest in re.findall("sha256:([0-9a-f]{64})", pin[3])}
    files = {sha256_of(file): file.name for file in sorted((root / "wheels").iterdir())}
    strange = [name for digest, name in files.items() if digest not in hashes and not name.startswith("pip-")]
    if strange:
        raise CheckFailed(f"wheels/{strange[0]}: its sha256 is not in requirements.txt")
    if missing := [name for digest, name in hashes.items() if digest not in files]:
        raise CheckFailed(f"wheels: the wheel of {missing[0]} is missing or changed")
    if bare := [pin[1] for pin in pins if not pin[3]]:
        raise CheckFailed(f"requirements.txt: {bare[0]} has no hash")
