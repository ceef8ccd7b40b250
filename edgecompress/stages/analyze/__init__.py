"""Analyses a model: what its layers cost, which weights are zero, which layers are sensitive to compression."""

from __future__ import annotations

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.core.source import TORCH
from edgecompress.formats import sparsity
from edgecompress.stages.analyze import activations, layers, page, sensitivity, summaries, weights


def run(request: Request) -> Artifact:
    """The stage: {"model"; "samples" where it is a torch net} -> "analysis": costs and zeros in the facts."""
    model = request.model
    if not weights.readable(model.kind):
        raise InputError(f"analyze reads {weights.refused(model)}")
    # the items of a run: `batch`, as far as the model takes so many
    first = model.batch
    batch = first if isinstance(first, int) else max(first.min, min(first.max, request.context.batch))
    if model.kind in TORCH:
        rows, parameters = layers.of_torch(model, request.inputs["samples"], batch)
        unsized: tuple[str, ...] = ()
    else:
        rows, parameters, unsized = layers.of_file(model, batch)
    zeros, histograms = [], []
    for name, weight in weights.of(model):
        zeros.append(sparsity.row(name, weight))
        histograms.append(weights.histogram(name, weight))
    facts = {
        "kind": model.kind,
        "batch": batch,
        "layers": rows,
        "total": layers.total(rows, parameters, unsized),
        "sparsity": {"rows": zeros, "total": sparsity.total(zeros)},
        "weights": histograms,
    }
    return Artifact(request.out, "analysis", facts=facts).write()


def sense(request: Request) -> Artifact:
    """The stage: {"model", "samples"} -> "sensitivity": see `sensitivity.points`."""
    return Artifact(request.out, "sensitivity", facts=sensitivity.points(request)).write()


def watch(request: Request) -> Artifact:
    """The stage: {"model", "samples"} -> "activations": see `activations.statistics`."""
    return Artifact(request.out, "activations", facts=dict(activations.statistics(request))).write()


def summarize(request: Request) -> Artifact:
    """The stage: {"model", "samples"} -> "summaries": see `summaries.of`."""
    return Artifact(request.out, "summaries", facts=dict(summaries.of(request))).write()


def draw(request: Request) -> Artifact:
    """The stage: {"analysis"; "sensitivity"; "storage"; "activations"} -> "page": analysis.html.

    options: "title", "devices".
    """
    facts = {role: dict(artifact.facts) for role, artifact in request.inputs.items()}
    asked = (facts.get(role) for role in ("sensitivity", "storage", "activations"))
    text = page.page(facts["analysis"], request.options, *asked)
    (request.out / page.FILE).write_text(text, encoding="utf-8")
    return Artifact(request.out, "page").write()
