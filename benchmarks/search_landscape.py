"""How near `search` comes to the front of a landscape whose front is known: TPE beside random draws, over seeds.

    python benchmarks/search_landscape.py --trials 60 --seeds 10

The loop, the space and the study are those of `edgecompress search`; latency and loss are formulas in the place of
built and measured nets, so all recipes can be counted out. Hypervolume is that of the front against a corner.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import figures

from edgecompress.core import registry
from edgecompress.core.settings import SearchSpace
from edgecompress.extras.search import front
from edgecompress.extras.search.recipe_space import DrawnRecipe, RecipeSpace
from edgecompress.extras.search.recipe_trial import TrialResult
from edgecompress.extras.search.search import Loop
from edgecompress.extras.search.study import TrialStudy

OBJECTIVES = ("latency", "accuracy")
CORNER = (1.0, 0.05)  # the baseline's latency, and the most that may be lost
SPEED = {"onnx": 1.0, "openvino": 0.92, "litert": 1.2, "executorch": 1.15}
PRECISIONS = {"fp32": (1.0, 0.0), "int8": (0.4, 0.012), "int8-dynamic": (0.8, 0.004), "int4": (0.7, 0.03)}
KERNELS = {("litert", "int8"): 0.7, ("executorch", "int8"): 1.3, ("openvino", "int4"): 0.8}
CALIBRATED = {"entropy": 0.6, "percentile": 0.8, "mse": 0.7, "awq": 0.6, "gptq": 0.5, "scale_estimation": 0.7}
PREPARED = {"equalize": 0.9, "adaround": 0.7}


def space(kept: int = 8) -> RecipeSpace:
    """That of a torch net on x86, whatever is installed."""
    ways = {
        "onnx": {"fp32": "", "int4": "onnx_int4", "int8": "ptq_int8", "int8-dynamic": "int8_dynamic"},
        "openvino": {"fp32": "", "int4": "nncf_int4", "int8": "nncf_int8"},
        "litert": {"fp32": "", "int4": "litert_int4", "int8": "litert_int8", "int8-dynamic": "litert_dynamic"},
        "executorch": {"fp32": "", "int4": "torchao_int4", "int8": "pt2e_int8", "int8-dynamic": "pt2e_dynamic"},
    }
    nets = tuple(map(registry.technique, ("low_rank", "prune_channels")))
    prepares = tuple(map(registry.technique, ("adaround", "equalize", "smooth")))
    quantizers = {technique for each in ways.values() for technique in each.values() if technique}
    knobs = {name: registry.technique(name).knobs for name in (*quantizers, *(t.name for t in (*nets, *prepares)))}
    return RecipeSpace(ways, nets, prepares, (), knobs, kept)


def landscape(recipe: DrawnRecipe) -> tuple[float, float]:
    """Share of the baseline's latency, and what is lost."""
    speed, loss = PRECISIONS[recipe.precision]
    latency = SPEED[recipe.runtime] * speed * KERNELS.get((recipe.runtime, recipe.precision), 1.0)
    loss *= math.prod(CALIBRATED.get(str(value), 1.0) for value in recipe.calibration.values())
    for step in recipe.prepare:
        alpha = step.get("alpha")
        loss *= PREPARED.get(str(step["use"]), 1.0) if alpha is None else 0.7 + 4 * (alpha - 0.6) ** 2  # type: ignore[operator]
    loss *= math.exp(-recipe.kept / 4) * (1 + 0.3 * math.log2(recipe.options.get("group", 32) / 32))  # type: ignore[operator]
    latency *= 1 + 0.03 * recipe.kept
    for step in recipe.net:
        if step["use"] == "prune_channels":
            gone = 1 - step["macs"]  # type: ignore[operator]
            latency, loss = latency * (1 - 0.8 * gone), loss + 0.25 * gone**2
        else:
            gone = 1 - step["energy"]  # type: ignore[operator]
            latency, loss = latency * (0.97 - 1.2 * gone), loss + 0.3 * gone + (0.01 if step["method"] == "tt" else 0)
    return latency, loss


