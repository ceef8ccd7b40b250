"""`edgecompress trim`: a Hugging Face folder with the tokens that some texts use alone."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgecompress.commands import job_run
from edgecompress.core import environments, output_place, registry
from edgecompress.core.errors import InputError, edge_errors
from edgecompress.core.json import Json
from edgecompress.core.model import CARD, Stage
from edgecompress.core.plain_text import printed
from edgecompress.core.source import PRETRAINED
from edgecompress.pipeline import plan
from edgecompress.pipeline.job import job
from edgecompress.pipeline.job_request import Name, Options

CALL = "extras.hugging_face.trimming:run"


@dataclass(frozen=True)
class Trimmed:
    """The folder, and what was found, as JSON."""

    out: Path
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return printed(lambda _: text(self))


@edge_errors
def trim(
    model: Name,
    out: Name,
    *,
    data: Name | None = None,
    least: int = 1,
    settings: Mapping[str, Json] | None = None,
    options: Options | None = None,
) -> Trimmed:
    """Writes the folder `model` to `out` with the tokens that the texts of `data` use `least` times or more.

    Raises EdgeError: InputError where it is no folder of a net of texts, or `out` is there.
    """
    options, folder = options or Options(), Path(out)
    output_place.check_folder(folder, "--out")
    if folder.exists():
        raise InputError(f"{folder}: is there already; give another folder as --out")
    if least < 1:
        raise InputError(f"--least {least}: must be at least 1")
    trim_job = job(str(model), data=None if data is None else str(data), settings=settings)
    source = trim_job.resolved
    plan.front(trim_job)
    if source.calls("data") or source.call != PRETRAINED:
        raise InputError(f"{source.model}: MODEL must be a Hugging Face folder, and --data files of texts")
    environments.require(registry.call(CALL)[0], "trim")
    stage = Stage(
        "trim",
        CALL,
        options={**source.for_data(), "least": least},
        user_code=True,
        user_files=source.data_files,
        estimate_s=30.0,
    )
    walk = job_run.begin(trim_job, options, f"trim>{trim_job.source.given}")
    walk.stages([stage])
    made = job_run.artifact_of(walk, "trim")
    shutil.copytree(made.path, folder, ignore=shutil.ignore_patterns(CARD))
    return Trimmed(folder, made.facts)


def text(trimmed: Trimmed) -> str:
    """What was kept and what it covers, in a few lines."""
    told = trimmed.facts
    (before, after), (bytes_before, bytes_after), held = told["tokens"], told["bytes"], told["held_out"]
    agree = "are the same" if told["db"] is None else f"agree to {told['db']:.0f} dB"
    return (
        f"{trimmed.out}: {after:,} of {before:,} tokens, {bytes_after:,} of {bytes_before:,} bytes\n"
        f"of {held['texts']:,} texts that did not choose, {held['whole']:.1%} have kept tokens alone, and "
        f"{held['tokens']:.2%} of all their tokens are kept; the others become smaller pieces\n"
        f"the answers to {told['tried']} texts of kept tokens {agree}"
    )
