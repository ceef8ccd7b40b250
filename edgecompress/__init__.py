"""edgecompress: one command takes a trained model to an edge device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgecompress.core.version import __version__ as __version__

if TYPE_CHECKING:
    from edgecompress.commands.analyze import Analysis, AnalysisRequest, SensitivityRequest, analyze
    from edgecompress.commands.check import Checked, check
    from edgecompress.commands.compare import ComparisonRequest, compare
    from edgecompress.commands.deploy import deploy
    from edgecompress.commands.diagnose import Diagnosis, DiagnosisRequest, diagnose
    from edgecompress.commands.diff import Diff, diff
    from edgecompress.commands.job_run import Result
    from edgecompress.commands.profile import profile
    from edgecompress.commands.verify import verify
    from edgecompress.core.errors import CheckFailed, EdgeError, InputError, StageFailed
    from edgecompress.extras.apps.package import package
    from edgecompress.extras.hugging_face.trim import Trimmed, trim
    from edgecompress.extras.search.advise import Advised, advise
    from edgecompress.extras.search.search import SearchResult, search
    from edgecompress.extras.search.train import train
    from edgecompress.pipeline.job_request import Options

    __all__ = [
        "Advised",
        "Analysis",
        "AnalysisRequest",
        "CheckFailed",
        "Checked",
        "ComparisonRequest",
        "Diagnosis",
        "DiagnosisRequest",
        "Diff",
        "EdgeError",
        "InputError",
        "Options",
        "Result",
        "SearchResult",
        "SensitivityRequest",
        "StageFailed",
        "Trimmed",
        "advise",
        "analyze",
        "check",
        "compare",
        "deploy",
        "diagnose",
        "diff",
        "package",
        "profile",
        "search",
        "train",
        "trim",
        "verify",
    ]

_HOMES = {
    "commands.analyze": ("Analysis", "AnalysisRequest", "SensitivityRequest", "analyze"),
    "commands.check": ("Checked", "check"),
    "commands.compare": ("ComparisonRequest", "compare"),
    "commands.deploy": ("deploy",),
    "commands.diagnose": ("Diagnosis", "DiagnosisRequest", "diagnose"),
    "commands.diff": ("Diff", "diff"),
    "commands.job_run": ("Result",),
    "commands.profile": ("profile",),
    "commands.verify": ("verify",),
    "extras.apps.package": ("package",),
    "extras.hugging_face.trim": ("Trimmed", "trim"),
    "extras.search.advise": ("Advised", "advise"),
    "extras.search.search": ("SearchResult", "search"),
    "extras.search.train": ("train",),
    "pipeline.job_request": ("Options",),
    "core.errors": ("CheckFailed", "EdgeError", "InputError", "StageFailed"),
}


def __getattr__(name: str) -> object:
    """The public names are imported from their modules at first use, so `import edgecompress` is cheap."""
    if name == "__all__":  # a star imports every name, so none of an extra that is not here
        return [each for each in __dir__() if each != "__version__"]
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'edgecompress' has no attribute '{name}'")
    from importlib import import_module

    from edgecompress.core import extras

    folder, *rest = home.split(".")
    return getattr(extras.part(*rest) if folder == "extras" else import_module(f"edgecompress.{home}"), name)


def __dir__() -> list[str]:
    """What completion and `help` show: no name of an extra that is not here, which cannot be imported."""
    from edgecompress.core import extras

    parts = {home: home.split(".") for home in _HOMES}
    lost = {home for home, (folder, name, *_) in parts.items() if folder == "extras" and not extras.is_here(name)}
    return sorted({"__version__", *(name for home, names in _HOMES.items() if home not in lost for name in names)})
