"""A plug-in of one's own to start from: what `init --kind technique`, `engine`, ... write.

It is the shortest example of its kind under another name, so that what is written is what the tests run.
"""

from __future__ import annotations

import re
from pathlib import Path

from edgecompress.core import output_place, registry
from edgecompress.core.errors import InputError
from edgecompress.core.package_files import PACKAGE

# The kind of the registry, what its distribution is called before its name, and the name of the example.
KINDS = {
    "technique": ("techniques", "edgecompress-technique-", "round"),
    "engine": ("runtimes", "edgecompress-runtime-", "echo"),
    "sensor": ("sensors", "edgecompress-sensor-", "constant"),
    "command": ("commands", "edgecompress-command-", "largest"),
    "section": ("sections", "edgecompress-section-", "sizes"),
}


def write(kind: str, name: str, output: Path | None = None) -> Path:
    """Writes a distribution with one plug-in; returns its folder. Raises InputError for a name that is taken."""
    known, stem, example = KINDS[kind]
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise InputError(f"{name}: cannot be the name of a plug-in; give one of small letters, digits and _")
    if name in registry.names(known):
        raise InputError(f"{name} is already the name of an installed {kind}; give another name")
    folder = output or Path(f"{stem}{name}")
    if folder.exists():
        raise InputError(f"{folder}: already exists; give another name or --output")
    output_place.check_folder(folder, "--output")
    # the example's files by their names, with another name in the place of its own
    inside = PACKAGE / "plugin_examples"
    home = (inside if inside.is_dir() else PACKAGE.parent / "examples" / "plugins") / f"{stem}{example}"
    module = stem.replace("-", "_")
    quoted, suffix, key = rf'(?<="){example}(?:ed)?(?=[" ])', rf"(?<=\.){example}\b", rf"\b{example}(?= = )"
    mine = "|".join([f"(?<={stem}){example}", f"(?<={module}){example}", quoted, suffix, key])
    files = [file for file in home.iterdir() if file.suffix in (".py", ".toml")]
    texts = {re.sub(mine, name, file.name): re.sub(mine, name, file.read_text(encoding="utf-8")) for file in files}
    folder.mkdir(parents=True)
    for own, text in texts.items():
        (folder / own).write_text(text, encoding="utf-8")
    return folder


def next_step(folder: Path, name: str) -> str:
    """The command that installs and checks it."""
    return f"pip install --editable {folder} && edgecompress conformance {name}"
