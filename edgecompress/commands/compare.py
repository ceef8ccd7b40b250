"""`edgecompress compare`: reads reports, measures again on request, and compares them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.commands import profile
from edgecompress.commands.result import Options
from edgecompress.core.errors import InputError, StageFailed, did_you_mean
from edgecompress.reporting import before_after, gates, read
from edgecompress.reporting.compare import BY_NAME, DROP, ComparedVariant, Report, ReportComparison, of
from edgecompress.reporting.formatting import cleaned


def compare(paths: Sequence[Path | str], fail_if: Sequence[str] = ()) -> ReportComparison:
    """Each of `paths` is a report.json, or the folder it is in; PATH@VARIANT names a variant that did not ship.

    Raises InputError for a path, variant or gate that is wrong. A failed gate raises nothing: see `exit_code`.
    """
    return of(_entries(paths), _gates(fail_if))


def remeasured(
    paths: Sequence[Path | str], fail_if: Sequence[str] = (), *, options: Options | None = None, **more: Any
) -> ReportComparison:
    """The artifacts of `paths`, folders that deploys wrote, measured in turns on one device and compared.

    Accuracy is that of their reports. `more` is what `api.profile` takes. Raises EdgeError.
    """
    entries = _entries(paths)
    promises = _gates(fail_if)
    names = [f"{letter}-{e.variant['name']}" for letter, e in zip(string.ascii_uppercase, entries, strict=False)]
    folders = dict(zip(names, map(Path, paths), strict=True))
    result = profile.profile_in_turns(folders, options=options, **more)
    if result.report is None:
        raise StageFailed(result.message)
    report, run = _report(result.report)
    variants = {v["name"]: v for v in report["variants"]}
    return of([_again(e, report, variants[name], run) for e, name in zip(entries, names, strict=True)], promises)


def _again(entry: ComparedVariant, report: Report, variant: Mapping[str, Any], run: str) -> ComparedVariant:
    """An entry measured again: what the test data said of it stays."""
    numbers = {**variant["numbers"], "accuracy": entry.variant["numbers"]["accuracy"]}
    return ComparedVariant(entry.label, {**report, "data": entry.report["data"]}, {**variant, "numbers": numbers}, run)


# --------------------------------------------------------------------------- what is compared


def _gates(fail_if: Sequence[str]) -> list[gates.Gate]:
    return [gates.read(words, BY_NAME, [DROP]) for words in fail_if]


def _entries(paths: Sequence[Path | str]) -> list[ComparedVariant]:
    if not 2 <= len(paths) <= len(string.ascii_uppercase):
        raise InputError("compare takes two reports or more; the first is the baseline")
    return _labelled([_entry(str(path)) for path in paths])


def _entry(path: str) -> ComparedVariant:
    place, _, variant = (path, "", "") if Path(path).exists() else path.rpartition("@")
    report, run = _report(Path(place or path))
    with read.rendering(path):
        names = [v["name"] for v in report["variants"]]
        name = variant or before_after.subject(report)
    if name not in names:
        if variant:
            raise InputError(f"{path}: no variant '{variant}'{did_you_mean(variant, names)}")
        raise InputError(f"{path}: no variant shipped; name one as {path}@VARIANT: {', '.join(names)}")
    return ComparedVariant(path, report, report["variants"][names.index(name)], run)


def _report(path: Path) -> tuple[Report, str]:
    """A report without what could drive a terminal, and its sha256."""
    report = cleaned(read.report(path))
    plain = json.dumps({**report, "command": ""}, sort_keys=True)
    return report, hashlib.sha256(plain.encode()).hexdigest()


def _labelled(entries: Sequence[ComparedVariant]) -> list[ComparedVariant]:
    """With labels that tell them apart: the path, and a number where one is given twice."""
    labels = [e.label for e in entries]
    twice = {label for label in labels if labels.count(label) > 1}
    numbered = [f"{label} ({i})" if label in twice else label for i, label in enumerate(labels, 1)]
    return [dataclasses.replace(e, label=label) for e, label in zip(entries, numbered, strict=True)]
