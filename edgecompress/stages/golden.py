"""The outputs of the source for the samples, computed once: verify, devices and app packages then need no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from edgecompress.core import registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import AT_CHANCE, DETECT, WARNINGS, Artifact, Request
from edgecompress.core.source import TORCH
from edgecompress.data import channel_axis, detections, metrics, segments, states, tensors
from edgecompress.stages import batch_axis, box_doubts, doubts, refused_numbers

if TYPE_CHECKING:
    import numpy as np

BATCH = 8  # items at a time where the source takes any number

Arrays: TypeAlias = "Mapping[str, np.ndarray]"
Run: TypeAlias = "Callable[[Arrays], Arrays]"  # inputs by name -> outputs by name


class MetricFacts(TypedDict):
    """The source's own value of a metric."""

    name: str
    value: float | None
    unit: str
    n: int


def run(request: Request) -> Artifact:
    """The stage: {"model": the source, "samples"} -> "golden": SPLIT/OUTPUT.npy, item i for item i of the samples.

    options: "splits"; "metric": its value for the source goes into the facts (the user's own is left to verify);
    "detect" (of settings.Detect); "labels": how many classes are named, "head" (of settings.Decode). A torch source
    runs in torch, any other in the runtime of its format. Raises InputError when an output is not finite, labels or
    what is declared do not fit it, axis 0 is not the batch, or the batch is another than the source takes.
    """
    model, samples = request.model, request.inputs["samples"]
    _check_batch(model, request.context.batch)
    _check_labels(request)
    source = refused_numbers.WatchedRun(_by_items(opened(model, request.context.threads), model))
    splits, warnings = request.options["splits"], list[str]()
    for index, split in enumerate(splits):
        present = samples.facts["splits"]
        if not present.get(split):
            raise InputError(f"the data has no split '{split}', only: {', '.join(present)}; give it one")
        writer = tensors.Appender(request.out / split)
        total = tensors.count(samples, split)
        calls = tensors.batches(samples, split, batch(model), model=model)
        items = ({s.name: states.parted(call[s.name], s) for s in model.inputs} for call in calls)
        for outputs in _outputs(source, items, warnings, split):
            _keep(writer, outputs, total)
            request.progress((index + writer.count / total) / len(splits), f"{split}: {writer.count} of {total}")
        writer.close()
    _check_numbers(source, request)
    specs = tuple(spec for spec in model.outputs if not spec.feeds)
    draft = Artifact(request.out, "golden", model.inputs, specs)
    metric, doubted, no_proof = _judged(request, draft)
    facts: dict[str, object] = {"n": {s: tensors.count(samples, s) for s in splits}, "metric": metric}
    if splits[0] == "test":  # of the others it would be said twice
        warnings += doubted
        facts |= {AT_CHANCE: no_proof} if no_proof else {}
    facts |= {DETECT: model.facts[DETECT]} if DETECT in model.facts else {}
    return replace(draft, facts={**facts, WARNINGS: warnings}).write()


def _check_batch(model: Artifact, asked: int) -> None:
    """Raises InputError for a batch that the source does not take: nothing made of it does."""
    first = model.batch
    least, most = (first, first) if isinstance(first, int) else (first.min, first.max)
    if most < 1:
        raise InputError(
            f"'{model.inputs[0].name}' takes a batch of 0, so no item; export it with a batch of 1 or more"
        )
    if not least <= asked <= most:
        takes = f"is fixed to {least}; use --batch {least}" if least == most else f"is {least} to {most}"
        raise InputError(f"--batch {asked}: the batch of the source {takes}")


def batch(model: Artifact) -> int:
    """Items per call: what the source is made for, else BATCH or the most it takes."""
    first = model.batch
    return first if isinstance(first, int) else max(first.min, min(first.max, BATCH))


def _by_items(infer: Run, model: Artifact) -> Run:
    """Real outputs, those that feed an input left out, from a model's inputs with their items on axis 0."""
    import numpy as np

    specs = {spec.name: spec for spec in model.inputs}
    kept = [spec for spec in model.outputs if not spec.feeds]

    def run(inputs: Arrays) -> Arrays:
        outputs = infer({name: states.joined(a, specs[name]) for name, a in inputs.items()})
        real = {spec.name: tensors.real(np.asarray(outputs[spec.name]), spec) for spec in kept}
        return {spec.name: states.parted(real[spec.name], spec) for spec in kept}

    return run


def _outputs(
    source: refused_numbers.WatchedRun, batches: Iterator[Arrays], warnings: list[str], split: str
) -> Iterator[Arrays]:
    """Outputs of each batch, once the first shows that axis 0 is the batch; adds to `warnings`."""
    seen = 0
    for inputs in batches:
        outputs = source.run(inputs, split, seen)
        if not seen:
            batch_axis.check(source.infer, inputs, outputs)
            warnings += [doubts.MIXED] if batch_axis.mixed(source.infer, inputs, outputs) else []
        seen += len(next(iter(inputs.values())))
        yield outputs


