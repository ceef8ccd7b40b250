"""NNCF and OpenVINO, quiet."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def both() -> tuple[ModuleType, ModuleType]:
    """The libraries, their telemetry switched off and their progress bars kept out of the log."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # both then take their own stubs
    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    return nncf, openvino
