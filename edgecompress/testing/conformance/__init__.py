"""The conformance suite: the checks that every plug-in and every target must pass. Plain asserts.

Call the check of your kind from a test: `conformance.check_technique("mine", tmp_path)`. The nets are small and built
here; the first net that a plug-in reads is made by other plug-ins on the way (a technique on "onnx" meets an ONNX net).
"""

from __future__ import annotations

from typing import Any

from edgecompress.core import extras
from edgecompress.testing.conformance.commands import check_command
from edgecompress.testing.conformance.nets import ITEMS, SPLITS, net, samples, torch_net
from edgecompress.testing.conformance.profilers import check_pass
from edgecompress.testing.conformance.runtimes import check_runtime
from edgecompress.testing.conformance.sections import check_section
from edgecompress.testing.conformance.sensors import WINDOW_S, check_sensor
from edgecompress.testing.conformance.targets import check_target
from edgecompress.testing.conformance.techniques import check_technique
from edgecompress.testing.conformance.transports import check_transport
from edgecompress.testing.conformance.zoo_cells import (
    ZOO_DB,
    ZOO_ITEMS,
    ZOO_STRENGTH,
    ZooOutcome,
    ZooSource,
    check_zoo,
    main,
    zoo_cell,
    zoo_road,
    zoo_source,
)

__all__ = [
    "ITEMS",
    "NUMBERED",
    "ODD_NAME",
    "PACKED_FIRST",
    "SPLITS",
    "STEPS",
    "WINDOW_S",
    "ZOO_DB",
    "ZOO_ITEMS",
    "ZOO_STRENGTH",
    "ZooOutcome",
    "ZooSource",
    "check_command",
    "check_packager",
    "check_pass",
    "check_runtime",
    "check_section",
    "check_sensor",
    "check_target",
    "check_technique",
    "check_transport",
    "check_zoo",
    "main",
    "net",
    "samples",
    "shipped_net",
    "torch_net",
    "zoo_cell",
    "zoo_road",
    "zoo_source",
]


def __getattr__(name: str) -> Any:
    """The checks of a packager lie with the packagers, and are imported at first use."""
    if name in __all__:
        return getattr(extras.part("apps", "conformance"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
