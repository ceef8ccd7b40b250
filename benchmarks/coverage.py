"""Do the intervals hold what they promise? Synthetic devices of known latency and energy, measured thousands of times,
and items of known true loss, judged as often.

    python benchmarks/coverage.py [--trials 2000] [--runs 500] [--seed 0] [--json]

Each row is a generator and an interval: how often it held the truth, what it promises, and the chance of so few hits
if the promise holds (one-sided binomial; below 1 % it is broken). Devices that drift or throttle must be flagged in
95 % of the trials at least, steady ones in 5 % at most. A loss just past its limit may be called inside in 5 %. The
numbers go through the functions that a profile uses (statistic, race, stages.latency), and whole races of known
variants through the search that decides. Exit 1 when a promise is broken.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import numpy as np

from edgecompress.core import limit_decision, sequential_comparison, session_stats, stats
from edgecompress.core.model import Artifact, Choice, Outcome
from edgecompress.core.settings import Profile, Variant
from edgecompress.data import paired_proportions
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.searches.race import Race
from edgecompress.reporting import session_noise
from edgecompress.stages import energy, latency

Array = Any  # numpy's, of floats
Random = np.random.Generator
Device = Callable[[Random, tuple[int, int]], Array]  # (draw, (sessions, runs)) -> milliseconds

STANDARD, STRICT = 6, 10  # sessions
LEAST = 0.01  # chance of the hits if the promise holds: below it is broken
FLAGGED, FALSE_ALARMS = 0.95, 0.05
TRUTH_ROUNDS = 40  # of 501 sessions, whose middle is the truth
NOISE = 0.02
RACES = 4  # one for so many trials of the others


@dataclass(frozen=True)
class Row:
    """One promise: `hits` of `trials`, at least `claim` (or at most, for false alarms)."""

    generator: str
    what: str
    hits: int
    trials: int
    claim: float
    at_most: bool = False

    @property
    def share(self) -> float:
        """Of the trials."""
        return self.hits / self.trials

    @property
    def chance(self) -> float:
        """Of hits as few (or as many) as these if the promise holds."""
        if self.at_most:
            return at_most(self.trials - self.hits, self.trials, 1 - self.claim)
        return at_most(self.hits, self.trials, self.claim)

    @property
    def kept(self) -> bool:
        """Whether the promise may hold."""
        return self.chance > LEAST


def main() -> int:
    parser = figures.flags(__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="of each generator")
    parser.add_argument("--runs", type=int, default=500, help="inferences of a session")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = list(rows(asked.trials, asked.runs, asked.seed))
    if asked.json:
        print(json.dumps([{**vars(row), "share": row.share, "chance": row.chance, "kept": row.kept} for row in found]))
    else:
        print(f"{asked.trials} trials of each, sessions of {asked.runs} runs, seed {asked.seed}\n")
        print(table(found))
    return 0 if all(row.kept for row in found) else 1


def rows(trials: int, runs: int, seed: int) -> Iterator[Row]:
    """Every promise, held against its generators."""
    for i, (name, device) in enumerate(STEADY.items()):
        yield from steady(name, device, np.random.default_rng([seed, 1, i]), (trials, runs))
    for i, (name, device) in enumerate(UNSTEADY.items()):
        yield unsteady(name, device, np.random.default_rng([seed, 2, i]), (trials, runs))
    yield from ratios(np.random.default_rng([seed, 3]), trials)
    for i, (name, level) in enumerate(LEVELS.items()):
        yield from races(name, level, np.random.default_rng([seed, 5, i]), max(1, trials // RACES))
    for i, (name, plant) in enumerate(PLANTS.items()):
        yield from energies(name, plant, np.random.default_rng([seed, 4, i]), trials)
    for n in ITEMS:
        for i, (lost, gained) in enumerate(LOSSES):
            yield decisions(n, lost, gained, np.random.default_rng([seed, 6, n, i]), trials)


def table(found: Sequence[Row]) -> str:
    """The rows as text."""
    cells = [("generator", "interval or flag", "found", "promised", "chance", "")]
    for r in found:
        promised = f"{'<=' if r.at_most else '>='} {r.claim:.2%}"
        cells.append((r.generator, r.what, f"{r.share:.2%}", promised, f"{r.chance:.3f}", "" if r.kept else "BROKEN"))
    return figures.aligned(cells)


def at_most(hits: int, n: int, p: float) -> float:
    """P(Binomial(n, p) <= hits)."""
    if hits >= n or p <= 0:
        return 1.0
    if p >= 1:
        return 0.0
    logs = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(hits + 1)]
    terms = (c + k * math.log(p) + (n - k) * math.log1p(-p) for k, c in enumerate(logs))
    return min(1.0, math.fsum(map(math.exp, terms)))


# --------------------------------------------------------------------------- latency: devices


def lognormal(draw: Random, shape: tuple[int, int]) -> Array:
    return 5 * np.exp(NOISE * draw.normal(size=shape))


def correlated(draw: Random, shape: tuple[int, int], rho: float = 0.8) -> Array:
    """AR(1): each run resembles the one before."""
    steps = draw.normal(size=shape) * math.sqrt(1 - rho**2)
    steps[:, 0] /= math.sqrt(1 - rho**2)
    for i in range(1, shape[1]):
        steps[:, i] += rho * steps[:, i - 1]
    return 5 * np.exp(NOISE * steps)


def two_modes_of_runs(draw: Random, shape: tuple[int, int]) -> Array:
    """Three runs of ten take half as long again."""
    return lognormal(draw, shape) * np.where(draw.random(shape) < 0.3, 1.5, 1.0)


def two_modes_of_processes(draw: Random, shape: tuple[int, int]) -> Array:
    """Three processes of ten are slower from beginning to end, as by where their memory came to lie."""
    return lognormal(draw, shape) * np.where(draw.random((shape[0], 1)) < 0.3, 1.1, 1.0)


def heavy_tail(draw: Random, shape: tuple[int, int]) -> Array:
    """One run of twenty waits for something, without a mean to speak of."""
    waits = np.where(draw.random(shape) < 0.05, draw.pareto(1.0, shape), 0.0)
    return lognormal(draw, shape) * (1 + waits)


def uneven_processes(draw: Random, shape: tuple[int, int]) -> Array:
    """Every process has a level of its own."""
    return lognormal(draw, shape) * np.exp(0.02 * draw.normal(size=(shape[0], 1)))


STEADY: dict[str, Device] = {
    "independent, lognormal": lognormal,
    "autocorrelated, AR(1) 0.8": correlated,
    "two modes of runs": two_modes_of_runs,
    "two modes of processes": two_modes_of_processes,
    "uneven processes": uneven_processes,
    "heavy tail": heavy_tail,
}


def drifting(draw: Random, shape: tuple[int, int]) -> Array:
    """Each window ends 5 to 15 % above its beginning."""
    return correlated(draw, shape) * (1 + draw.uniform(0.05, 0.15) * np.linspace(0, 1, shape[1]))


def drifting_over_all(draw: Random, shape: tuple[int, int]) -> Array:
    """The whole measurement ends 10 to 20 % above its beginning."""
    ramp = np.linspace(0, draw.uniform(0.1, 0.2), shape[0] * shape[1]).reshape(shape)
    return correlated(draw, shape) * (1 + ramp)


def throttling(draw: Random, shape: tuple[int, int]) -> Array:
    """At some moment in the middle 80 % the clock falls, and stays there."""
    at = draw.uniform(0.1, 0.9) * shape[0] * shape[1]
    hot = (np.arange(shape[0] * shape[1]) > at).reshape(shape)
    return correlated(draw, shape) * np.where(hot, draw.uniform(1.15, 1.6), 1.0)


def throttling_each_time(draw: Random, shape: tuple[int, int]) -> Array:
    """Each process starts cool and throttles somewhere in the middle of its window."""
    at = draw.uniform(0.3, 0.7, (shape[0], 1)) * shape[1]
    return correlated(draw, shape) * np.where(np.arange(shape[1]) > at, draw.uniform(1.15, 1.6), 1.0)


UNSTEADY: dict[str, Device] = {
    "drifting in each window": drifting,
    "drifting over all sessions": drifting_over_all,
    "throttling once": throttling,
    "throttling in each window": throttling_each_time,
}


# --------------------------------------------------------------------------- latency: promises


def steady(name: str, device: Device, draw: Random, size: tuple[int, int]) -> Iterator[Row]:
    """The intervals of standard and strict, and that nobody is accused of drifting."""
    trials, runs = size
    truth = true_median(device, draw, runs)
    hits, alarms, claims = {STANDARD: 0, STRICT: 0}, 0, dict[int, float]()
    for _ in range(trials):
        medians, flags = measured(device(draw, (STRICT, runs)))
        alarms += any("drifting" in flag for flag in flags[:STANDARD] + flags[STRICT:])
        for sessions in hits:
            low, high, claims[sessions] = stats.interval(medians[:sessions]) or (0.0, 0.0, 1.0)
            hits[sessions] += low <= truth <= high
    for sessions, word in ((STANDARD, "standard: min-max of 6"), (STRICT, "strict: [2nd, 9th] of 10")):
        yield Row(name, word, hits[sessions], trials, claims[sessions])
    yield Row(name, "called drifting", alarms, trials, FALSE_ALARMS, at_most=True)


def true_median(device: Device, draw: Random, runs: int) -> float:
    """The median over processes of a process's own median: the middle of very many sessions."""
    return float(np.median([np.median(device(draw, (501, runs)), axis=1) for _ in range(TRUTH_ROUNDS)]))


