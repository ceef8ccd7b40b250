"""What a package's benchmark measured on a device that only its owner reaches: read as a stranger's, kept by content.

The JSON is "edgecompress/measured/1" (measured.schema.json says the same as the classes here). In the folder that a
deploy wrote each one lies in `measured/`, named by its sha256: the same measurement twice is one file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgecompress.core import atomic_file, config, plain_file
from edgecompress.core.errors import ConfigError, InputError, blamed
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, sha256_of

SCHEMA = "edgecompress/measured/1"
FOLDER = "measured"  # beside report.json
LARGEST = 16 << 20  # bytes of a file
FEWEST, MOST = 20, 1_000_000  # latencies
LONGEST_NS = 86_400_000_000_000  # a day: no inference takes longer
TEXT = 500  # characters of a name, or of what a browser calls itself
THREADS = 4096
LINE = 300  # characters of a line about a stranger's file
GIVE = "give the JSON that a package's benchmark returned"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PLATFORM = re.compile(r"[a-z0-9]+-[a-z0-9_]+")
_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|\+00:00)")
_UNPRINTED = re.compile(r"[^\x20-\x7e\u00a1-\u1fff\u2070-\ud7ff]")  # in a line that a terminal is sent

Clock = Literal["System.nanoTime", "performance.now", "ContinuousClock", "time.perf_counter_ns"]


@dataclass(frozen=True)
class MeasuredModel:
    """Which model ran; `sha256` is over the files of its card (`digest`)."""

    name: str
    sha256: str

    def __post_init__(self) -> None:
        _texts(self)
        _holds(_SHA256.fullmatch(self.sha256), "sha256 is not 64 hexadecimal digits in lower case")


@dataclass(frozen=True)
class MeasuredRuntime:
    """The engine that ran it."""

    name: str
    version: str

    def __post_init__(self) -> None:
        _texts(self, but=("version",))


@dataclass(frozen=True)
class MeasuredDevice:
    """Where it ran, as the device tells of itself; what it does not tell is empty or null."""

    name: str
    platform: str
    os: str
    cpu: str
    cores: int | None
    browser: str | None = None

    def __post_init__(self) -> None:
        _texts(self, but=("os", "cpu", "browser"))
        _holds(_PLATFORM.fullmatch(self.platform), "platform is not like android-arm64 or web-x86_64")
        _holds(self.cores is None or 1 <= self.cores <= THREADS, f"cores is not 1 to {THREADS}, or null")


@dataclass(frozen=True)
class BenchmarkRun:
    """How it was asked, and when it began."""

    threads: int
    batch: int
    warmup: int
    started: str

    def __post_init__(self) -> None:
        _holds(1 <= self.threads <= THREADS, f"threads is {self.threads}, not 1 to {THREADS}")
        _holds(self.batch == 1, f"batch is {self.batch}; a package runs one item at a time: 1")
        _holds(0 <= self.warmup <= MOST, f"warmup is {self.warmup}, not 0 to {MOST}")
        _holds(_moment(self.started), "started is not a time in UTC: write it as 2026-11-22T14:03:05Z")


@dataclass(frozen=True)
class Measurement:
    """One run of a package's benchmark: each inference alone, in order, in nanoseconds."""

    schema: str
    model: MeasuredModel
    runtime: MeasuredRuntime
    device: MeasuredDevice
    run: BenchmarkRun
    self_test: Literal["pass", "fail"]
    latencies_ns: list  # type: ignore[type-arg]  # of int: config would be slow with a million
    clock: Clock
    clock_step_ns: int

    def __post_init__(self) -> None:
        _holds(1 <= self.clock_step_ns <= LONGEST_NS, f"clock_step_ns is {self.clock_step_ns}, not 1 or more")
        _latencies(self.latencies_ns, self.clock_step_ns)

    @property
    def canonical(self) -> bytes:
        """The same bytes however its JSON was written: what is kept, and what names it."""
        rest = dataclasses.asdict(dataclasses.replace(self, latencies_ns=[1] * FEWEST))
        fields = {**rest, "latencies_ns": list(self.latencies_ns)}
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() + b"\n"

    @property
    def name(self) -> str:
        """Twelve digits of its sha256."""
        return hashlib.sha256(self.canonical).hexdigest()[:12]

    @property
    def step_ns(self) -> int:
        """How far apart two readings of the clock are at least: as it says, or as the latencies betray."""
        seen = math.gcd(*self.latencies_ns) if len(set(self.latencies_ns)) > 1 else 1
        return max(self.clock_step_ns, seen)

    @property
    def session(self) -> tuple[object, ...]:
        """What two tellings of the same session share."""
        return self.model, self.runtime, self.device, self.run


def _holds(true: object, says: str) -> None:
    if not true:
        raise ValueError(says)


def _texts(of: object, but: Sequence[str] = ()) -> None:
    """Every text says something, but those that may be empty."""
    for name, value in vars(of).items():
        _holds(value or not isinstance(value, str) or name in but, f"{name} is empty")


def _moment(text: str) -> bool:
    try:
        return bool(_UTC.fullmatch(text) and datetime.datetime.fromisoformat(text))
    except ValueError:
        return False


