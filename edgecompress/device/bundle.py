"""Bundles modules as one file that any Python from 3.10 on runs: a zip of a program and its imports."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgecompress.device import imported_modules

AGENT = "edgecompress.device.agent.__main__"
MAIN = f"import sys\n\nfrom {AGENT} import main\n\nsys.exit(main())\n"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest moment that a zip can hold: the same bytes each time


def write(file: Path, modules: Sequence[str]) -> Path:
    """The agent, the plug-ins `modules` and what they import of their packages, as `file`.

    Raises InputError for a module that is not there.
    """
    return pack(file, [AGENT, *modules], MAIN, {})


def pack(file: Path, modules: Sequence[str], main: str, data: Mapping[str, bytes]) -> Path:
    """The modules and what they import of their packages as `file`, which runs the text `main`; `data`: files beside.

    Raises InputError for a module that is not there.
    """
    entries = {**data, "__main__.py": main.encode()}
    for name, path in imported_modules.sources(modules).items():
        inside = name.replace(".", "/")
        package = path.name == "__init__.py"
        # the front door of a whole package would open rooms that were not carried along
        text = b"" if package and "." not in name else path.read_bytes()
        entries[f"{inside}/__init__.py" if package else f"{inside}.py"] = text
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in sorted(entries):
            archive.writestr(zipfile.ZipInfo(entry, EPOCH), entries[entry], zipfile.ZIP_DEFLATED)
    return file