def measured(times: Array) -> tuple[list[float], list[str]]:
    """Session medians and all flags, by what a profile calls for each session; the last flag is of the sessions."""
    numbers = [session_stats.in_numbers(session) for session in times.tolist()]
    flags = ["; ".join(latency._flags({**QUIET, "n": times.shape[1]}, n)) for n in numbers]
    medians = [n["median_ms"] for n in numbers]
    return medians, [*flags, "; ".join(session_noise.between(medians[:STANDARD]))]


QUIET = {"warm": True, "warmup_s": 3.0, "preempted": 0, "window_s": 10.0, "stolen_s": 0.0, "others_s": 0.0}
QUIET |= {"noisy": "", "repeated": 0}


def unsteady(name: str, device: Device, draw: Random, size: tuple[int, int]) -> Row:
    """That a device which is not steady is said to be: by a session, or by how the sessions lie."""
    trials, runs = size
    flagged = sum(
        any("drifting" in flag or "apart" in flag for flag in measured(device(draw, (STANDARD, runs)))[1])
        for _ in range(trials)
    )
    return Row(name, "flagged", flagged, trials, FLAGGED)


# --------------------------------------------------------------------------- ratios


def alike(draw: Random, n: int) -> Array:
    return np.exp(NOISE * draw.normal(size=n))


