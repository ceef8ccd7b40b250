"""NNCF, quiet."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def library() -> ModuleType:
    """NNCF, its telemetry switched off and its progress bars kept out of the log."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # it, and OpenVINO, take own stubs
    import nncf

    nncf.set_log_level(logging.ERROR)
    return nncf  # type: ignore[no-any-return]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the bars and tables that libraries print."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
