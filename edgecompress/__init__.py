"""edgecompress: one command takes a trained model to an edge device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Options", "Result", "analyze", "deploy", "package", "profile", "verify"]

if TYPE_CHECKING:
    from edgecompress.analysis import analyze
    from edgecompress.api import Options, Result, deploy, package, profile, verify


def __getattr__(name: str) -> Any:
    """The public names come from their modules at first use, so that `import edgecompress` costs nothing."""
    if name in __all__:
        from edgecompress import analysis, api

        return getattr(analysis if name == "analyze" else api, name)
    raise AttributeError(f"module 'edgecompress' has no attribute '{name}'")