@dataclass
class CountedOut:
    """Draws every value of every name in turn; `done` after the last."""

    path: list[tuple[int, int]] = field(default_factory=list)  # which of how many, along the way
    place: int = 0

    def _one(self, choices: Sequence[Any]) -> Any:
        if self.place == len(self.path):
            self.path.append((0, len(choices)))
        self.place += 1
        return choices[self.path[self.place - 1][0]]

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self._one(choices)

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        return int(self._one(range(low, high + 1, step)))

    def suggest_float(self, name: str, low: float, high: float, *, step: float = 0.05, log: bool = False) -> float:
        return float(self._one([low + i * step for i in range(round((high - low) / step) + 1)]))

    def next(self) -> bool:
        """Goes on to the next recipe; whether there is one."""
        self.place = 0
        while self.path and self.path[-1][0] == self.path[-1][1] - 1:
            self.path.pop()
        if self.path:
            self.path[-1] = (self.path[-1][0] + 1, self.path[-1][1])
        return bool(self.path)


def every(within: RecipeSpace) -> Iterator[tuple[float, float]]:
    """The points of all recipes."""
    draws = CountedOut()
    yield landscape(within.draw(draws))
    while draws.next():
        yield landscape(within.draw(draws))


def hypervolume(points: Sequence[Sequence[float]]) -> float:
    """The area between points and the corner."""
    inside = sorted(p for p in map(tuple, points) if p[0] < CORNER[0] and p[1] < CORNER[1])
    area, lowest = 0.0, CORNER[1]
    for x, y in inside:
        if y < lowest:
            area, lowest = area + (CORNER[0] - x) * (lowest - y), y
    return area


class Formula:
    """In the place of what builds and measures."""

    objectives = OBJECTIVES

    def attempt(self, outcomes: object, number: int, recipe: DrawnRecipe, promising: object) -> Iterator[list[Any]]:
        latency, loss = landscape(recipe)
        yield from ()
        values = {"latency": latency, "accuracy": loss} if loss <= CORNER[1] else {"accuracy": loss}
        return TrialResult((), values, {"accuracy": loss - CORNER[1]}, f"{-100 * loss:+.2f} pt")  # type: ignore[return-value]


def searched(within: RecipeSpace, sampler: str, seed: int, trials: int) -> list[float]:
    """The hypervolume after each trial of a search."""
    settings = SearchSpace(trials=trials, patience=trials, minutes=60, sampler=sampler)  # type: ignore[arg-type]
    job = SimpleNamespace(target=SimpleNamespace(value=SimpleNamespace(search=settings)))
    walk = SimpleNamespace(jobs=1, outcomes={}, stages=lambda steps: None, stopped=False, stop=lambda: None)
    study = TrialStudy(None, OBJECTIVES, sampler, seed)
    Loop(job, walk, within, Formula(), study, lambda row: None).run()  # type: ignore[arg-type]
    points = [front.point(row, OBJECTIVES) if row["inside"] else CORNER for row in study.rows()]
    return [hypervolume(points[:count]) for count in range(1, len(points) + 1)]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints how near each sampler comes; 1 where TPE is not nearer than random draws with most seeds."""
    parser = figures.flags(__doc__)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--kept", type=int, default=8, help="layers in higher precision, at most")
    args = parser.parse_args(argv)
    within = space(args.kept)
    points = list(every(within))
    best = hypervolume(points)
    print(f"{len(points):,} recipes; hypervolume of their front {best:.5f}")
    shares: dict[str, list[float]] = {}
    for sampler in ("tpe", "nsga2", "random"):
        courses = [searched(within, sampler, seed, args.trials) for seed in range(args.seeds)]
        shares[sampler] = [course[-1] / best for course in courses]
        marks = sorted({25, 40, args.trials})
        told = ", ".join(
            f"{statistics.median(c[min(m, len(c)) - 1] for c in courses) / best:.2%} after {m}" for m in marks
        )
        print(f"{sampler:7} median {told}; worst seed {min(shares[sampler]):.2%}")
    wins = sum(a > b for a, b in zip(shares["tpe"], shares["random"], strict=True))
    print(f"tpe beats random with {wins} of {args.seeds} seeds")
    near = sum(share >= 0.98 for share in shares["tpe"])
    print(f"tpe within 2 % of the front with {near} of {args.seeds} seeds")
    return 0 if wins > args.seeds / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
