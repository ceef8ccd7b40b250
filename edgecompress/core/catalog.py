"""Finds targets, devices, profiles and sources: by path, among the installed ones, in other packages, in ./targets."""

from __future__ import annotations

import copy
import dataclasses
import errno
import filecmp
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Generic, TypeVar, cast

from edgecompress.core import config, plain_file, registry
from edgecompress.core.errors import ConfigError, InputError, NotFound, blamed, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.package_files import DEMO, PACKAGE
from edgecompress.core.settings import Device, Profile, Source, Target, Variant, is_factory

T = TypeVar("T")
KINDS: Mapping[str, type] = {"targets": Target, "devices": Device, "profiles": Profile}
SOURCE = DEMO / "source.toml"
COMMAND_LINE = "command line"  # the origin of a value
# What people call a target, by what to tell them; the first that has a word of the name counts. No name is like ours.
MEANT: Mapping[str, str] = {
    "stm32 mcu microcontroller cortexm esp32 esp8266 arduino rp2040 pico nrf5 teensy zephyr freertos tinyml tflm": "for"
    " microcontrollers there is ethos-u55, Arm's NPU beside a Cortex-M; without that NPU, TensorFlow Lite Micro reads "
    "the model.tflite of its variant int8, which is not tested here",
    "iphone ipad": "give --target ios",
    "macbook macmini imac applesilicon": "give --target macos",
    "raspberry raspi rpi": "give --target arm64, to measure there with --device rpi5 or rpi4",
    "jetson orin xavier": "give --target jetson",
    "nvidia cuda tensorrt geforce rtx": "give --target gpu, or jetson for a board",
    "qualcomm hexagon htp": "give --target snapdragon for the NPU, or android, which computes on the CPU",
    "pixel galaxy samsung mediatek exynos": "give --target android, which computes on the CPU",
    "browser chrome firefox safari wasm webgpu javascript onnxruntimeweb": "give --target web",
    "intel amd x64 avx laptop desktop windows linux": "give --target x86, or arm64 for an Arm processor",
    "aarch64 armv8 graviton neoverse rockchip rk35 cortexa": "give --target arm64",
    "coral tpu hailo movidius kendryte": "no target computes on this accelerator; arm64 and x86 on the CPU beside it",
}


@dataclass(frozen=True)
class Setting:
    """One value of the effective configuration, and where it came from."""

    key: str
    value: Json
    origin: str


@dataclass(frozen=True)
class Found(Generic[T]):
    """A parsed TOML file: the value, its name, its file, and where each key came from."""

    name: str
    path: Path
    value: T
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class FoundSource:
    """A source: what was given for it, its TOML where that was one, the value, and where each key came from."""

    given: str
    toml: Path | None
    value: Source
    settings: tuple[Setting, ...] = ()


def shipped(kind: str) -> Path:
    """The folder of this project's files of a kind: inside the package once installed, beside it in a checkout."""
    inside = PACKAGE / kind
    return inside if inside.is_dir() else PACKAGE.parent / kind


def installed(kind: str) -> list[Path]:
    """The folders of the installed files of a kind: this project's, then those of other packages."""
    others = [util.find_spec(point.value) for point in registry.entry_points().get(kind, ())]
    foreign = [Path(place) for spec in others if spec for place in spec.submodule_search_locations or ()]
    return list({folder.resolve(): folder for folder in reversed([shipped(kind), *foreign])}.values())[::-1]


def folders(kind: str) -> list[Path]:
    """The folders that are searched for files of a kind, in order: the installed ones, then ./KIND."""
    known, own = installed(kind), Path(kind)
    return known if own.resolve() in [folder.resolve() for folder in known] else [*known, own]


def names(kind: str) -> list[str]:
    """The names of all files of a kind."""
    return sorted({p.stem for folder in folders(kind) for p in folder.glob("*.toml")})


def path_of(kind: str, name: str, own: bool = True) -> Path:
    """The file called `name`, or `name` itself where it is a path. Raises NotFound with a suggestion.

    `own`: whether a name may be that of a file in ./KIND.
    """
    if name.endswith(".toml"):
        if Path(name).is_file():
            return Path(name)
        raise NotFound(f"{name}: no such file")
    files = [file for folder in folders(kind) if (file := folder / f"{name}.toml").is_file()]
    one = kind.removesuffix("s")
    if not files:
        meant = _meant(name) if kind == "targets" else ""
        raise NotFound(f"no {one} '{name}'{meant or did_you_mean(name, names(kind))}")
    if not own and _beside(kind, files[0]):
        place = f"./{files[0].as_posix()}"
        raise InputError(f"--untrusted: {one} '{name}' is in the folder that you are in; name it by its path, {place}")
    if own and len(files) > 1 and _beside(kind, files[-1]) and not filecmp.cmp(files[0], files[-1], shallow=False):
        place = f"./{files[-1].as_posix()}"  # it does not take the place of what we know
        says = f"{place} has the same name as an installed {one}"
        if Path(PACKAGE.name, "core", Path(__file__).name).is_file():
            raise InputError(f"{says}: the edgecompress that runs is not this checkout's; run: pip install -e .")
        raise InputError(f"{says}; rename the file, or give its path, {place}")
    return files[0]


