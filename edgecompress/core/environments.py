"""The libraries that a plug-in needs, and the Python that has them: this one, or a separate environment.

A plug-in whose libraries do not fit with ours pins them in its constant ENVIRONMENT. They are installed in a virtual
environment of their own, which sees this package and nothing else of ours; only its agent runs there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core import child_process, file_lock, home, package_files
from edgecompress.core.errors import InputError, MissingDependency, StageFailed, brief
from edgecompress.core.package_files import PACKAGE
from edgecompress.core.plugins import Plugin, described

if TYPE_CHECKING:
    from packaging.requirements import Requirement

CPU_TORCH = (
    "without a GPU run first: uv pip install torch --torch-backend=cpu (pip's default torch brings gigabytes of CUDA "
    "libraries)"
)
# Other distributions of the same modules, of which pip installs one beside another
SAME: Mapping[str, tuple[str, ...]] = {
    "tensorflow-cpu": ("tensorflow", "tensorflow-intel", "intel-tensorflow", "tensorflow-macos", "tensorflow-rocm"),
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-rocm"),
}
COMPLETE = "complete"  # the file that an environment holds once it is whole

# --------------------------------------------------------------------------- what a plug-in needs


@cache
def version(package: str) -> str | None:
    """The installed version of a package, or of another that provides its modules, or None."""
    for name in (package, *SAME.get(package, ())):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def package(requirement: str) -> str:
    """The package of a requirement: "torch-pruning>=1.6" -> "torch-pruning"."""
    return _parsed(requirement).name


def missing(module: ModuleType) -> list[str]:
    """The requirements of a plug-in that its Python does not meet."""
    own = environment(module)
    if own:
        return [] if os.path.exists(own / COMPLETE) else list(module.ENVIRONMENT)
    return [r for r in _described(module).requires if not met(r)]


def met(requirement: str, extra: str = "") -> bool:
    """Whether a requirement is met, or not asked of this Python; `extra`: the one that brings it."""
    required = _parsed(requirement)
    if not _applies(required, extra):
        return True
    installed = version(required.name)
    if installed is None or not required.specifier.contains(installed, prereleases=True):
        return False
    return all(met(each, name) for name in required.extras for each in _brought(required.name, name))


@cache
def _parsed(requirement: str) -> Requirement:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(requirement)
    except InvalidRequirement as error:
        raise InputError(f"'{requirement}' is not a valid requirement: {str(error).splitlines()[0]}") from error


def _applies(requirement: Requirement, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _brought(package: str, extra: str) -> list[str]:
    """What an extra of an installed package brings, beside what the package requires anyhow."""
    every = metadata.requires(package) or ()
    return [each for each in every if _applies(_parsed(each), extra) and not _applies(_parsed(each))]


def install_command(module: ModuleType, among: Iterable[ModuleType] = ()) -> str:
    """The command that installs what a plug-in needs, and the extras that those of `among` lack."""
    if environment(module):
        return f"python -m edgecompress.pipeline.requirements make {_name(module)}"
    if not _described(module).extra:
        return f"pip install {' '.join(missing(module))}"
    lacking = [each for each in among if missing(each) and not environment(each)]
    return package_files.install(",".join(extras([module, *lacking])))


def require(module: ModuleType, who: str, among: Iterable[ModuleType] = ()) -> None:
    """Raises MissingDependency when a library that `module` needs is not installed; `among`: as `install_command`."""
    lacking = missing(module)
    if lacking:
        where = " in an environment of its own" if environment(module) else ""
        command = install_command(module, among)
        named = command.rpartition("[")[2].partition("]")[0].split(",") if "[" in command else []
        first = f"; {CPU_TORCH}" if any(map(brings_torch, named)) and version("torch") is None else ""
        licence = f" ({_described(module).licence})" if _described(module).licence else ""
        raise MissingDependency(
            f"{who} needs {', '.join(lacking)}{where}, not installed; run: {command}{first}{licence}"
        )


def brings_torch(extra: str) -> bool:
    """Whether an extra of this distribution installs torch, by its metadata."""
    brought = [_parsed(each) for each in _brought(PACKAGE.name, extra)] if version(PACKAGE.name) else []
    inner = {name for each in brought if each.name == PACKAGE.name for name in each.extras}
    return "torch" in {each.name for each in brought} or any(map(brings_torch, inner))


def versions(module: ModuleType) -> dict[str, str]:
    """The installed version of each library that a plug-in or core stage needs, always or for some sources alone."""
    if environment(module):
        return dict(pin.split("==") for pin in module.ENVIRONMENT)
    known = _described(module)
    required = [_parsed(r) for r in (*known.requires, *known.optional)]
    return {each.name: version(each.name) or "" for each in required if _applies(each)}


def _described(module: ModuleType) -> Plugin:
    return described(Plugin, module.__name__, module)


def extras(modules: Iterable[ModuleType]) -> list[str]:
    """The extras of pyproject.toml that install what these plug-ins need."""
    return sorted({extra for m in modules if (extra := _described(m).extra)})


# --------------------------------------------------------------------------- an environment of its own


def environment(module: ModuleType) -> Path | None:
    """The folder of a plug-in's environment, which may not exist yet; None if it needs none.

    Its name is a digest of the pins, the Python and the place of this package.
    """
    pins = _described(module).environment
    if not pins:
        return None
    made_of = "\n".join([*pins, sys.version, str(PACKAGE)])
    return root() / f"{_name(module)}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


def root() -> Path:
    """Where environments are: inside this one, or in the user's cache where this Python is the system's."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "edgecompress-envs"
    return home.cache() / "envs"


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def python(module: ModuleType) -> str:
    """The Python that runs a plug-in's agent on this machine. Raises MissingDependency: it is not made yet."""
    own = environment(module)
    if own is None:
        return sys.executable
    require(module, f"'{_name(module)}'")
    return str(own / "bin" / "python")


def made(module: ModuleType) -> bool:
    """Whether the environment of a plug-in is whole, or it has none of its own."""
    place = environment(module)
    return place is None or os.path.exists(place / COMPLETE)  # False, too, where nothing may be read


def make(module: ModuleType) -> Path | None:
    """Creates the environment of a plug-in; an incomplete one is created again.

    Raises StageFailed with pip's last line.
    """
    place = environment(module)
    if place is None or made(module):
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with file_lock.held(place.with_suffix(".lock")):
        if not made(module):
            shutil.rmtree(place, ignore_errors=True)
            print(f"envs: {place.name}: {', '.join(module.ENVIRONMENT)}", flush=True)
            _run(child_process.python("venv", str(place)))
            own = str(place / "bin" / "python")
            _run(child_process.python("pip", "install", "--quiet", *module.ENVIRONMENT, by=own))
            # this package can be imported in the environment, and no other that lies beside it
            beside = place / "package"
            beside.mkdir()
            (beside / PACKAGE.name).symlink_to(PACKAGE, target_is_directory=True)
            (packages,) = place.glob("lib/python*/site-packages")
            (packages / f"{PACKAGE.name}.pth").write_text(f"{beside}\n", encoding="utf-8")
            (place / COMPLETE).touch()
    return place


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"code {done.returncode}"]
        version = ".".join(map(str, sys.version_info[:2]))
        raise StageFailed(f"{' '.join(command[2:5])} with Python {version}: {brief(lines[-1])}")
