"""edgecompress: one command takes a trained model to an edge device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Options", "Result", "analyze", "deploy", "diagnose", "package", "profile", "verify"]

if TYPE_CHECKING:
    from edgecompress.analysis import analyze
    from edgecompress.api import Options, Result, deploy, package, profile, verify
    from edgecompress.findings import diagnose


def __getattr__(name: str) -> Any:
    """The public names come from their modules at first use, so that `import edgecompress` costs nothing."""
    if name in __all__:
        from edgecompress import analysis, api, findings

        return getattr({"analyze": analysis, "diagnose": findings}.get(name, api), name)
    raise AttributeError(f"module 'edgecompress' has no attribute '{name}'")
