"""The user's own functions, named `pkg.mod:fn`: imported from beside the source, their errors in one line."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from edgecompress.errors import InputError, did_you_mean


def function(reference: str) -> Callable[..., Any]:
    """The function that `pkg.mod:fn` names; raises InputError saying what is not there, or what its import raised."""
    where, _, name = reference.partition(":")
    if not where or not name:
        raise InputError(f"'{reference}' is neither a file nor pkg.mod:function; give one of them")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    module = _module(where, reference)
    found = getattr(module, name, None)
    if not callable(found):
        known = [n for n in vars(module) if not n.startswith("_") and callable(getattr(module, n))]
        raise InputError(f"{reference}: {where} has no function '{name}'{did_you_mean(name, known)}")
    return found  # type: ignore[no-any-return]


def _module(where: str, reference: str) -> Any:
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        missing = error.name or where
        if (where + ".").startswith(missing + "."):
            hint = f"no module '{missing}' in {os.getcwd()} or installed; go to the folder that holds it"
            raise InputError(f"{reference}: {hint}") from error
        raise InputError(f"{reference}: {said(error)}; install '{missing}', or add its folder") from error
    except Exception as error:
        raise InputError(
            f"{reference}: importing {where} raised {said(error)}; run it in Python to debug it"
        ) from error


def said(error: BaseException) -> str:
    """`ValueError: its first line (nets.py:12)`: the line is the innermost one of the user's own code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}{where}"


def _is_users(file: str) -> bool:
    own = os.path.dirname(os.path.abspath(__file__)) + os.sep
    return "site-packages" not in file and not file.startswith((own, sys.base_prefix, "<"))