def _check_numbers(source: refused_numbers.WatchedRun, request: Request) -> None:
    """Raises InputError for whole numbers of the other splits that the source does not take: what calibrates breaks."""
    model, samples, step = request.model, request.inputs["samples"], batch(request.model)
    if states.names(model):
        return
    for split in (each for each in samples.facts["splits"] if each not in request.options["splits"]):
        for number, inputs in enumerate(tensors.batches(samples, split, step, model=model)):
            parted = {spec.name: states.parted(inputs[spec.name], spec) for spec in model.inputs}
            if source.is_new(parted):
                source.run(parted, split, number * step)


def _keep(writer: tensors.Appender, outputs: Mapping[str, np.ndarray], total: int) -> None:
    """The batch without its padding, once it is known to be finite."""
    import numpy as np

    kept = {}
    for name, output in outputs.items():
        kept[name] = output[: total - writer.count]
        finite = np.isfinite(kept[name].reshape(len(kept[name]), -1)).all(axis=1)
        if not finite.all():
            raise InputError(
                f"the source's output '{name}' is NaN or infinite for item {writer.count + int(np.argmin(finite))} "
                f"of split '{writer.folder.name}'; check the model, and the preprocessing of its data"
            )
    writer.append(kept)


def opened(model: Artifact, threads: int) -> Run:
    """The source, ready to be called: torch for a torch source, else the runtime of its format."""
    return (_torch if model.kind in TORCH else _runtime)(model, threads)


def _torch(model: Artifact, threads: int) -> Run:
    import torch

    from edgecompress.formats import torch_module

    torch.set_num_threads(threads)  # few: the sums do not depend on the machine, and nothing waits on a busy core
    net = torch_module.rebuild(model)

    def infer(inputs: Arrays) -> Arrays:
        outputs = torch_module.outputs(net, model, {name: torch.from_numpy(array) for name, array in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return infer


def _runtime(model: Artifact, threads: int) -> Run:
    opener = next((module for _, module in registry.every("runtimes") if model.kind == module.FORMAT), None)
    if opener is None:
        raise StageFailed(f"golden: no runtime here runs the format '{model.kind}'")
    infer: Run = opener.open(model, threads).run
    return infer


def _judge(request: Request) -> metrics.Metric | None:
    """The metric that judges the source here; None for "none", and for the user's own function."""
    name = request.options.get("metric", "none")
    return None if ":" in name else metrics.find(name)


def _check_labels(request: Request) -> None:
    """Raises InputError for labels that fit no output of the source, before minutes of it: zeros stand in for it."""
    import numpy as np

    metric, outputs = _judge(request), [spec for spec in request.model.outputs if not spec.feeds]
    labels = tensors.labels(request.inputs["samples"], request.options["splits"][0])
    if metric is None or labels is None or metric.whole or metric.kind not in ("share", "perplexity"):
        return
    scored = metrics.scored_spec(outputs, labels.ndim + 1)
    if all(isinstance(size, int) for size in scored.shape[1:]):
        shape = (len(labels), *scored.concrete()[1:])
        metrics.scores(metric, {scored.name: np.broadcast_to(np.float32(0), shape)}, labels)


def _judged(request: Request, golden: Artifact) -> tuple[MetricFacts | None, list[str], str]:
    """The source's own value on the first split, what is doubtful about it, and why it is no proof.

    No value without labels, and where nothing judges it here.
    """
    metric, split = _judge(request), request.options["splits"][0]
    labels = tensors.labels(request.inputs["samples"], split)
    found = doubts.of_labels(request.inputs["samples"], request.options.get("metric", "none"), request.model)
    found += box_doubts.of_splits(request.inputs["samples"]) if metric and metric.name in doubts.FINDS else []
    outputs = {spec.name: tensors.load(golden, split, spec.name) for spec in golden.outputs}
    detect = detections.declared(request.options, request.model)
    asked = box_doubts.Asked(request.options.get("labels", 0), request.options.get("head", ""))
    boxes = box_doubts.of_boxes(outputs, detect, asked) if detect or metric is None or labels is None else []
    raw = [] if detect else box_doubts.of_raw_heads(outputs, request.model.inputs)
    boxes = boxes if detect or not raw else []
    if labels is None or metric is None:
        return None, found + boxes + raw, ""
    scored, found = doubts.listed(metric, outputs, detect, outputs), found + boxes
    try:
        scores = metrics.scores(metric, scored, labels)
    except InputError as error:
        raise InputError("; ".join([str(error), *raw])) from error
    told, no_proof = doubts.of_answers(metric, scores, outputs, labels, "the source's")
    picture = channel_axis.picture(spec.concrete() for spec in request.model.inputs)
    told += box_doubts.of_things(metric, scored, labels, picture) if metric.name in doubts.FINDS else []
    told += box_doubts.of_regions(outputs, picture, asked.labels) if metric.name in segments.METRICS else []
    value: MetricFacts = {
        "name": metric.name,
        "value": metrics.summary(metric, scores),
        "unit": metric.unit,
        "n": len(scores),
    }
    return value, found + told, no_proof
