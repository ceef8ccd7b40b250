"""Reads one of Distiller's schedules: what it does, epoch by epoch, and whether it fits a net; and draws its course."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from edgecompress.core import source as sources
from edgecompress.core.errors import EdgeError, InputError, first_line
from edgecompress.core.model import Artifact, Request
from edgecompress.extras.schedules import arguments, outline, parameters, post_training, reader, thinning
from edgecompress.extras.schedules.outline import EpochRow, PolicyRow
from edgecompress.extras.schedules.reader import Schedule
from edgecompress.formats import torch_module
from edgecompress.reporting import html, vega
from edgecompress.reporting.figure_style import Values, axis, quantity
from edgecompress.reporting.html_tags import Raw, bdi, tag
from edgecompress.stages import data

if TYPE_CHECKING:
    from torch import Tensor, nn

PAGE, PICTURE = "schedule.html", "schedule.png"
DATA = {"cifar10": (3, 32, 32), "cifar100": (3, 32, 32), "mnist": (1, 28, 28), "imagenet": (3, 224, 224)}  # an item
HEIGHT = 180  # pixels of each picture
GIVE = "give the sizes of an item of the input, --shape 3,32,32, or --data"
OF_NET = "of all weights"
INK = {f"var(--c{i})": colour for i, colour in enumerate(("#2563a8", "#b4541a", "#3b7d3a", "#8a3fa0", "#a8852a"), 1)}
INK |= {"var(--muted)": "#555555", "var(--grid)": "#dddddd", "var(--line)": "#888888"}  # where there is no page
Facts = Mapping[str, Any]


class ScheduleFacts(TypedDict):
    """A schedule; `problems`: why it cannot run, on the model where there is one. `flags`: see `outline.flags`."""

    policies: list[PolicyRow]
    warnings: list[str]
    problems: list[str]
    epochs: list[EpochRow]
    flags: dict[str, float]
    post_training: bool  # a quantizer that needs no training, and nothing else


def run(request: Request) -> Artifact:
    """The stage: {} -> "schedule", its facts a `ScheduleFacts`.

    options: "file"; "rename", see `reader.read`; "model", a factory, or ""; "shape" of an item of its input, or None;
    else "source" (see core.source), which has its data, or None; "epochs" and "lr" of the course, or None: those of
    its header.
    """
    asked = request.options
    schedule = reader.read(asked["file"], asked["rename"])
    flags = outline.flags(asked["file"])
    net = torch_module.factory(asked["model"]) if asked["model"] else None
    problems, odd = _tried(schedule, net, asked) if net is not None else ([], [])
    epochs = asked["epochs"] or flags.get("epochs") or outline.end(schedule)
    lr = asked["lr"] or flags.get("lr") or 0.1
    facts: ScheduleFacts = {
        "policies": outline.policies(schedule),
        "warnings": list(dict.fromkeys((*schedule.warnings, *odd))),
        "problems": problems,
        "epochs": [] if problems else outline.course(schedule, int(epochs), lr, net),
        "flags": flags,
        "post_training": post_training.quantizer(schedule) is not None,
    }
    return Artifact(request.out, "schedule", facts=dict(facts)).write()


def _tried(schedule: Schedule, net: nn.Module, asked: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Why it cannot run on the net, every name that it lacks first; and what it warns of."""
    import torch

    from edgecompress.extras.schedules.scheduler import CompressionScheduler

    problems, odd = [*dict.fromkeys(_unknown(schedule, net))], list[str]()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            if quantizer := post_training.quantizer(schedule):
                post_training.check(net, quantizer)
            elif not problems:
                thins = [p for p in schedule.policies if isinstance(p.instance.arguments, arguments.Thinning)]
                inputs = _inputs(schedule, net, asked) if thins else None
                if thins and not inputs:
                    where = f"{thins[0].where}: {thins[0].instance.name}"
                    odd = [f"{where}: thinning was not tried; {GIVE}"]
                    schedule = replace(schedule, policies=tuple(p for p in schedule.policies if p not in thins))
                elif inputs and thins:
                    odd = thinning.conflicts(net, schedule, inputs)
                CompressionScheduler(net, torch.optim.SGD(net.parameters(), lr=0.1), schedule, inputs)
        except EdgeError as error:
            problems.append(str(error))
    return problems, [*odd, *(text for each in warned if (text := str(each.message)).startswith(schedule.path))]


