"""edgecompress: one command takes a trained model to an edge device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgecompress.core.version import __version__ as __version__

if TYPE_CHECKING:
    from edgecompress.commands.analyze import analyze
    from edgecompress.commands.deploy import deploy
    from edgecompress.commands.diagnose import diagnose
    from edgecompress.commands.job_run import Options, Result
    from edgecompress.commands.package import package
    from edgecompress.commands.profile import profile
    from edgecompress.commands.verify import verify

__all__ = ["Options", "Result", "analyze", "deploy", "diagnose", "package", "profile", "verify"]


def __getattr__(name: str) -> Any:
    """The public names are imported from their modules at first use, so `import edgecompress` is cheap."""
    if name in __all__:
        from importlib import import_module

        home = "job_run" if name in ("Options", "Result") else name
        return getattr(import_module(f"edgecompress.commands.{home}"), name)
    raise AttributeError(f"module 'edgecompress' has no attribute '{name}'")
