"""The recipes that `search` draws from, defined by drawing: a runtime, a precision that is reached there, their knobs.

On a torch source also what makes the net smaller, what prepares it for quantization and, if asked for, what trains it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from edgecompress.core import config, environments, registry
from edgecompress.core.errors import ConfigError, InputError, NoPath, NotFound, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.plugins import TechniquePlugin
from edgecompress.core.settings import Knob, Variant
from edgecompress.pipeline import conversion, plan
from edgecompress.pipeline.job import Job

NONE, PLAIN, FP32 = "none", "plain", "fp32"
TRAIN = "train"  # the name of what trains before static int8
LEFT = (0.75, 0.5)  # parts of the way to the high end of knobs that make a net smaller: what they leave
TIMES = {"latency", "instructions"}  # objectives that are measured to find a strength
USUAL = "int8"  # what is tried first
Table = Mapping[str, Json]
Ways = Mapping[str, Mapping[str, str]]  # runtime -> precision -> the technique that provides it, "" of fp32


class Draws(Protocol):
    """What gives values to names: a trial of Optuna."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of `choices`."""

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """A whole number, both ends included."""

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number."""


@dataclass(frozen=True)
class Fixed:
    """Draws that are given."""

    values: Mapping[str, Any]

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """The value of that name, or the first choice."""
        return self.values.get(name, choices[0])

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """The value of that name, or the lowest."""
        return int(self.values.get(name, low))

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """The value of that name, or the lowest."""
        return float(self.values.get(name, low))


@dataclass(frozen=True)
class DrawnRecipe:
    """A point of the space; `kept`: how many of the worst layers its quantizer leaves in higher precision."""

    runtime: str
    precision: str = FP32
    technique: str = ""  # that provides it
    net: tuple[Table, ...] = ()  # techniques on the net before it is trained
    training: tuple[Table, ...] = ()
    prepare: tuple[Table, ...] = ()
    options: Table = field(default_factory=dict)  # of what quantizes
    calibration: Table = field(default_factory=dict)  # those of them that change its calibration alone
    kept: int = 0

    def compress(self, more: Table | None = None, trained: bool = True, calibrated: bool = True) -> tuple[Table, ...]:
        """The recipe as a variant has it; `more` options of what quantizes."""
        laid = {**self.options, **(self.calibration if calibrated else {}), **(more or {})}
        last = ({"use": self.precision, **laid},) if self.precision != FP32 else ()
        return (*self.net, *(self.training if trained else ()), *self.prepare, *last)

    def words(self) -> str:
        """`onnx int8 entropy, prune_channels macs 0.8, keep 2`."""
        laid = {**self.options, **self.calibration}
        last = " ".join([self.runtime, self.precision, *(_shown(k, v) for k, v in laid.items())])
        before = (*self.net, *self.training, *self.prepare)
        steps = [" ".join([str(t["use"]), *(_shown(k, v) for k, v in t.items() if k != "use")]) for t in before]
        return ", ".join([last, *steps, *([f"keep {self.kept}"] if self.kept else [])])


def _shown(key: str, value: Json) -> str:
    return (
        str(value) if isinstance(value, str) else f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
    )


@dataclass(frozen=True)
class RecipeSpace:
    """What may be drawn. `left_out`: ways that are not open here, and why."""

    ways: Ways
    nets: tuple[TechniquePlugin, ...] = ()
    prepares: tuple[TechniquePlugin, ...] = ()
    trainers: tuple[TechniquePlugin, ...] = ()
    knobs: Mapping[str, Mapping[str, Knob]] = field(default_factory=dict)
    kept: int = 0  # layers at most
    left_out: Mapping[str, str] = field(default_factory=dict)

    def drawn(self) -> list[Json]:
        """What is drawn from, in its order: a study goes on only with the same."""
        steps = [t.name for group in (self.nets, self.prepares, self.trainers) for t in group]
        knobs = [(name, [(k, str(knob)) for k, knob in each.items()]) for name, each in self.knobs.items()]
        return [[(runtime, [*way.items()]) for runtime, way in self.ways.items()], steps, knobs, self.kept]

    def plain(self) -> list[dict[str, Json]]:
        """Of every way the values that draw its recipe with nothing turned: what a search begins with, by turns."""
        turns = itertools.zip_longest(*([(r, *way) for way in ways.items()] for r, ways in self.ways.items()))
        return [
            {"runtime": runtime, _precision(runtime): precision, **self._off(runtime, technique)}
            for runtime, precision, technique in (way for turn in turns for way in turn if way)
        ]

    def trained(self, order: Callable[[Mapping[str, Json]], tuple[bool, float]]) -> list[dict[str, Json]]:
        """Then, with training: each way of static int8 after what makes the net smaller and trains it.

        `order`: of the values of a plain recipe; those of the lowest come first. First a quarter is taken away of what
        may be, then half of it.
        """
        return [
            {**plain, "net": net.name, TRAIN: trainer.name, **self._at(net.name, left), **self._at(trainer.name, 0.5)}
            for left in LEFT
            for net in sorted(self.nets, key=self._is_guessed)
            for plain in sorted(self.plain(), key=order)
            if TRAIN in plain
            for trainer in self.trainers[:1]
        ]

    def _is_guessed(self, net: TechniquePlugin) -> bool:
        """Whether its strength is not found by measuring."""
        return not any(knob.measured for knob in self.knobs.get(net.name, {}).values())

    def _at(self, technique: str, part: float) -> dict[str, Json]:
        return {f"{technique}.{name}": knob.at(part) for name, knob in self.knobs.get(technique, {}).items()}

    def _off(self, runtime: str, technique: str) -> dict[str, Json]:
        quantizer = registry.technique(technique) if technique else None
        names = [name for name, choices in self._choices(quantizer).items() if len(choices) > 1]
        off: dict[str, Json] = dict.fromkeys(names, NONE)
        if quantizer and _labels(quantizer):
            off[f"{technique}.calibration"] = PLAIN
        for name, knob in self.knobs.get(technique, {}).items() if quantizer else ():
            default = getattr(registry.technique(technique).options, name, None)
            if knob.choices and any(default == each for each in knob.choices):
                off[f"{technique}.{name}"] = default
        if quantizer and self._keeps(runtime, quantizer):
            off[f"{technique}.kept"] = 0
        return off

    def _choices(self, quantizer: TechniquePlugin | None) -> dict[str, list[str]]:
        """What is tried on the net before it is quantized, each with its alternatives."""
        static = quantizer is not None and quantizer.prepared and quantizer.rungs is not None
        trainers = [t.name for t in self.trainers if static or t.rung is None]
        return {
            "net": [NONE, *(t.name for t in self.nets)],
            TRAIN if static else f"{TRAIN} in float": [NONE, *trainers],
            "prepare": [NONE, *(t.name for t in self.prepares if static)],
        }

    def draw(self, draws: Draws) -> DrawnRecipe:
        """A recipe by the values that `draws` gives."""
        runtime = draws.suggest_categorical("runtime", [*self.ways])
        precision = draws.suggest_categorical(_precision(runtime), [*self.ways[runtime]])
        technique = self.ways[runtime][precision]
        quantizer = registry.technique(technique) if technique else None
        net, training, prepare = (
            self._step(draws, name, choices) for name, choices in self._choices(quantizer).items()
        )
        recipe = DrawnRecipe(runtime, precision, technique, net, training, prepare)
        return self._quantized(draws, recipe, quantizer) if quantizer else recipe

    def _quantized(self, draws: Draws, recipe: DrawnRecipe, quantizer: TechniquePlugin) -> DrawnRecipe:
        labels, name = _labels(quantizer), quantizer.name
        label = draws.suggest_categorical(f"{name}.calibration", [PLAIN, *labels]) if labels else PLAIN
        keeps = self._keeps(recipe.runtime, quantizer)
        return dataclasses.replace(
            recipe,
            options=self._turned(draws, name),
            calibration=labels.get(label, {}),
            kept=draws.suggest_int(f"{name}.kept", 0, self.kept) if keeps else 0,
        )

    def _keeps(self, runtime: str, quantizer: TechniquePlugin) -> bool:
        """Whether its layers can be told apart, and left out."""
        return bool(self.kept and quantizer.kept and registry.runtime(runtime).tapped)

    def _step(self, draws: Draws, name: str, choices: Sequence[str]) -> tuple[Table, ...]:
        technique = draws.suggest_categorical(name, choices) if len(choices) > 1 else NONE
        return () if technique == NONE else ({"use": technique, **self._turned(draws, technique)},)

    def _turned(self, draws: Draws, technique: str) -> dict[str, Json]:
        return {name: _value(draws, f"{technique}.{name}", k) for name, k in self.knobs.get(technique, {}).items()}


def _precision(runtime: str) -> str:
    return f"precision on {runtime}"


def _labels(quantizer: TechniquePlugin) -> dict[str, dict[str, Json]]:
    """What its calibration can do beside the plain one."""
    return dict(quantizer.rungs({})) if quantizer.rungs else {}


def _value(draws: Draws, name: str, knob: Knob) -> Json:
    low, high, step = knob.low, knob.high, knob.step
    if low is None or high is None:
        value: Json = draws.suggest_categorical(name, [*knob.choices])
        return value
    if isinstance(low, int) and isinstance(high, int) and not isinstance(step, float):
        return draws.suggest_int(name, low, high, step=step or 1, log=knob.log)
    return round(draws.suggest_float(name, low, high, step=step, log=knob.log), 6)


# --------------------------------------------------------------------------- what the source reaches


def of(job: Job) -> RecipeSpace:
    """The space of a job's target, from its table `search` and from what the plug-ins tell of themselves.

    Raises ConfigError, NotFound for a name or a value that is wrong, InputError where nothing is left to try.
    """
    settings, where = job.target.value.search, f"{job.target.path}: search"
    every = {each.name: each for each in registry.techniques()}
    named = _named(settings.techniques, every, where)
    knobs = _knobs(settings.knobs, every, where, not job.unmeasured and bool(TIMES & {*settings.objectives}))
    ways, left_out = _ways(job, named)
    if not ways:
        why = next(iter(left_out.values()), "its runtimes and techniques exclude each other")
        raise InputError(f"{where}: no recipe is left to try: {why}")
    if settings.train and job.resolved.kind != "module":
        raise InputError(
            f"{where}: train: a source of kind '{job.resolved.kind}' is not trained; give a factory pkg.mod:fn"
        )
    turned = [t for t in every.values() if job.resolved.kind == "module" and t.writes == "module" and named(t.name)]
    here = [t for t in turned if not environments.missing(t.module)]
    train = {t.name: t for t in here if "training" in t.needs and knobs[t.name]} if settings.train else {}
    return RecipeSpace(
        ways,
        tuple(t for t in here if t.goal and knobs[t.name]),
        tuple(t for t in here if t.rung is not None and "training" not in t.needs),
        tuple(train.values()),
        knobs,
        job.target.value.guard.layers,
        left_out,
    )


class _Named(Protocol):
    def __call__(self, *words: str) -> bool: ...


def _named(asked: Sequence[str], every: Mapping[str, TechniquePlugin], where: str) -> _Named:
    """Whether one of some words is asked for; of precisions fp32 is where no other one is."""
    precisions = {each.provides for each in every.values()} | {FP32} - {""}
    for word in asked:
        if word not in {*every, *precisions}:
            raise NotFound(
                f"{where}: techniques: no technique or precision '{word}'{did_you_mean(word, {*every, *precisions})}"
            )
    quantizes = any(word in precisions or every[word].provides for word in asked)
    return lambda *words: not asked or any(w in asked for w in words) or (FP32 in words and not quantizes)


def _knobs(
    given: Mapping[str, Mapping[str, Knob]], every: Mapping[str, TechniquePlugin], where: str, measured: bool
) -> dict[str, dict[str, Knob]]:
    """The knobs of each technique: its own, under those that the target gives it.

    Where latency is `measured`, one that has an option for it turns that: MACs are not time.
    """
    for technique, knobs in given.items():
        if technique not in every:
            raise NotFound(f"{where}: knobs: no technique '{technique}'{did_you_mean(technique, every)}")
        for name, knob in knobs.items():
            for end in knob.ends:
                config.build(every[technique].options, {name: end}, f"{where}: knobs.{technique}")

    def turned(name: str, knob: Knob, own: Mapping[str, Knob]) -> str:
        return knob.measured if measured and knob.measured and name not in own else name

    owns = {name: given.get(name, {}) for name in every}
    return {name: {**{turned(n, k, own): k for n, k in every[name].knobs.items()}, **own} for name, own in owns.items()}


def _ways(job: Job, named: _Named) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Runtimes with the precisions that are reached there with what is installed, and why others are not."""
    target = job.target.value
    runtimes = target.search.runtimes or tuple(dict.fromkeys(v.runtime or target.runtime for v in target.variant))
    provided = sorted({each.provides for each in registry.techniques()} - {""}, key=lambda word: (word != USUAL, word))
    ways, left_out = dict[str, dict[str, str]](), dict[str, str]()
    for runtime in runtimes:
        variants = [Variant(f"{runtime}-{word}", runtime, ({"use": word},)) for word in provided]
        variants.insert(0, Variant(f"{runtime}-{FP32}", runtime))
        for variant in variants:
            try:
                calls = plan.reached(job.having([variant]))[0][variant.name]
            except NoPath as error:
                left_out[variant.name] = error.what
                continue
            except ConfigError:  # several techniques provide it there: it has no meaning without a name
                continue
            technique = next(
                (c.split(":")[0].partition(".")[2] for c, _ in reversed(calls) if c.endswith(":apply")), ""
            )
            word = str(variant.compress[0]["use"]) if variant.compress else FP32
            lacking = {m: environments.missing(m) for m in conversion.modules(target, variant, calls).values()}
            if why := next((f"{', '.join(r)} is not installed" for r in lacking.values() if r), ""):
                left_out[variant.name] = why
            elif named(word, technique) and (not technique or technique not in ways.get(runtime, {}).values()):
                ways.setdefault(runtime, {})[word] = technique
    return ways, left_out
