"""Which layers get more bits than a technique gives, so that the weights have a number of bits on average."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgecompress.core import registry
from edgecompress.core.json import Json
from edgecompress.core.model import Choice, Outcomes, Stage
from edgecompress.core.plugins import TechniquePlugin

PROGRAM = "stages.integer_program:run"
OPTION = "bits"
FLOAT = 32
PER_BIT = 4.0  # a bit more is a step half as wide, and a quarter of the noise (Bennett 1948)

Table = Mapping[str, Any]


@dataclass(frozen=True)
class BitBudget:
    """A search in the place of a technique's stage: it ends as that technique with some layers in more bits.

    The artifact with the technique's own bits is diagnosed: what each layer's error does to the net's outputs. An
    integer program then chooses the bits of each layer, so that the weights have `bits` on average, at most.
    """

    stage: Stage  # the technique's, its options with the budget
    bits: float
    plain: tuple[Stage, ...]  # the technique without a budget, the stages to its artifact, the diagnosis
    variants: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """That of the stage in whose place it stands."""
        return self.stage.name

    @property
    def inputs(self) -> Mapping[str, str]:
        """Those of the stage, and those of the diagnosis."""
        own = {stage.name for stage in self.plain}
        others = {f"{s.name}: {role}": at for s in self.plain for role, at in s.inputs.items() if at not in own}
        return {**self.stage.inputs, **others}

    def bound(self) -> str:
        """Its maximum cost in words."""
        return f"one artifact diagnosed, then one with {self.bits:g} bits on average"

    def estimate_s(self) -> float:
        """Seconds it may take at most, roughly."""
        return self.stage.estimate_s + sum(stage.estimate_s for stage in self.plain) + 1.0

    def step(self, outcomes: Outcomes) -> Sequence[Stage] | Choice:
        """The diagnosis, the integer program, the artifact."""
        if missing := [stage for stage in self.plain if stage.name not in outcomes]:
            return self._own(missing)
        diagnosed = outcomes[self.plain[-1].name]
        if diagnosed.status != "ok":
            return Choice("", diagnosed.reason)
        layers = Layers.of(outcomes[self.plain[0].name].facts, diagnosed.facts["layers"])
        program = Stage(f"{self.name}/program", PROGRAM, {}, layers.program(self.bits, self._widths), estimate_s=1.0)
        if program.name not in outcomes:
            return self._own([program])
        if outcomes[program.name].status != "ok":
            return Choice("", outcomes[program.name].reason)
        if not (choices := outcomes[program.name].facts["choices"]):
            return Choice(
                "", f"bits = {self.bits:g}: some layers take no fewer than 8, give {layers.least:.2f} or more"
            )
        mixed = dataclasses.replace(self.stage, name=f"{self.name}/mixed", options=self._options(layers, choices[0]))
        if mixed.name not in outcomes:
            return self._own([mixed])
        known = [layers.bits, *self._widths]
        chosen = [known[place] for place in choices[0]]
        counts = ", ".join(f"{chosen.count(bits)} with {bits}" for bits in known if bits in chosen)
        why = f"{layers.average(chosen):.2f} bits on average, asked for {self.bits:g}; layers: {counts}"
        names = (row["name"] for row in layers.rows)
        return Choice(mixed.name, why, {OPTION: dict(zip(names, chosen, strict=True))})

    def _own(self, stages: Sequence[Stage]) -> list[Stage]:
        """The stages, falling with the variants alone."""
        return [dataclasses.replace(stage, variants=self.variants) for stage in stages]

    @property
    def _technique(self) -> TechniquePlugin:
        return registry.technique(self.stage.call.split(":")[0].partition(".")[2])

    @property
    def _widths(self) -> list[int]:
        return sorted(self._technique.finer)

    def _options(self, layers: Layers, choice: Sequence[int]) -> dict[str, Json]:
        options: dict[str, Json] = dict(self.plain[0].options)
        for place, bits in enumerate(self._widths, 1):
            rows = [row for row, chosen in zip(layers.rows, choice, strict=True) if chosen == place]
            options = self._technique.finer[bits](options, rows)
        return options


@dataclass(frozen=True)
class Layers:
    """The layers that bits are chosen for: rows of a diagnosis, and how many weights each has."""

    bits: int  # that the technique gives
    rows: Sequence[Table]
    weights: Sequence[int]
    fixed: float  # bits of the other layers, together
    whole: int  # weights of all that the technique rounds

    @classmethod
    def of(cls, facts: Table, rows: Sequence[Table]) -> Layers:
        """By what a technique says of its artifact, and the diagnosis of that."""
        numbers, eight, bits = facts["numbers"], set(facts["int8"]), int(facts["bits"])
        named = {_name(row, numbers): row for row in rows if row["effect"] is not None and _name(row, numbers)}
        chosen = {name: row for name, row in named.items() if name not in eight}
        fixed = sum(n * (8 if name in eight else bits) for name, n in numbers.items() if name not in chosen)
        return cls(bits, [*chosen.values()], [numbers[name] for name in chosen], fixed, sum(numbers.values()))

    def program(self, bits: float, widths: Sequence[int]) -> dict[str, Json]:
        """What the integer program is asked for; costs are bits of the file."""
        every = (self.bits, *widths)
        gone = [0.0 if width == FLOAT else PER_BIT ** (self.bits - width) for width in every]
        return {
            "losses": [[row["effect"] * part for part in gone] for row in self.rows],
            "costs": [[n * width for width in every] for n in self.weights],
            "most": bits * self.whole - self.fixed,
            "shares": [],
        }

    @property
    def least(self) -> float:
        """Bits on average where none gets more."""
        return self.average([self.bits] * len(self.rows))

    def average(self, chosen: Sequence[int]) -> float:
        """Bits of a weight on average."""
        return (self.fixed + sum(n * bits for n, bits in zip(self.weights, chosen, strict=True))) / self.whole


def _name(row: Table, numbers: Table) -> str:
    """What a technique calls a layer of a diagnosis, or ""."""
    return next((str(row[key]) for key in ("operator", "module") if row[key] in numbers), "")