def two_modes(draw: Random, n: int) -> Array:
    return alike(draw, n) * np.where(draw.random(n) < 0.3, 1.1, 1.0)


def skewed(draw: Random, n: int) -> Array:
    return alike(draw, n) * (1 + 0.02 * draw.pareto(1.0, n))


LEVELS = {"alike": alike, "two modes": two_modes, "skewed": skewed}  # of session medians
RATIO = 1.1


def ratios(draw: Random, trials: int) -> Iterator[Row]:
    """Two devices whose ratio is known: in turns through rounds that all drift along, and in two runs."""
    for name, level in LEVELS.items():
        hits = called = 0
        for _ in range(trials):
            rounds = np.exp(0.1 * draw.normal(size=STANDARD))
            a, b, c = ((rounds * level(draw, STANDARD)).tolist() for _ in range(3))
            found = stats.ratio([RATIO * x for x in a], b)
            hits += (found.low or 0.0) <= RATIO <= (found.high or math.inf)
            called += stats.ratio(c, b).changed
        yield Row(f"ratio, {name}", "in turns: min-max of 6 pairs", hits, trials, 1 - 2 / 2**STANDARD)
        yield Row(f"ratio of equals, {name}", "called a change", called, trials, 1 - stats.COVERAGE, at_most=True)
    for one in LEVELS:
        for other in LEVELS:
            yield _of_two_runs(one, other, draw, trials)


def _of_two_runs(one: str, other: str, draw: Random, trials: int) -> Row:
    truth = float(np.median(LEVELS[one](draw, 1_000_001)) / np.median(LEVELS[other](draw, 1_000_001)))
    hits = 0
    for _ in range(trials):
        found = stats.unpaired(LEVELS[one](draw, STANDARD).tolist(), LEVELS[other](draw, STANDARD).tolist())
        hits += (found.low or 0.0) <= truth <= (found.high or math.inf)
    t = 1 / 2**STANDARD
    return Row(f"ratio, {one} / {other}", "two runs of 6", hits, trials, 1 - 2 * t * (1 + t))


# --------------------------------------------------------------------------- races

FIELD = {"equal": 1.0, "near": 1.03, "fastest": 1.0, "b": 1.06, "c": 1.2, "d": 1.8, "ref": 2.5, "slow": 4.0}
REFERENCES = ("ref", "slow")
PROFILE = Profile("of the races", STANDARD, 0, 1, 0, 1, 0, 0, more_sessions=3)


