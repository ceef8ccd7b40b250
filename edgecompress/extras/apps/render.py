"""Renders templates, which take numbers and escaped text only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import EdgeError, InputError
from edgecompress.extras.apps.escape import FILTERS, SHOWN, Safe

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent / "packagers" / "templates"
SHARED = FOLDER / "shared"  # parts that templates of every packager may include
TEMPLATE = ".j2"  # a file that is rendered; any other is copied


def render(
    packager: str, root: Path, values: Mapping[str, object], files: Mapping[str, str], folder: Path = FOLDER
) -> None:
    """Writes files below `root`: {path below root: name below extras/apps/packagers/templates/PACKAGER}.

    A template whose name ends in .j2 is rendered with `values`, any other file is copied byte for byte. Raises
    InputError for a text in a template that went through no escape, or a path that leaves `root`.
    """
    environment = _environment(folder / packager)
    for target, name in files.items():
        place = root / FILTERS["path"](target)
        place.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(TEMPLATE):
            place.write_text(_rendered(environment, name, values), encoding="utf-8", newline="")
        else:
            place.write_bytes((folder / packager / name).read_bytes())
        if (folder / packager / name).stat().st_mode & 0o100:
            place.chmod(0o755)


def _rendered(environment: Environment, name: str, values: Mapping[str, object]) -> str:
    from jinja2 import TemplateError

    try:
        return environment.get_template(name).render(values)
    except EdgeError as error:
        raise type(error)(f"template {name}: {error}") from error
    except TemplateError as error:
        raise InputError(f"template {name}: {str(error).splitlines()[0]}") from error


def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([folder, SHARED]),
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the escapes are those of the language that is written, and are enforced
    )
    environment.filters |= {**FILTERS, "product": math.prod}
    return environment


def _finalize(value: object) -> object:
    """What may be written as it is: whole and finite numbers, and texts out of an escape."""
    if isinstance(value, Safe) or type(value) is int or (isinstance(value, float) and math.isfinite(value)):
        return value
    from jinja2 import StrictUndefined

    if isinstance(value, StrictUndefined):
        return value  # it raises where it is written, and says its name
    raise InputError(f"{type(value).__name__} {ascii(value)[:SHOWN]} must be escaped before it is written")
