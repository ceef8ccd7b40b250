"""`edgecompress compare`: reads reports, measures again on request, and compares them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Unpack

from edgecompress.commands import profile
from edgecompress.core.errors import InputError, StageFailed, did_you_mean
from edgecompress.core.json import Json
from edgecompress.pipeline.job_request import JobRequest, Options
from edgecompress.reporting import before_after, gates, model, read
from edgecompress.reporting.compare import BY_NAME, DROP, LOSS, ComparedVariant, ReportComparison, of
from edgecompress.reporting.formatting import cleaned
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_variant import Variant


@dataclass(frozen=True)
class ComparisonRequest:
    """How reports are compared."""

    fail_if: tuple[str, ...] = ()  # gates
    strict: bool = False  # a gate that is undecided is broken
    across_models: bool = False  # compare different models, too

    def gates(self) -> list[gates.Gate]:
        """The gates, read; raises InputError."""
        return [gates.read(words, BY_NAME, [DROP, LOSS]) for words in self.fail_if]


DEFAULT = ComparisonRequest()


def compare(
    paths: Sequence[Path | str],
    request: ComparisonRequest | None = None,
    *,
    fail_if: str | Sequence[str] = (),
    strict: bool = False,
    across_models: bool = False,
) -> ReportComparison:
    """Each of `paths` is a report.json, or the folder it is in; PATH@VARIANT names a variant that did not ship.

    fail_if, strict, across_models: see ComparisonRequest, which may be given in their place.

    Raises InputError for a path, variant or gate that is wrong, and for reports of different models. A failed gate
    raises nothing: see `exit_code`.
    """
    if isinstance(paths, str) or (request is not None and not isinstance(request, ComparisonRequest)):
        raise InputError("compare: give a list of reports, the first the baseline, as compare([before, after])")
    gates = (fail_if,) if isinstance(fail_if, str) else tuple(fail_if)
    request = request or ComparisonRequest(gates, strict, across_models)
    promises = request.gates()  # before files are read: they are wrong whatever these hold
    return of(_entries(paths, request), promises, request.strict)


def remeasured(
    paths: Sequence[Path | str],
    request: ComparisonRequest = DEFAULT,
    *,
    options: Options | None = None,
    **how: Unpack[JobRequest],
) -> ReportComparison:
    """The artifacts of `paths`, folders that deploys wrote, measured in turns on one device and compared.

    Accuracy is that of their reports. `how`: as `profile` takes it. Raises EdgeError.
    """
    promises = request.gates()
    entries = _entries(paths, request)
    names = [f"{letter}-{e.variant.name}" for letter, e in zip(string.ascii_uppercase, entries, strict=False)]
    folders = dict(zip(names, map(Path, paths), strict=True))
    result = profile.profile_in_turns(folders, options=options, **how)
    if result.report is None:
        raise StageFailed(result.message)
    report, run = _report(result.report)
    variants = {v.name: v for v in report.variants}
    again = [_again(e, report, variants[name], run) for e, name in zip(entries, names, strict=True)]
    return of(again, promises, request.strict)


def _again(entry: ComparedVariant, report: Report, variant: Variant, run: str) -> ComparedVariant:
    """An entry measured again: what the test data said of it stays."""
    from msgspec.structs import replace

    numbers = {**variant.numbers, "accuracy": entry.variant.numbers["accuracy"]}
    judged = replace(variant, numbers=numbers, verify=entry.variant.verify)
    return ComparedVariant(entry.label, replace(report, data=entry.report.data), judged, run)


# --------------------------------------------------------------------------- what is compared


def _entries(paths: Sequence[Path | str], request: ComparisonRequest) -> list[ComparedVariant]:
    if not 2 <= len(paths) <= len(string.ascii_uppercase):
        raise InputError("compare takes two reports or more; the first is the baseline")
    entries = [_entry(str(path)) for path in paths]
    labels = [e.label for e in entries]
    for number, label in enumerate(labels, 1):
        if labels.count(label) > 1:
            entries[number - 1] = dataclasses.replace(entries[number - 1], label=f"{label} ({number})")
    for other in entries[1:] if not request.across_models else ():
        with read.rendering(other.label):
            same = _one_model(entries[0].report.source, other.report.source)
        if not same:
            ours, theirs = (_model(e.report.source) for e in (entries[0], other))
            raise InputError(
                f"{entries[0].label} is of {ours} and {other.label} of {theirs}: "
                "these are two different models, so no change is computed; "
                "give reports of one model, or --across-models"
            )
    return entries


def _one_model(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two sources are one model: the same content, or one name and one task where it was trained again."""
    ours, theirs = old["artifact"] or {}, new["artifact"] or {}
    if ours and theirs:
        if ours["sha256"] == theirs["sha256"]:
            return True
        shapes = [[spec["shape"][1:] for spec in source["outputs"]] for source in (ours, theirs)]
        if shapes[0] != shapes[1] or old.get("metric") != new.get("metric"):
            return False
    return _name(old) == _name(new)


def _name(source: Mapping[str, Json]) -> str:
    """What the author calls it; of a file its name, wherever it lies."""
    return str(source.get("name") or PurePath(str(source.get("model") or "")).name)


def _model(source: Mapping[str, Any]) -> str:
    """A source in words: `net.onnx (top1, 1f3a…)`."""
    facts = [str(source.get("metric") or ""), str((source["artifact"] or {}).get("sha256") or "")[:8]]
    return f"{_name(source) or 'a model without a name'} ({', '.join(filter(None, facts)) or 'not identified'})"


def _entry(path: str) -> ComparedVariant:
    place, _, variant = (path, "", "") if Path(path).exists() else path.rpartition("@")
    report, run = _report(Path(place or path))
    with read.rendering(path):
        names = [v.name for v in report.variants]
        name = variant or before_after.subject(report)
    if name not in names:
        if variant:
            raise InputError(f"{path}: no variant '{variant}'{did_you_mean(variant, names)}")
        raise InputError(f"{path}: no variant shipped; name one as {path}@VARIANT: {', '.join(names)}")
    return ComparedVariant(path, report, report.variants[names.index(name)], run)


def _report(path: Path) -> tuple[Report, str]:
    """A report without what could drive a terminal, and its sha256."""
    document = cleaned(read.document(path))
    plain = json.dumps({**document, "command": ""}, sort_keys=True)
    return model.of(document), hashlib.sha256(plain.encode()).hexdigest()