def races(name: str, level: Callable[[Random, int], Array], draw: Random, trials: int) -> Iterator[Row]:
    """Races of known variants: what leaves too early, what is called equal, and the interval of what ships."""
    left = equal = hits = told = 0
    for _ in range(trials):
        choice = raced(FIELD, level, draw)
        left += any(choice.table[v]["verdict"] == "slower" for v in FIELD if FIELD[v] == 1.0)
        equal += choice.stage == "near" and choice.table["fastest"]["verdict"] == "equal"
        ratio = choice.table["ref"].get("ratio") or {}
        if None not in (low := ratio.get("low"), high := ratio.get("high")) and ratio["n"] >= STANDARD:
            told += 1
            hits += low <= FIELD["ref"] / FIELD[choice.stage] <= high
    yield Row(f"race, {name}", "one of the fastest left", left, trials, sequential_comparison.ERROR, at_most=True)
    yield Row(f"race, {name}", "called equal, 3 % apart", equal, trials, sequential_comparison.ERROR, at_most=True)
    yield Row(f"race, {name}", "shipped to reference", hits, told, stats.COVERAGE)


def raced(field: Mapping[str, float], level: Callable[[Random, int], Array], draw: Random) -> Choice:
    """The choice among variants of known times, whose sessions differ by `level` in rounds that all drift along."""
    entrants = [Candidate(Variant(n, reference=n in REFERENCES), "null", n, f"{n}/verify") for n in field]
    search = Race(tuple(entrants), PROFILE)
    outcomes = {e.verdict: Outcome(e.verdict, "ok") for e in entrants}
    while not isinstance(step := search.step(outcomes), Choice):
        for stage in step:
            drift, names = math.exp(0.1 * draw.normal()), list(stage.options["runtimes"])
            times = dict(zip(names, level(draw, len(names)).tolist(), strict=True))
            medians = {n: drift * field[n] * times[n] for n in names}
            numbers = {
                n: {"median_ms": ms, "windows_ms": [ms], "rough_ms": [ms], "noisy": "", "memory": NO_MEMORY}
                for n, ms in medians.items()
            }
            artifact = Artifact(Path("nowhere"), "round", facts={"variants": numbers})
            outcomes[stage.name] = Outcome(stage.name, "ok", artifact)
    return step


NO_MEMORY = {"peak_rss_bytes": None}


# --------------------------------------------------------------------------- decisions

ITEMS = (20, 100, 500, 2000)
LOSSES = ((0.002, 0.0), (0.01, 0.0), (0.012, 0.004), (0.03, 0.02), (0.3, 0.3), (0.97, 0.01), (1.0, 0.0))


def decisions(n: int, lost: float, gained: float, draw: Random, trials: int) -> Row:
    """How often a true loss just past the limit is called inside, of items lost and gained with these chances."""
    inside = 0
    for a, b, _ in draw.multinomial(n, [lost, gained, max(0.0, 1 - lost - gained)], trials):
        low, high = paired_proportions.interval(int(b), int(a), n)
        limit = lost - gained - 1e-9
        inside += limit_decision.decide((a - b) / n, (-high, -low), limit).word == "inside"
    what = f"{n} items, loss past the limit called inside"
    return Row(f"lost {lost:.1%}, gained {gained:.1%}", what, inside, trials, FALSE_ALARMS, at_most=True)


# --------------------------------------------------------------------------- energy

STEP_S, IDLE_S, WINDOW_S, WINDOWS = 0.1, 5.0, 10.0, 5
IDLE_W, ACTIVE_W, RUNS = 2.0, 4.0, 2000  # of a window
EDGES_S = (0.0, IDLE_S, *(IDLE_S + WINDOW_S * (i + 1) for i in range(WINDOWS)), 2 * IDLE_S + WINDOWS * WINDOW_S)
Plant = Callable[[Random, int], tuple[Array, Array]]  # (draw, steps) -> watts of idling, watts on top when it computes


def even(draw: Random, steps: int) -> tuple[Array, Array]:
    """White noise, as of a meter that samples."""
    return IDLE_W * (1 + 0.1 * draw.normal(size=steps)), ACTIVE_W * (1 + 0.1 * draw.normal(size=steps))


def wandering(draw: Random, steps: int) -> tuple[Array, Array]:
    """Power that remembers two seconds."""
    return IDLE_W * (1 + 0.05 * _memory(draw, steps, 2.0)), ACTIVE_W * (1 + 0.05 * _memory(draw, steps, 2.0))


