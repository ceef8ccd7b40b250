"""One of the two models as `diff` sees it: every real number that it computes on some items, and who computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import registry
from edgecompress.core.errors import EdgeError
from edgecompress.core.model import Artifact, Request
from edgecompress.core.protocols import OperatorTimes
from edgecompress.core.watched_graph import CONSTANTS, WatchedOperator, attributes, operators
from edgecompress.data import tensors
from edgecompress.device import agent_client
from edgecompress.device.request import AgentRequest
from edgecompress.stages.diagnose import layers
from edgecompress.stages.diagnose.layer_outputs import DEADLINE_S
from edgecompress.stages.diagnose.noise import Power

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.fx import Node


SAME_DB = 25.0  # of a file's outputs with its inner values handed out: those of 8 bits round at other places
PART = "getitem"  # one of the values of a node that makes several
TIMED = 5  # runs that an operator's time is the median of
HELD = "held"  # the attribute of an operator whose constant is held in fewer bits
INTEGERS = ("int8", "uint8", "int16")
ROUNDS = {
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "FakeQuantize",
    "quantize",
    "FakeQuantWithMinMaxVars",
    "MatMulNBits",
}


@dataclass(frozen=True)
class Value:
    """A real number of a net, [runs, *shape], read from disk when it is used; `dtype`: as the file holds it."""

    key: str
    array: Callable[[], np.ndarray]
    layout: str = ""
    dtype: str = "float32"


@dataclass
class Side:
    """A model that ran: its values in the order of computing, its operators, its outputs by name."""

    values: dict[str, Value]
    operators: Sequence[WatchedOperator]
    outputs: Mapping[str, np.ndarray]
    ends: Mapping[str, str]  # the value that an output is
    constant: Callable[[str], np.ndarray | None]
    quantized: bool = False  # something is held in 8 bits or fewer
    half: bool = False  # something is held in 16 bits
    half_values: bool = False  # so is what it computes
    changed: bool = False  # its inner values cannot be read: handing them out changes what it answers
    times: Mapping[str, float] = field(default_factory=dict)  # milliseconds by operator, where its runtime tells them
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def makers(self) -> dict[str, WatchedOperator]:
        """The operator that makes each value."""
        return {value: op for op in self.operators for value in op.writes}

    @cached_property
    def readers(self) -> dict[str, list[WatchedOperator]]:
        """The operators that read each value."""
        readers: dict[str, list[WatchedOperator]] = {}
        for op in self.operators:
            for value in op.reads:
                readers.setdefault(value, []).append(op)
        return readers

    def before(self, key: str) -> tuple[str, ...]:
        """The values with numbers that one is computed from, through those without; inputs of the net are in it."""
        if key not in self.known:
            found, seen, todo = list[str](), {key}, list(self.makers[key].reads) if key in self.makers else []
            while todo:
                value = todo.pop(0)
                if value in seen:
                    continue
                seen.add(value)
                if value in self.values or value not in self.makers:
                    found.append(value)
                else:
                    todo += self.makers[value].reads
            self.known[key] = tuple(found)
        return self.known[key]

    def between(self, key: str, stop: set[str]) -> list[WatchedOperator]:
        """The operators from values of `stop` to `key`, that of `key` last."""
        found, todo = dict[str, WatchedOperator](), [key]
        while todo:
            value = todo.pop()
            if value in self.makers and value not in found and value not in stop:
                found[value] = self.makers[value]
                todo += self.makers[value].reads
        chosen = {id(op) for op in found.values()}
        return [op for op in self.operators if id(op) in chosen]


# --------------------------------------------------------------------------- a file


def ask(request: Request, which: str, out: Path) -> None:
    """Runs a model by its runtime, in an agent, on the first items: as it is below `out`/own, watched below
    `out`/values.
    """
    out.mkdir()
    watched = request.inputs.get(f"watched_{which}")
    models = {"own": request.inputs[which], **({"values": watched} if watched else {})}
    options, context = request.options, request.context
    agent_request = AgentRequest(
        "layer_outputs",
        runtime=agent_client.plugin("runtimes", options[f"runtime_{which}"]),
        artifacts={label: str(model.path) for label, model in models.items()},
        samples=str(request.inputs[f"items_{which}"].path),
        split=options["split"],
        items=options["items"],
        threads=context.threads,
        batch=request.inputs["items_b"].facts["batch"],
    )
    agent_client.ask(registry.load("transports", "host").connect({}), agent_request, out, DEADLINE_S)


def times(request: Request, which: str, out: Path) -> dict[str, float]:
    """Milliseconds of each operator of the file as it is, by name; none where its runtime tells none."""
    out.mkdir()
    options, model = request.options, request.inputs[which]
    agent_request = AgentRequest(
        "ops",
        runtime=agent_client.plugin("runtimes", options[f"runtime_{which}"]),
        artifact=str(model.path),
        samples=str(request.inputs[f"items_{which}"].path),
        split=options["split"],
        threads=request.context.threads,
        batch=model.batch if isinstance(model.batch, int) else request.inputs["items_b"].facts["batch"],
        profile={"ops_runs": TIMED},
    )
    try:
        answer: OperatorTimes = agent_client.ask(
            registry.load("transports", "host").connect({}), agent_request, out, DEADLINE_S
        )
    except EdgeError:  # the page has no times then
        return {}
    return {op["name"]: op["ms"] for op in answer["ops"]}


def of_file(plain: Artifact, watched: Artifact | None, out: Path, split: str) -> Side:
    """What `watched` of its runtime made of a file, and what that computed below `out`.

    Where handing values out changes the file's own outputs (TFLite's resource variables), or the runtime watches
    nothing, the side has its outputs alone.
    """
    own = Artifact(out / "own", plain.kind)
    outputs = {spec.name: tensors.load(own, split, spec.name) for spec in plain.outputs}
    if watched is None:
        return Side({}, (), outputs, {}, lambda _: None)
    facts, folder = watched.facts, Artifact(out / "values", plain.kind)
    again = {name: tensors.load(folder, split, name) for name in outputs}
    if not all(_alike(outputs[name], again[name]) for name in outputs):
        return Side({}, (), outputs, {}, lambda _: None, changed=True)
    specs = {spec.name: spec for spec in watched.outputs}
    every = operators(facts["graph"])
    rank = {value: place for place, op in enumerate(every) for value in op.writes}

    def value_of(name: str, key: str) -> Value:
        return Value(key, lambda: tensors.load(folder, split, name), specs[name].layout, specs[name].dtype)

    told = sorted(facts["values"], key=lambda pair: rank.get(pair[1], -1))
    values = {key: value_of(name, key) for name, key in told if tensors.load(folder, split, name).dtype.kind == "f"}
    names = {name: str(place) for place, (name, _) in enumerate(facts["constants"])}
    held = _archive(watched.path / CONSTANTS)
    held_as = {dtype for _, dtype in facts["constants"]}
    computed_as = {value.dtype for value in values.values()}
    quantized = bool((held_as | computed_as) & {*INTEGERS})
    return Side(
        values,
        every,
        outputs,
        dict(facts["ends"]),
        lambda name: held[names[name]] if name in names else None,
        quantized=quantized or any(op.type in ROUNDS or op.attributes.get(HELD) in INTEGERS for op in every),
        half="float16" in held_as | computed_as,
        half_values="float16" in computed_as,
    )


def _alike(x: np.ndarray, z: np.ndarray) -> bool:
    """Whether two answers of one file are the same, but for the rounding of other kernels."""
    import numpy as np

    if not np.array_equal(np.isfinite(x), np.isfinite(z)):
        return False
    power = Power()
    power.add(x, z)
    return not power.noise or (power.sqnr_db or 0.0) > SAME_DB


def _archive(file: Path) -> Any:
    import numpy as np

    return np.load(file, mmap_mode="r", allow_pickle=False) if file.is_file() else {}


# --------------------------------------------------------------------------- a program of torch


def of_program(model: Artifact, runs: Iterator[Mapping[str, np.ndarray]], out: Path) -> Side:
    """What each node of a program computes, written below `out`: memory is that of one run."""
    import numpy as np
    import torch

    writer = tensors.Appender(out / "values")
    with torch.no_grad():
        source = layers.load(model)
        names: dict[str, Node] = {}
        real = list[str]()
        for arrays in runs:
            found = source.values([torch.from_numpy(arrays[spec.name]) for spec in model.inputs])
            names = {n.name: n for n in source.nodes if n.op == "call_function" and _real(found.get(n))}
            outputs = source.float_outputs(found)
            answers = {f"output {spec.name}": value for spec, value in zip(model.outputs, outputs, strict=False)}
            rows = {**{name: found[node] for name, node in names.items()}, **answers}
            writer.append({name: np.ascontiguousarray(value.float().numpy())[None] for name, value in rows.items()})
            real = [spec.name for spec in model.outputs[: len(outputs)]]
            del found, rows, answers, outputs  # as much as a net computes, and it is on disk now
    writer.close()
    folder = Artifact(out, "values")
    state = {n.name: _held(source.net, str(n.target)) for n in source.nodes if n.op == "get_attr"}
    live = {n for n in source.nodes if n.op == "placeholder"}
    every = []
    for node in source.nodes:
        if node.op != "call_function" or not live & {*node.all_input_nodes}:
            continue
        live.add(node)
        if layers.operator(node) != PART:
            every.append(_operator(node, live))

    def reader(name: str) -> Callable[[], np.ndarray]:
        return lambda: tensors.load(folder, "values", name)

    last = source.nodes[-1].all_input_nodes
    return Side(
        {name: Value(name, reader(name)) for name in names},
        every,
        {name: reader(f"output {name}")() for name in real},
        {spec.name: node.name for spec, node in zip(model.outputs, last, strict=False)},
        lambda name: state[name].numpy() if name in state else None,
    )


def _real(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 0


def _held(net: torch.nn.Module, path: str) -> torch.Tensor:
    value: Any = net
    for part in path.split("."):
        value = getattr(value, part)
    return value.detach().float() if value.is_floating_point() else value.detach()


def _operator(node: Node, live: set[Node]) -> WatchedOperator:
    """A node's arguments that are numbers have the names of its operator's schema."""
    schema = getattr(node.target, "_schema", None)
    named = {a.name: given for a, given in zip(schema.arguments, node.args, strict=False)} if schema else {}
    told = attributes({k: v for k, v in {**named, **node.kwargs}.items() if not hasattr(v, "op")})
    parts = tuple(user.name for user in node.users if layers.operator(user) == PART)
    reads = tuple(n.name for n in node.all_input_nodes if n in live)
    constants = tuple(_origin(n).name for n in node.all_input_nodes if n not in live)
    return WatchedOperator(
        node.name, layers.operator(node), reads, parts or (node.name,), constants, told, layers.module_of(node)
    )


def _origin(node: Node) -> Node:
    while node.op != "get_attr" and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node
