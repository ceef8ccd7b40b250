"""What each artifact's file holds and computes in, and names that say another precision than the file has."""

from __future__ import annotations

from collections.abc import Iterator

from edgecompress.formats.precision import facts
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_variant import BuiltArtifact, SourceArtifact


def of(artifact: BuiltArtifact | SourceArtifact | None) -> facts.Precision | None:
    """What is known of an artifact of report.json."""
    known: facts.Precision | None = artifact.precision if artifact else None
    return known


def rows(report: Report) -> tuple[tuple[str, ...], ...]:
    """Weights and arithmetic of the source and of each variant; none where no file tells, or nobody read them."""
    artifacts = {"source": report.source_artifact(), **{v.name: v.artifact for v in report.variants}}
    read = {name: known for name, artifact in artifacts.items() if (known := of(artifact))}
    if all(known["weights"] is None for known in read.values()):
        return ()
    rows = []
    for name, known in read.items():
        half = "; as fp16 on CPUs that have it" if halved(report, name) else ""
        told = facts.weights(known), f"{facts.computes(known)}{half}"
        rows.append((name, *told) if known["weights"] is not None else (name, f"unknown: {known['why']}", ""))
    return tuple(rows)


def halved(report: Report, name: str) -> bool:
    """Whether a variant's runtime was asked to compute in half precision (`computes` of a step): no file tells that."""
    steps = [step for v in report.target.get("variant", ()) if v["name"] == name for step in v["compress"]]
    return any(step.get("computes") == "fp16" for step in steps)


def called(report: Report, name: str) -> str:
    """A variant's name, with what it is where that is another precision: "fp32 (int8)"."""
    variant = report.variant(name)
    known = of(variant.artifact) if variant else None
    false = known and known["weights"] is not None and any(facts.contradicts(known, w) for w in facts.named(name))
    return f"{name} ({facts.main(known)})" if known and false else name


def notes(report: Report) -> Iterator[str]:
    """A line for each variant whose name says another precision than its file has."""
    source = of(report.source_artifact())
    for variant in report.variants:
        known = of(variant.artifact)
        if known and called(report, variant.name) != variant.name:
            same = source and (source["weights"], source["computes"]) == (known["weights"], known["computes"])
            unchanged = "as the source: no weight and no operator of this model changed precision"
            why = unchanged if same else "unlike its name"
            yield f"{variant.name} is {facts.main(known)}, {why} ({facts.line(known)})."