def _inputs(schedule: Schedule, net: nn.Module, asked: Mapping[str, Any]) -> list[Tensor] | None:
    """Two items for the net: of the shape asked for, of its data, or as in the data set that an extension names.

    None where nobody knows. Raises InputError where the net does not take them.
    """
    import torch

    extensions = schedule.instances.get("extensions", {}).values()
    named = {each.where: each.arguments for each in extensions if isinstance(each.arguments, arguments.Thinning)}
    known = next((DATA[each.dataset] for each in named.values() if each.dataset in DATA), ())
    if asked["source"] and not asked["shape"]:
        inputs = [torch.from_numpy(array) for array in data.first(sources.read(asked), 2).values()]
    elif shape := asked["shape"] or known:
        inputs = [torch.zeros(2, *shape)]
    else:
        return None
    try:
        with torch.no_grad():
            copy.deepcopy(net).eval()(*inputs)
    except Exception as error:  # of the user's own forward
        shapes = ", ".join(" x ".join(map(str, each.shape[1:])) for each in inputs)
        says = f"{next(iter(named))}: thinning: the net does not take an item of {shapes}: {first_line(error)}"
        raise InputError(f"{says}; {GIVE}") from error
    return inputs


def _unknown(schedule: Schedule, net: nn.Module) -> Iterator[str]:
    for policy in schedule.policies:
        for name in outline.names(policy):
            try:
                parameters.found(net, [name], policy.instance.where)
            except EdgeError as error:
                yield str(error)


# --------------------------------------------------------------------------- pictures


def draw(request: Request) -> Artifact:
    """The stage: {"schedule"} -> "page": schedule.html and schedule.png; options: "title"."""
    import vl_convert

    facts, title = request.inputs["schedule"].facts, request.options["title"]
    sparsity, rates = _pictures(facts["epochs"])
    figure = [tag("figure", Raw(vega.svg(spec, name)), class_="figure plain") for name, spec in (sparsity, rates)]
    top = tag("header", tag("p", "edgecompress schedule", class_="kicker"), tag("h1", bdi(title)))
    heads = ("Planned share of zeros", "Learning rate")
    sections = [tag("section", tag("h2", head), drawn) for head, drawn in zip(heads, figure, strict=True)]
    (request.out / PAGE).write_text(html.document(title, tag("main", top, *sections)), encoding="utf-8")
    both = {"vconcat": [_alone(spec) for _, spec in (sparsity, rates)], "background": "white", "padding": 12}
    (request.out / PICTURE).write_bytes(vl_convert.vegalite_to_png(both, scale=2))
    return Artifact(request.out, "page").write()


def _pictures(epochs: Sequence[EpochRow]) -> tuple[tuple[str, vega.Spec], tuple[str, vega.Spec]]:
    """The shares that each pruner reaches, and the learning rate, over the epochs."""
    shares = [
        {"epoch": row["epoch"], "share": share, "of": name, "says": f"{name} at epoch {row['epoch']}: {share:.0%}"}
        for row in epochs
        for name, share in {**row["shares"], OF_NET: row["sparsity"]}.items()
        if share is not None
    ]
    rates = [
        {"epoch": row["epoch"], "lr": row["lr"], "says": f"{row['lr']:.3g} at epoch {row['epoch']}"} for row in epochs
    ]
    x = quantity("epoch", axis("epoch"))
    named = list(dict.fromkeys(row["of"] for row in shares))
    lines = [f"var(--c{1 + index % 5})" for index in range(len(named))]
    colour = {"field": "of", "type": "nominal", "scale": {"domain": named, "range": lines}, "title": None}
    y = quantity("share", axis("zeros", format="%", grid=True), domain=[0, 1])
    fall = quantity("lr", axis("learning rate", grid=True), zero=True)
    return (
        ("sparsity", _lines(shares, "share", x=x, y=y, color=colour)),
        ("rate", _lines(rates, "learning rate", x=x, y=fall)),
    )


def _lines(values: Values, what: str, **encoding: object) -> vega.Spec:
    line = vega.layer(values, {"type": "line", "interpolate": "step-after", "strokeWidth": 2}, **encoding)
    dots = vega.described(values, {"type": "point", "filled": True, "size": 14}, what, **encoding)
    return vega.unit(HEIGHT, [line, dots])


def _alone(spec: vega.Spec) -> vega.Spec:
    """A picture without a page, whose colours are the page's."""
    import json

    text = json.dumps({key: value for key, value in spec.items() if key not in ("config", "autosize")})
    for name, ink in INK.items():
        text = text.replace(name, ink)
    plain: vega.Spec = json.loads(text)
    return plain