def _meant(name: str) -> str:
    """`: give --target ios`, of a name in MEANT; of one that a device has, that it is one; else ""."""
    plain = "".join(filter(str.isalnum, name.lower()))
    told = [says for words, says in MEANT.items() if any(word in plain for word in words.split())][:1]
    device = [f"--device {name} is where it is measured"] if name in names("devices") else []
    return f": {'; '.join((*told, *device))}" if told or device else ""


def _beside(kind: str, file: Path) -> bool:
    """Whether it lies in ./KIND, which is not an installed folder."""
    return file.parent == Path(kind)


def is_installed(kind: str, name: str) -> bool:
    """Whether a name or a path is that of an installed file."""
    known = [folder.resolve() for folder in installed(kind)]
    return path_of(kind, name).resolve().parent in known


def check_new(file: Path) -> None:
    """Raises InputError if a new file in ./KIND would have the name of an installed one."""
    kind = file.parent.name
    if kind in KINDS and any((folder / file.name).is_file() for folder in installed(kind)):
        raise InputError(f"{file.stem} is already the name of an installed {kind.removesuffix('s')}; give another name")


def reference(kind: str, parsed: Found[T]) -> str:
    """A reference that is valid in any folder: the name of an installed file, else the path."""
    known = [(folder / f"{parsed.name}.toml").resolve() for folder in installed(kind)]
    return parsed.name if parsed.path.resolve() in known else str(parsed.path.resolve())


def target(name: str, overrides: Mapping[str, object] | None = None, own: bool = True) -> Found[Target]:
    """A target by name or path, with `--set` values applied; `own` as for `path_of`."""
    found = _read(Target, "targets", name, overrides, own)
    told = {setting.key for setting in found.settings if setting.origin == COMMAND_LINE}
    variants = tuple(_with_files(v, f"variant[{i}]", found.path, told) for i, v in enumerate(found.value.variant))
    return dataclasses.replace(found, value=dataclasses.replace(found.value, variant=variants))


def _with_files(variant: Variant, place: str, target: Path, told: Collection[str]) -> Variant:
    """A variant whose options that name files have absolute paths: those of the command line are of this folder."""
    steps = []
    for index, step in enumerate(variant.compress):
        use = step.get("use")
        files = registry.technique(use).file_options if use in registry.names("techniques") else ()
        steps.append(dict(step))
        for option in files:
            base = Path.cwd() if f"{place}.compress[{index}].{option}" in told else target.resolve().parent
            if isinstance(step.get(option), str):
                steps[-1][option] = _absolute(step[option], base)
    return dataclasses.replace(variant, compress=tuple(steps))


def device(name: str, overrides: Mapping[str, object] | None = None, own: bool = True) -> Found[Device]:
    """A device by name or path, with `--set` values applied; `own` as for `path_of`."""
    return _read(Device, "devices", name, overrides, own)


def profile(name: str, overrides: Mapping[str, object] | None = None, own: bool = True) -> Found[Profile]:
    """A profile by name or path, with `--set` values applied; `own` as for `path_of`."""
    return _read(Profile, "profiles", name, overrides, own)


def _read(cls: type[T], kind: str, name: str, overrides: Mapping[str, object] | None, own: bool) -> Found[T]:
    path = path_of(kind, name, own)
    return Found(path.stem, path, *_built(cls, str(path), config.read_toml(path), overrides or {}))


def source(model: str | None, flags: Mapping[str, object]) -> FoundSource:
    """The source that MODEL names: a `.toml` of one, a model file, a factory, or None for the embedded demo.

    `flags` ({"data": ..., "metric": ...}) override the file's values. Paths are made absolute: those in a TOML are
    relative to its folder, those in `flags` to the working folder.
    """
    if model is None or model.endswith(".toml"):
        toml = SOURCE if model is None else path_of("sources", model)
        given, table, base = str(toml), config.read_toml(toml), toml.resolve().parent
    else:
        toml, given, table, base = None, model, {"model": model}, Path.cwd()
    value, settings = _built(Source, given, table, flags)
    model_path = _absolute(value.model, Path.cwd() if "model" in flags else base)
    data_path = _absolute(value.data, Path.cwd() if "data" in flags else base)
    return FoundSource(given, toml, dataclasses.replace(value, model=model_path, data=data_path), settings)


def told(parsed: Found[T], table: str) -> dict[str, Json]:
    """The values of a table that the command line set, by their keys."""
    own = [setting for setting in parsed.settings if setting.origin == COMMAND_LINE]
    return {s.key.removeprefix(f"{table}."): s.value for s in own if s.key.startswith(f"{table}.")}


