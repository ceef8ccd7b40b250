"""A matrix: models x targets x devices x profiles, less what is excluded, and what is included beside; cell by cell."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from edgecompress.core import catalog, config
from edgecompress.core.errors import ConfigError, InputError, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.settings import is_factory
from edgecompress.pipeline.job import facts_of, runs_on
from edgecompress.pipeline.job_request import JobRequest

MOST = 10_000  # cells
PLACE = "/"  # between the parts of a cell's name, which is also the folder that it ships into


@dataclass(frozen=True)
class MatrixSource:
    """A model, as `deploy` takes it; `name` is what its cells are called by, else the stem of its file or factory."""

    model: str
    name: str = ""
    data: str | None = None
    metric: str | None = None
    samples: int | None = None


@dataclass(frozen=True)
class Pattern:
    """Which cells: names with * and ?, of what is left out any."""

    source: str = "*"
    target: str = "*"
    device: str = "*"
    profile: str = "*"

    def has(self, cell: Cell) -> bool:
        """Whether a cell is one of them."""
        wanted = (self.source, self.target, self.device, self.profile)
        return all(fnmatchcase(part, pattern) for part, pattern in zip(cell.parts, wanted, strict=True))


@dataclass(frozen=True)
class Extra:
    """A cell beside the product of the lists. A device that is left out is the target's own."""

    source: str
    target: str
    device: str = ""
    profile: str = ""


@dataclass(frozen=True)
class Matrix:
    """The content of a MATRIX.toml."""

    source: tuple[MatrixSource, ...]
    targets: tuple[str, ...]
    devices: tuple[str, ...] | None = None  # left out: each target's own
    profiles: tuple[str, ...] = ("standard",)
    only: tuple[str, ...] | None = None  # variants
    settings: Mapping[str, Any] = field(default_factory=dict)  # "limits.items_lost" = 2, as --set
    include: tuple[Extra, ...] = ()
    exclude: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        for name in ("source", "targets", "profiles"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; give at least one")
        for name in ("devices", "only"):
            if getattr(self, name) == ():
                raise ValueError(f"{name} is empty; leave it out, or give at least one")


@dataclass(frozen=True)
class Cell:
    """One deploy: a source, a target, a device and a profile by their names, and what `job` is asked."""

    source: str
    target: str
    device: str
    profile: str
    request: JobRequest

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """Source, target, device, profile."""
        return self.source, self.target, self.device, self.profile

    @property
    def name(self) -> str:
        """`resnet/arm64/rpi5/quick`."""
        return PLACE.join(self.parts)


class Row(TypedDict):
    """A cell: its state ("waiting", "running", or shipped, undecided, lost, refused, failed), and its numbers.

    `numbers`: of what shipped, by metric, {"value", "unit", "text"}; `loss`: of the metric, in its own unit; `saved_s`:
    seconds of stages that another cell of this sweep had done.
    """

    cell: str
    source: str
    target: str
    device: str
    profile: str
    state: str
    exit_code: int | None
    says: str
    report: str  # relative to the matrix, "" where there is none
    variant: str
    numbers: dict[str, dict[str, Json]]
    loss: float | None
    wall_s: float
    saved_s: float


def read(file: Path) -> tuple[list[Cell], list[str]]:
    """The cells of a MATRIX.toml, and which combinations are none, with the reason.

    Models and data that are files are relative to the TOML's folder. Raises InputError (ConfigError, NotFound).
    """
    matrix = config.build(Matrix, config.read_toml(file), str(file))
    sources = _named(matrix, file)
    asked: dict[tuple[str, str, str, str], Cell] = {}
    left, unused = list[str](), set(matrix.exclude)
    product = itertools.product(sources, matrix.targets, matrix.devices or ("",), matrix.profiles)
    if len(sources) * len(matrix.targets) * len(matrix.devices or "-") * len(matrix.profiles) > MOST:
        raise ConfigError(f"{file}: more than {MOST} cells; split the matrix")
    for name, target, device, profile in product:
        cell = _cell(sources[name], name, target, device, profile, matrix)
        fitting = {pattern for pattern in matrix.exclude if pattern.has(cell)}
        unused -= fitting
        if fitting:
            continue
        if device and (why := _unlike(target, device)):
            left += [why] if why not in left else []
        else:
            asked[cell.parts] = cell
    if unused:
        raise ConfigError(f"{file}: exclude: {PLACE.join(astuple(unused.pop()))} fits no cell; correct or remove it")
    for more in matrix.include:
        if more.source not in sources:
            raise ConfigError(f"{file}: include: no source '{more.source}'{did_you_mean(more.source, sources)}")
        cell = _cell(
            sources[more.source], more.source, more.target, more.device, more.profile or matrix.profiles[0], matrix
        )
        asked[cell.parts] = cell
    if not asked:
        raise ConfigError(f"{file}: no cell is left: {'; '.join(left) or 'exclude matches them all'}")
    return [*asked.values()], left


def _named(matrix: Matrix, file: Path) -> dict[str, MatrixSource]:
    """The sources by names that are theirs alone, with files as seen from here."""
    found: dict[str, MatrixSource] = {}
    for given in matrix.source:
        stem = given.model.rpartition(":")[2] if is_factory(given.model) else Path(given.model).stem
        name = given.name or stem
        if not name or name in (".", "..") or any(sign in name for sign in "/\\*?["):
            raise ConfigError(f"{file}: source: '{name}' is no name; give one of letters, digits, - and _")
        if name in found:
            raise ConfigError(f"{file}: source: two are called '{name}'; give each a name of its own")
        found[name] = MatrixSource(
            _seen(given.model, file), name, given.data and _seen(given.data, file), given.metric, given.samples
        )
    return found


def _seen(given: str, file: Path) -> str:
    """A file as seen from here; a factory, or a word such as `random`, as it is."""
    there = file.parent / given
    return str(there) if not is_factory(given) and there.exists() else given


def _unlike(target: str, device: str) -> str:
    """Why a target does not run on a device, as far as its file tells, or ""."""
    wanted, place = catalog.target(target), catalog.device(device).value
    platform = place.platform or (_platform() if place.transport == "host" else "")
    if not platform or runs_on(wanted, platform):
        return ""
    built = "; without devices it is built, and measured nowhere" if wanted.value.device == Path(device).stem else ""
    return f"{wanted.name} does not run on {Path(device).stem} ({platform}){built}"


@cache
def _platform() -> str:
    """That of this machine."""
    return str(facts_of("host", {"transport": "host"}).get("platform", ""))


def _cell(source: MatrixSource, name: str, target: str, device: str, profile: str, matrix: Matrix) -> Cell:
    request = JobRequest(model=source.model, target=target, profile=profile, settings=dict(matrix.settings))
    for key in ("data", "metric", "samples"):
        if (value := getattr(source, key)) is not None:
            request[key] = value
    if matrix.only:
        request["only"] = matrix.only
    if device:
        request["device"] = device
    own = device or catalog.target(target).value.device
    return Cell(name, Path(target).stem, Path(own).stem, Path(profile).stem, request)


def named(cells: list[Cell], patterns: list[str]) -> list[Cell]:
    """The cells whose names fit one of the patterns, all of them without patterns. Raises InputError for none."""
    found = [cell for cell in cells if not patterns or any(fnmatchcase(cell.name, pattern) for pattern in patterns)]
    if not found:
        raise InputError(f"--cells {','.join(patterns)}: no cell is called so; `--dry-run` lists them")
    return found