def long_memory(draw: Random, steps: int) -> tuple[Array, Array]:
    """Power that remembers four seconds of the ten of a window."""
    return IDLE_W * (1 + 0.05 * _memory(draw, steps, 4.0)), ACTIVE_W * (1 + 0.05 * _memory(draw, steps, 4.0))


def drifting_idle(draw: Random, steps: int) -> tuple[Array, Array]:
    """Idling costs 10 to 20 % more, or less, at the end."""
    idle, active = wandering(draw, steps)
    return idle * (1 + draw.choice([-1, 1]) * draw.uniform(0.1, 0.2) * np.linspace(-0.5, 0.5, steps)), active


def restless_idle(draw: Random, steps: int) -> tuple[Array, Array]:
    """What idling costs is another 10 % each time one looks."""
    idle, active = even(draw, steps)
    levels = np.repeat(
        1 + 0.1 * draw.normal(size=len(EDGES_S) - 1), np.diff(np.round(np.array(EDGES_S) / STEP_S)).astype(int)
    )
    return idle * levels, active


def heating(draw: Random, steps: int) -> tuple[Array, Array]:
    """Computing costs 10 to 20 % more at the end than at the beginning."""
    noise = 0.03 * draw.normal(size=(2, steps))
    hot = 1 + draw.uniform(0.1, 0.2) * np.linspace(0, 1, steps)
    return IDLE_W * (1 + noise[0]), ACTIVE_W * hot * (1 + noise[1])


def _memory(draw: Random, steps: int, tau_s: float) -> Array:
    """Ornstein-Uhlenbeck: normal, alike over `tau_s`."""
    rho = math.exp(-STEP_S / tau_s)
    noise = draw.normal(size=steps)
    noise[1:] *= math.sqrt(1 - rho**2)
    for i in range(1, steps):
        noise[i] += rho * noise[i - 1]
    return noise


PLANTS: dict[str, Plant] = {
    "even power": even,
    "power remembers 2 s": wandering,
    "power remembers 4 s": long_memory,
    "idling drifts": drifting_idle,
    "idling is restless": restless_idle,
    "heating": heating,
}
TRUE_MJ = {"energy_gross": 1e3 * (IDLE_W + ACTIVE_W) * WINDOW_S / RUNS, "energy_net": 1e3 * ACTIVE_W * WINDOW_S / RUNS}
TRUTHS = {**TRUE_MJ, "inferences_per_joule": 1e3 / TRUE_MJ["energy_gross"]}


def energies(name: str, plant: Plant, draw: Random, trials: int) -> Iterator[Row]:
    """Student's intervals, or that the drift is flagged."""
    hits, flagged, none = dict.fromkeys(TRUTHS, 0), 0, dict.fromkeys(TRUTHS, 0)
    for _ in range(trials):
        found = {m.metric: m for m in energy.per_inference(answer(plant, draw))}
        flagged += "drifting" in found["energy_gross"].reason
        for metric, truth in TRUTHS.items():
            low, high = found[metric].low, found[metric].high
            none[metric] += low is None
            hits[metric] += low is not None and high is not None and low <= truth <= high
    if plant is heating:
        yield Row(name, "flagged", flagged, trials, FLAGGED)
        return
    for metric in TRUTHS:
        yield Row(name, metric, hits[metric], trials - none[metric], stats.COVERAGE)
    if plant is not drifting_idle:  # which is a drift indeed
        yield Row(name, "called drifting", flagged, trials, FALSE_ALARMS, at_most=True)


def answer(plant: Plant, draw: Random) -> dict[str, Any]:
    """What an agent answers of a plant: idle, windows back to back, idle."""
    idle, active = plant(draw, round(EDGES_S[-1] / STEP_S))
    edges = [round(edge / STEP_S) for edge in EDGES_S]
    parts = [(a, b, 0 < i < len(edges) - 2) for i, (a, b) in enumerate(itertools.pairwise(edges))]
    joules = [float((idle[a:b] + busy * active[a:b]).sum()) * STEP_S for a, b, busy in parts]
    told = [_window(j, (b - a) * STEP_S, RUNS if busy else 0) for j, (a, b, busy) in zip(joules, parts, strict=True)]
    return {"idle": [told[0], told[-1]], "windows": told[1:-1]}


def _window(joules: float, seconds: float, n: int) -> dict[str, Any]:
    origin = {"status": "measured", "source": "synthetic", "scope": "package", "reason": ""}
    return {"n": n, "seconds": seconds, "energy": {"value": joules, "low": None, "high": None, **origin}}


if __name__ == "__main__":
    sys.exit(main())