def _absolute(reference: str, base: Path) -> str:
    """A file as an absolute path; a factory `pkg.mod:fn`, "random" and nothing as they are.

    A link keeps its own name, which tells the format: what it leads to, in a cache of downloads, may have none.
    """
    if not reference or reference == "random" or is_factory(reference):
        return reference
    path = base / reference
    return str(path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve())


def _built(
    cls: type[T], given: str, table: dict[str, object], overrides: Mapping[str, object]
) -> tuple[T, tuple[Setting, ...]]:
    """The value of a table, and where each key came from: the file that was `given`, the command line, or neither."""
    origins: dict[str, str] = dict.fromkeys(_flat("", table), os.path.basename(given))
    alone = copy.deepcopy(table)
    for key, value in overrides.items():
        place = _lay(table, key.split("."), value, given)
        origins.update(dict.fromkeys(_flat(place, value), COMMAND_LINE))
    try:
        built = config.build(cls, table, given)
    except ConfigError as error:
        raise _of_command_line(cls, given, alone, overrides) or error from None
    flat = _flat("", dataclasses.asdict(built))  # type: ignore[call-overload]
    return built, tuple(Setting(key, cast("Json", value), origins.get(key, "default")) for key, value in flat.items())


def _of_command_line(
    cls: type, given: str, table: dict[str, object], overrides: Mapping[str, object]
) -> ConfigError | None:
    """The error of the first value of the command line that the file does not take; None where the file is at fault."""
    for key, value in overrides.items():
        laid = copy.deepcopy(table)
        _lay(laid, key.split("."), value, given)
        prefix = {Target: "", Source: ""}.get(cls, f"{cls.__name__.lower()}.")
        option = f"--{key}" if cls is Source and "." not in key else f"--set {prefix}{key}"
        try:
            config.build(cls, table, option)
        except ConfigError:
            return None
        try:
            config.build(cls, laid, option)
        except ConfigError as error:
            return error
    return None


def _lay(table: dict[str, object], keys: list[str], value: object, where: str) -> str:
    """Sets table[a][b][c]; `variant.NAME.KEY` finds the variant. Returns the dotted place."""
    if keys[0] == "variant" and len(keys) > 2:
        name = keys[1]
        variants = _tables(table.get("variant"))
        known = [str(v.get("name", "")) for v in variants]
        if name not in known:
            raise ConfigError(f"--set variant.{name}: no such variant in {where}{did_you_mean(name, known)}")
        index = known.index(name)
        return _lay_step(variants[index], f"variant[{index}]", keys[2:], value)
    node = table
    for key in keys[:-1]:
        inner = node.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {'.'.join(keys)}: '{key}' is not a table in {where}")
        node = inner
    node[keys[-1]] = value
    return ".".join(keys)


def _lay_step(variant: dict[str, object], place: str, keys: list[str], value: object) -> str:
    """A key of the variant itself, or else an option of its compression step: of several, the one that `use` names."""
    if keys[0] in {f.name for f in dataclasses.fields(Variant)}:
        return f"{place}.{_lay(variant, keys, value, place)}"
    steps = _tables(variant.get("compress"))
    uses = [str(step.get("use", "")) for step in steps]
    named = len(keys) > 1 and keys[0] in uses
    if not named and len(uses) != 1:
        raise ConfigError(
            f"--set: variant '{variant['name']}' has {len(uses)} compression steps: which one is meant? Write "
            f"variant.{variant['name']}.STEP.{keys[0]}, STEP one of {', '.join(uses)}"
        )
    index = uses.index(keys[0]) if named else 0
    inner = _lay(steps[index], keys[1:] if named else keys, value, place)
    return f"{place}.compress[{index}].{inner}"


def _tables(value: object) -> list[dict[str, object]]:
    """The tables of a list; none where it is no list, which `config.build` says."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _flat(prefix: str, value: object) -> dict[str, object]:
    """Nested tables and lists of tables as dotted keys."""
    if isinstance(value, Mapping):
        items = [(f"{prefix}.{k}" if prefix else str(k), v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)) and any(isinstance(v, Mapping) for v in value):
        items = [(f"{prefix}[{i}]", v) for i, v in enumerate(value)]
    else:
        return {prefix: value}
    return {key: leaf for k, v in items for key, leaf in _flat(k, v).items()}


def check_file(path: Path, what: str, give: str = "a file, a folder, or a factory as pkg.mod:fn") -> None:
    """Raises InputError when a file that the user named is not there, or is a pipe, a device or a socket."""
    if not str(path).isprintable():
        raise InputError(f"{str(path)!r}: its name is not plain text; rename it")
    try:
        found = os.stat(path)
    except OSError as error:
        why = error.strerror if error.errno not in (errno.ENOENT, errno.ENOTDIR) else f"no such {what}"
        raise blamed(error)(f"{path}: {why}; give {give}") from error
    if not stat.S_ISDIR(found.st_mode):
        plain_file.check(path)
