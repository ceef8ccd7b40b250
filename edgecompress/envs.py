"""Which libraries a plug-in needs and which Python has them: this one, or an environment of the plug-in's own.

A plug-in whose libraries do not fit with ours pins them in its constant ENVIRONMENT. They are installed in a virtual
environment of their own, which sees this package and nothing else of ours; only its agent runs there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

from edgecompress.errors import EdgeError, MissingDependency, StageFailed

PACKAGE = Path(__file__).parent
COMPLETE = "complete"  # the file that an environment holds once it is whole

# --------------------------------------------------------------------------- what a plug-in needs


@cache
def version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def package(requirement: str) -> str:
    """The package of a requirement: "torch-pruning>=1.6" -> "torch-pruning"."""
    return re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]


def missing(module: ModuleType) -> list[str]:
    """The requirements of a plug-in that its Python does not meet."""
    own = environment(module)
    if own:
        return [] if (own / COMPLETE).exists() else list(module.ENVIRONMENT)
    return [r for r in module.REQUIRES if not _met(r)]


def _met(requirement: str) -> bool:
    installed = version(package(requirement))
    at_least = re.search(r">=\s*([\d.]+)", requirement)
    return installed is not None and (at_least is None or _numbers(installed) >= _numbers(at_least[1]))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text.split("+")[0])[:4])


def install_command(module: ModuleType) -> str:
    """What to type to get what a plug-in needs."""
    if environment(module):
        return f"python -m edgecompress.envs make {_name(module)}"
    extra = getattr(module, "EXTRA", "")
    return f"pip install 'edgecompress[{extra}]'" if extra else f"pip install {' '.join(missing(module))}"


def require(module: ModuleType, who: str) -> None:
    """Raises MissingDependency when a library that `module` needs is not installed."""
    lacking = missing(module)
    if lacking:
        where = " in an environment of its own" if environment(module) else ""
        raise MissingDependency(
            f"{who} needs {', '.join(lacking)}{where}, not installed; run: {install_command(module)}"
        )


def versions(module: ModuleType) -> dict[str, str]:
    """The installed version of each library that a plug-in or a core stage says it REQUIRES."""
    if environment(module):
        return dict(pin.split("==") for pin in module.ENVIRONMENT)
    return {package(r): version(package(r)) or "" for r in getattr(module, "REQUIRES", ())}


def extras(modules: Iterable[ModuleType]) -> list[str]:
    """The extras of pyproject.toml that install what these plug-ins need."""
    return sorted({m.EXTRA for m in modules if getattr(m, "EXTRA", "")})


# --------------------------------------------------------------------------- an environment of its own


def environment(module: ModuleType) -> Path | None:
    """Where the environment of a plug-in is, or will be; None where it needs no own one.

    Its name holds all that makes it: other pins, another Python or another place of this package make another one.
    """
    pins = getattr(module, "ENVIRONMENT", ())
    if not pins:
        return None
    made_of = "\n".join([*pins, sys.version, str(PACKAGE)])
    return root() / f"{_name(module)}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


def root() -> Path:
    """Where environments are: inside this one, or in the user's cache where this Python is the system's."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "edgecompress-envs"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgecompress" / "envs"


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def python(module: ModuleType) -> str:
    """The Python that runs a plug-in's agent on this machine. Raises MissingDependency: it is not made yet."""
    own = environment(module)
    if own is None:
        return sys.executable
    require(module, f"'{_name(module)}'")
    return str(own / "bin" / "python")


def make(module: ModuleType) -> Path | None:
    """Makes the environment of a plug-in where it is not whole yet; what is there in parts is made anew.

    Raises StageFailed with pip's last line.
    """
    place = environment(module)
    if place is None or (place / COMPLETE).exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.with_suffix(".lock")):
        if not (place / COMPLETE).exists():
            shutil.rmtree(place, ignore_errors=True)
            print(f"envs: {place.name}: {', '.join(module.ENVIRONMENT)}", flush=True)
            _run([sys.executable, "-m", "venv", str(place)])
            _run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *module.ENVIRONMENT])
            _show_package(place)
            (place / COMPLETE).touch()
    return place


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"code {done.returncode}"]
        version = ".".join(map(str, sys.version_info[:2]))
        raise StageFailed(f"{' '.join(command[1:4])} with Python {version}: {said[-1].strip()[:300]}")


def _show_package(place: Path) -> None:
    """Makes this package importable in the environment, and no other that lies beside it."""
    beside = place / "package"
    beside.mkdir()
    (beside / PACKAGE.name).symlink_to(PACKAGE, target_is_directory=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / f"{PACKAGE.name}.pth").write_text(f"{beside}\n", encoding="utf-8")


# --------------------------------------------------------------------------- what set-up calls


def main() -> int:
    """`python -m edgecompress.envs TARGET`: the extras that a target needs, separated by commas.

    `python -m edgecompress.envs make NAME`: makes the environment of a runtime, or those that a target needs.
    """
    try:
        if sys.argv[1] == "make":
            for module in _named(sys.argv[2]):
                make(module)
        else:
            print(",".join(extras(_plugins(sys.argv[1]))))
    except EdgeError as error:
        print(f"edgecompress: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _plugins(target: str) -> list[ModuleType]:
    """What a target runs, and what packs it."""
    from edgecompress import catalog, registry, routes

    wanted = catalog.target(target).value
    return [*routes.plugins(wanted), registry.load("packages", wanted.package)]


def _named(name: str) -> list[ModuleType]:
    """The runtime of that name, or the plug-ins of the target."""
    from edgecompress import registry

    return [registry.load("runtimes", name)] if name in registry.names("runtimes") else _plugins(name)


if __name__ == "__main__":
    sys.exit(main())
