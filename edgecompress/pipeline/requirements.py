"""Queries of the set-up before anything is installed: the extras of a target, and the environments of its plug-ins."""

from __future__ import annotations

import sys
from types import ModuleType

from edgecompress.core import catalog, environments, extras, registry
from edgecompress.core.errors import EdgeError
from edgecompress.pipeline import conversion


def main() -> int:
    """`python -m edgecompress.pipeline.requirements TARGET...`: the extras that targets need, separated by commas.

    A second line, `make`, follows where a plug-in of a target has an environment of its own that is not made yet.
    `... make NAME`: makes the environment of a runtime, or those that a target needs.
    """
    try:
        if sys.argv[1] == "make":
            name = sys.argv[2]
            runtime = name in registry.names("runtimes")
            for module in [registry.load("runtimes", name)] if runtime else _plugins(name):
                environments.make(module)
        else:
            modules = [module for target in sys.argv[1:] for module in _plugins(target)]
            print(",".join(environments.extras(modules)))
            if not all(map(environments.made, modules)):
                print("make")
    except EdgeError as error:
        print(f"edgecompress: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _plugins(target: str) -> list[ModuleType]:
    """What a target runs, and what packs it, where packages are made here."""
    parsed = catalog.target(target).value
    packagers = [registry.load("packagers", parsed.package)] if extras.is_here("apps") else []
    return [*conversion.plugins(parsed), *packagers]


if __name__ == "__main__":
    sys.exit(main())
