"""The suite on what has a name: what `edgecompress conformance` runs."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgecompress.core import catalog, environments, extras, registry
from edgecompress.core.errors import EdgeError, MissingDependency, NotFound, did_you_mean
from edgecompress.testing.conformance.commands import check_command
from edgecompress.testing.conformance.profilers import check_pass
from edgecompress.testing.conformance.runtimes import check_runtime
from edgecompress.testing.conformance.sections import check_section
from edgecompress.testing.conformance.sensors import check_sensor
from edgecompress.testing.conformance.targets import check_target
from edgecompress.testing.conformance.techniques import check_technique
from edgecompress.testing.conformance.transports import check_transport

CHECKS: Mapping[str, Callable[[str, Path], None]] = {
    "techniques": check_technique,
    "runtimes": check_runtime,
    "sensors": check_sensor,
    "profilers": check_pass,
    "transports": check_transport,
    "packagers": lambda name, folder: extras.part("apps", "conformance").check_packager(name, folder),
    "commands": check_command,
    "sections": check_section,
    "targets": lambda name, _: check_target(catalog.path_of("targets", name)),
}
KINDS = {"engine": "runtimes", **{kind.removesuffix("s"): kind for kind in CHECKS}}


@dataclass(frozen=True)
class Finding:
    """How one ended: what it does not keep, or "" where it conforms; `trace` is of code that broke."""

    kind: str
    name: str
    file: str
    took_s: float
    finding: str = ""
    trace: str = ""


def check(name: str, kind: str = "") -> list[Finding]:
    """The suite on each plug-in and target called `name`, or on that of one kind, a key of KINDS.

    Raises NotFound, and MissingDependency for one whose libraries are not installed.
    """
    kinds = [KINDS[kind]] if kind else CHECKS
    known = {each: (catalog if each in catalog.KINDS else registry).names(each) for each in kinds}
    if not any(name in names for names in known.values()):
        every = {each for names in known.values() for each in names}
        raise NotFound(f"no {kind or 'plug-in or target'} '{name}'{did_you_mean(name, every)}")
    return [_checked(each, name) for each, names in known.items() if name in names]


def _checked(kind: str, name: str) -> Finding:
    if kind in catalog.KINDS:
        file = str(catalog.path_of(kind, name))
    else:
        try:
            module = registry.load(kind, name)
        except MissingDependency as error:  # it cannot be imported
            return Finding(kind.removesuffix("s"), name, "", 0.0, str(error))
        environments.require(module, f"{kind.removesuffix('s')} '{name}'")
        file = str(module.__file__)
    begin, finding, trace = time.monotonic(), "", ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            CHECKS[kind](name, Path(folder))
    except (AssertionError, EdgeError) as error:
        finding = str(error)
    except Exception as error:  # of a stranger's code
        finding, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
    return Finding(kind.removesuffix("s"), name, file, round(time.monotonic() - begin, 2), finding, trace)
