"""How a source is converted to a variant's format: a graph whose nodes are kinds and whose edges are exports."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType

from edgecompress.core import config, environments, extras, registry
from edgecompress.core.errors import ConfigError, MissingDependency, NoPath, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.model import Promise
from edgecompress.core.plugins import TechniquePlugin
from edgecompress.core.settings import Target, Variant

Call = tuple[str, dict[str, Json]]  # a stage's call and its options
# The conversions that are no runtime's export: a module becomes a program, and a file that others made a module.
TRACE, IMPORT = "stages.trace:run", "extras.onnx_nets.onnx_import:run"


def exports() -> list[tuple[str, str, str]]:
    """(from kind, to kind, call) of every way to change a kind without compressing."""
    runtimes = [
        (reads, module.FORMAT, f"runtimes.{name}:export")
        for name, module in registry.every("runtimes")
        for reads in module.READS
    ]
    imported = [("onnx", "module", IMPORT)] if extras.is_here("onnx_nets") else []
    return [("module", "program", TRACE), *imported, *runtimes]


def shortest_path(start: str, goals: Sequence[str]) -> list[str] | None:
    """The calls of the shortest conversion path from `start` to one of `goals`; None when there is none."""
    queue: deque[tuple[str, list[str]]] = deque([(start, [])])
    seen, known = {start}, exports()
    while queue:
        kind, path = queue.popleft()
        if kind in goals:
            return path
        for reads, writes, call in known:
            if reads == kind and writes not in seen:
                seen.add(writes)
                queue.append((writes, [*path, call]))
    return None


def steps(target: Target, variant: Variant, kind: str, where: str) -> list[Call]:
    """The calls from a source of `kind` to the variant's format.

    Raises ConfigError with `where` and what is wrong: NoPath where another kind of source might get there.
    """
    runtime = registry.load("runtimes", variant.runtime or target.runtime)
    place = f"{where}: variant {variant.name}"
    calls: list[Call] = []
    for index, table in enumerate(variant.compress):
        named = _technique(table, kind, runtime.FORMAT, f"{place}: compress[{index}]")
        for technique, options in _expanded(*named, f"{place}: compress[{index}]"):
            module = registry.load("techniques", technique)
            calls += [*_travel(kind, module.READS, place), (f"techniques.{technique}:apply", options)]
            kind = module.WRITES
    return _export([*calls, *_travel(kind, (runtime.FORMAT,), place)], variant, runtime, place)


def _expanded(technique: str, options: dict[str, Json], where: str) -> list[tuple[str, dict[str, Json]]]:
    """The steps that one of a recipe stands for, each of its options there and right; raises ConfigError."""
    expand = registry.technique(technique).expand
    built = config.build(registry.load("techniques", technique).Options, options, f"{where} ({technique})")
    steps = expand(built) if expand else None
    for name, inner in steps or ():
        config.build(registry.load("techniques", name).Options, inner, f"{where} ({technique}: {name})")
    return [(name, dict(inner)) for name, inner in steps] if steps else [(technique, options)]


def quantizing(variant: Variant) -> tuple[Mapping[str, Json], ...]:
    """The steps of a recipe from the first that leaves the kind "module": those before it change the net itself."""
    every = dict(registry.every("techniques"))
    own = [str(t.get("use", "")) in every and every[str(t["use"])].WRITES == "module" for t in variant.compress]
    return variant.compress[own.index(False) :] if False in own else ()


def leading(calls: Sequence[Call]) -> list[Call]:
    """The calls of techniques that change the net itself, which come first."""
    own = [call.endswith(":apply") and registry.call(call)[0].WRITES == "module" for call, _ in calls]
    return list(calls[: own.index(False)] if False in own else calls)


def precision(variant: Variant) -> str:
    """The precision that the steps of a variant produce: that of the last step that promises one, else fp32."""
    every = dict(registry.every("techniques"))
    promised = {module.PROVIDES for module in every.values() if hasattr(module, "promises")}
    used = [str(table.get("use", "")) for table in variant.compress]
    provided = [every[use].PROVIDES if use in every else use for use in used]
    return next((word for word in reversed(provided) if word in promised), "fp32")


def promised(calls: Iterable[Call]) -> Promise | None:
    """The precision that the steps of a variant promise together, the later ones first; None where none does."""
    whole: Promise | None = None
    for call, options in calls:
        technique = registry.step(call)
        if not isinstance(technique, TechniquePlugin) or technique.promises is None or technique.options is None:
            continue
        promise = technique.promises(config.build(technique.options, options, call))
        before = whole.computes if whole else ""
        whole = dataclasses.replace(promise, computes=promise.computes or before)
    return whole


def _travel(start: str, goals: Sequence[str], where: str) -> list[Call]:
    path = shortest_path(start, goals)
    if path is None:
        raise NoPath(where, f"no path from {start} to {' or '.join(goals)}; {_remedy(goals)}")
    return [(call, {}) for call in path]


def _remedy(goals: Sequence[str]) -> str:
    """Which sources there are ways from."""
    files = {r.format: r.suffix for r in registry.runtimes() if r.suffix and not r.for_tests}
    words = {"module": "a factory pkg.mod:fn", "program": ".pt2", **files}
    found = [word for kind, word in words.items() if shortest_path(kind, goals) is not None]
    return f"give another source ({', '.join(found)}) or runtime" if found else "give another runtime"


def _export(calls: list[Call], variant: Variant, runtime: ModuleType, where: str) -> list[Call]:
    """The calls, the last that exports with the variant's options: techniques on the runtime's own file come after."""
    if not variant.export:
        return calls
    exports_at = [number for number, (call, _) in enumerate(calls) if call.endswith(":export")]
    if not exports_at:
        raise ConfigError(f"{where}: export: this variant exports nothing; remove the key")
    config.build(runtime.Options, variant.export, f"{where}: export")
    at = exports_at[-1]
    return [*calls[:at], (calls[at][0], dict(variant.export)), *calls[at + 1 :]]


def _technique(table: Mapping[str, Json], start: str, goal: str, where: str) -> tuple[str, dict[str, Json]]:
    """The technique that a step means and its options: by its name, or by the precision it provides."""
    if not table.get("use"):
        lacks = "must not be empty" if "use" in table else "is missing"
        raise ConfigError(f"{where}: key 'use' {lacks}; write a technique or a precision: use = \"int8\"")
    options = {key: value for key, value in table.items() if key != "use"}
    use = str(table["use"])
    if use in registry.names("techniques"):
        return use, options
    if lost := extras.lost(use, extras.TECHNIQUES):
        raise MissingDependency(f"{where}: {lost}")
    return _provider(use, start, goal, where), options


def _provider(precision: str, start: str, goal: str, where: str) -> str:
    """The technique that provides a precision with the shortest path; the path behind it counts first."""
    every = {each.name: each for each in registry.techniques()}
    provided = {n: each for n, each in every.items() if precision in (each.provides, *each.synonyms)}
    if not provided:
        known = {*every, *(word for each in every.values() for word in (each.provides, *each.synonyms))}
        raise ConfigError(f"{where}: no technique or precision '{precision}'{did_you_mean(precision, known)}")
    costs = {}
    for name, each in provided.items():
        before, after = shortest_path(start, each.reads), shortest_path(each.writes, [goal])
        if before is not None and after is not None:
            costs[name] = (len(after), len(before))
    if not costs:
        goals = [kind for t in provided.values() if shortest_path(t.writes, [goal]) is not None for kind in t.reads]
        tried = f"no path from {start} to {goal} with {precision} (tried {', '.join(provided)})"
        raise NoPath(where, f"{tried}; {_remedy(goals)}")
    winners = sorted(name for name, cost in costs.items() if cost == min(costs.values()))
    if len(winners) > 1:
        raise ConfigError(f"{where}: '{precision}' is ambiguous: {' or '.join(winners)}; name one of them")
    return winners[0]


def provides(precision: str, runtime: str) -> bool:
    """Whether a technique gives the files of a runtime a precision: one on such files, if there are any of these."""
    made, every = registry.load("runtimes", runtime).FORMAT, registry.techniques()
    known = [t for t in every if t.writes == made] or [t for t in every if shortest_path(t.writes, [made]) is not None]
    return bool(precision) and any(precision in (each.provides, *each.synonyms) for each in known)


def modules(target: Target, variant: Variant, calls: Iterable[Call]) -> dict[str, ModuleType]:
    """The modules that the calls of a variant need, by their names in errors: "technique 'ptq_int8'"."""
    runtime = variant.runtime or target.runtime
    required = [r for r in others(target, runtime) if r == target.min_runtime]
    names = [*(f"runtimes.{r}:open" for r in (runtime, *required)), *(call for call, _ in calls)]
    return {_words(name): registry.call(name)[0] for name in names}


def others(target: Target, runtime: str) -> list[str]:
    """The other runtimes of the target that read the format of `runtime`."""
    made = registry.load("runtimes", runtime).FORMAT
    named = dict.fromkeys((*target.also, target.min_runtime))
    return [n for n in named if n and n != runtime and made == registry.load("runtimes", n).FORMAT]


def untried(module: ModuleType) -> str:
    """Why what is not required is not tried, where its module needs libraries that are not installed, or ""."""
    lacking = ", ".join(environments.missing(module))
    return f"not tried: {lacking} is not installed; run: {environments.install_command(module)}" if lacking else ""


def _words(call: str) -> str:
    kind, *_, name = call.split(":")[0].split(".")
    return f"{'stage' if kind == 'extras' else kind.removesuffix('s')} '{name}'"


def plugins(target: Target) -> list[ModuleType]:
    """The plug-ins on the way from a torch source to a target, or from the first kind of file that reaches it.

    Nothing need be installed. Raises ConfigError when nothing reaches it, with what is wrong for a torch source.
    """
    first: ConfigError | None = None
    for kind in ("module", *sorted(module.FORMAT for _, module in registry.every("runtimes"))):
        try:
            per_variant = [modules(target, v, steps(target, v, kind, "target")) for v in target.variant]
        except ConfigError as error:
            first = first or error
            continue
        also = {f"runtime '{name}'": registry.load("runtimes", name) for name in target.also}
        return list({name: module for each in (*per_variant, also) for name, module in each.items()}.values())
    assert first is not None
    raise first
