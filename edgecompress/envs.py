"""Which libraries a plug-in needs, whether this Python has them, and the command that brings them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from types import ModuleType

from edgecompress.errors import EdgeError, MissingDependency


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
    """The requirements of a plug-in that this Python does not meet."""
    return [r for r in module.REQUIRES if not _met(r)]


def _met(requirement: str) -> bool:
    installed = version(package(requirement))
    at_least = re.search(r">=\s*([\d.]+)", requirement)
    return installed is not None and (at_least is None or _numbers(installed) >= _numbers(at_least[1]))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text.split("+")[0])[:4])


def install_command(module: ModuleType) -> str:
    """What to type to get what a plug-in needs."""
    extra = getattr(module, "EXTRA", "")
    return f"pip install 'edgecompress[{extra}]'" if extra else f"pip install {' '.join(missing(module))}"


def require(module: ModuleType, who: str) -> None:
    """Raises MissingDependency when a library that `module` needs is not installed."""
    lacking = missing(module)
    if lacking:
        raise MissingDependency(f"{who} needs {', '.join(lacking)}, not installed; run: {install_command(module)}")


def versions(module: ModuleType) -> dict[str, str]:
    """The installed version of each library that a plug-in or a core stage says it REQUIRES."""
    return {package(r): version(package(r)) or "" for r in getattr(module, "REQUIRES", ())}


def extras(modules: Iterable[ModuleType]) -> list[str]:
    """The extras of pyproject.toml that install what these plug-ins need."""
    return sorted({m.EXTRA for m in modules if getattr(m, "EXTRA", "")})


def main() -> int:
    """`python -m edgecompress.envs TARGET`: the extras that a target needs, separated by commas."""
    from edgecompress import catalog, routes

    try:
        target = catalog.target(sys.argv[1]).value
        print(",".join(extras(routes.plugins(target))))
    except EdgeError as error:
        print(f"edgecompress: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