def _latencies(latencies: Sequence[object], step_ns: int) -> None:
    _holds(FEWEST <= len(latencies) <= MOST, f"latencies_ns has {len(latencies)} values, not {FEWEST} to {MOST}")
    for i, value in enumerate(latencies):
        if type(value) is not int or not 0 < value <= LONGEST_NS:
            zero = f": the inference is shorter than the clock's step of {step_ns} ns" if value == 0 else ""
            raise ValueError(f"latencies_ns[{i}] is {_brief(value)}, not a positive whole number of nanoseconds{zero}")


# --------------------------------------------------------------------------- reading


def read(file: Path) -> Measurement:
    """The measurement in a stranger's file; raises InputError with one line that says what is wrong with it."""
    try:
        data = plain_file.read(file, LARGEST)
    except OSError as error:
        raise blamed(error)(f"{file}: cannot be read: {error.strerror}; {GIVE}") from error
    return parsed(data, str(file))


def parsed(data: bytes, where: str) -> Measurement:
    """The measurement that a text holds; raises InputError."""
    try:
        document = json.loads(data.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_sober)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not the JSON of a measurement: {_brief(str(error))}; {GIVE}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise InputError(f'{where}: its schema is {_brief(schema)}, not "{SCHEMA}"; {GIVE}')
    try:
        return config.build(Measurement, document, "")
    except ConfigError as error:
        raise InputError(f"{where}{_brief(str(error))}") from error


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number")


def _sober(pairs: list[tuple[str, Any]]) -> dict[str, Json]:
    """A table in which no key is there twice and no text is long."""
    table = dict(pairs)
    _holds(len(table) == len(pairs), "a key occurs twice")
    for key, value in pairs:
        longest = max(len(key), len(value) if isinstance(value, str) else 0)
        _holds(longest <= TEXT, f"{key[:TEXT]}: a text of {longest:,} characters, more than {TEXT}")
    return table


def _brief(value: object) -> str:
    """A stranger's words on one line that drives no terminal, cut where they are long."""
    text = value if isinstance(value, str) else "null" if value is None else repr(value)
    text = _UNPRINTED.sub(lambda match: f"\\u{ord(match[0]):04x}", text[: 2 * LINE])
    return text if len(text) <= LINE else f"{text[:LINE]}…"


# --------------------------------------------------------------------------- which model it is of


def digest(artifact: Artifact) -> str:
    """The sha256 over `path\\0sha256\\n` of each file that a package carries: what its benchmark answers."""
    here = {artifact.path / name for name in artifact.facts.get("here", ())}
    by_path = {f"model/{f.relative_to(artifact.path).as_posix()}": f for f in artifact.files() if f not in here}
    lines = (f"{path}\0{sha256_of(by_path[path])}\n" for path in sorted(by_path))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def held(measurement: Measurement, model: str, where: Path) -> Measurement:
    """The measurement, if it is of the model with this digest; raises InputError."""
    if measurement.model.sha256 != model:
        raise InputError(
            f"{where}: measured another model (sha256 {measurement.model.sha256[:12]}…, "
            f"what shipped here is {model[:12]}…); "
            "run the benchmark of a package made from this folder"
        )
    return measurement


# --------------------------------------------------------------------------- beside the report


def lock(folder: Path) -> str:
    """The name of the lock that whoever writes into the folder of a deploy holds."""
    return f"ship-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"


def keep(folder: Path, measurement: Measurement) -> Path:
    """Writes it into the folder's `measured/`, whole or not at all; what is there already stays. Raises InputError."""
    place = folder / FOLDER / f"{measurement.name}.json"
    if place.parent.is_symlink():
        raise InputError(f"{place.parent}: is a link, and what is added would go elsewhere; make it a folder")
    place.parent.mkdir(exist_ok=True)
    atomic_file.write(place, measurement.canonical)
    return place


def kept(folder: Path, model: str) -> list[Measurement]:
    """What was measured elsewhere of the model with this digest, in the order it was; raises InputError on damage."""
    measurements = [held(_sound(file), model, file) for file in files(folder)]
    return sorted(measurements, key=lambda m: (m.run.started, m.name))


def files(folder: Path) -> list[Path]:
    """What a folder's `measured/` holds."""
    return sorted((folder / FOLDER).glob("*.json"))


def _sound(file: Path) -> Measurement:
    if file.is_symlink() or (measurement := read(file)).name != file.stem:
        raise InputError(
            f"{file}: changed after it was added (its sha256 differs from its name); remove it and add it again"
        )
    return measurement


def carry(old: Path, new: Path, model: str) -> int:
    """Copies what was measured of the model with this digest to another folder; returns how many stay behind."""
    measurements = of_model(old, model)
    for measurement in measurements:
        keep(new, measurement)
    return len(files(old)) - len(measurements)


def of_model(folder: Path, model: str) -> list[Measurement]:
    """What a folder holds of the model with this digest, and no word of the rest."""
    measurements = []
    for file in files(folder):
        with contextlib.suppress(InputError):
            measurements.append(held(_sound(file), model, file))
    return measurements


def no_other_telling(known: Sequence[Measurement], new: Sequence[Measurement]) -> None:
    """Raises InputError where one session is told twice with different numbers: it would pass as two."""
    names = dict[tuple[object, ...], str]()
    for measurement in (*known, *new):
        if names.setdefault(measurement.session, measurement.name) != measurement.name:
            raise InputError(
                f"{_brief(measurement.device.name)}, {measurement.run.started}: "
                "this session occurs twice, with different numbers "
                f"({names[measurement.session]}, {measurement.name}); keep the one that the benchmark returned"
            )
