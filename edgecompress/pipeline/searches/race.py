"""The race of the variants: interleaved rounds drop the slower half each time, the last two are measured, one ships."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypedDict

from edgecompress.core import decision, registry, stats
from edgecompress.core.decision import Decision, decide
from edgecompress.core.json import Json
from edgecompress.core.model import Choice, Outcomes, Stage
from edgecompress.core.settings import Profile
from edgecompress.data import compiler_estimates
from edgecompress.pipeline.candidate import Candidate, ChoiceRow, Verdict, table, without_log

START_S = 2.0  # of a fresh process: imports and load
HALVE_AFTER = (2, 4)  # rounds after which the slower half goes
CROWD = 6  # of more variants than this the slower half goes after the first round already
TIE = 1.02  # within 2 % the target's own order decides
FIRST = "the first in the target's order that is within its limits"
ENOUGH_SESSIONS = decision.SESSIONS  # from here an interval of 95 % exists
LOSERS = 6  # slow variants whose operators are timed, so that the report can say why they are slow


class PeakMemory(TypedDict):
    """The memory of a session."""

    peak_rss_bytes: int | None


class VariantRound(TypedDict, total=False):
    """The result of a round for a variant: its median and memory, or why it crashed."""

    crashed: str
    median_ms: float
    memory: PeakMemory


@dataclass(frozen=True)
class Race:
    """A search: interleaved rounds of measuring -> the fastest variant that keeps the budget.

    Successive halving (Karnin, Koren, Somekh: Almost Optimal Exploration in Multi-Armed Bandits, ICML 2013), with the
    fastest reference kept to the end: it is what the others are compared with.
    """

    entrants: tuple[Candidate, ...]
    profile: Profile
    estimated_energy: bool = True
    samples: str = "excerpt"  # the stage that has the inputs to run on
    left_out: Mapping[str, str] = field(default_factory=dict)  # variants that the source does not reach, and why
    unmeasured: str = ""  # why nothing is measured: then the target's own order decides
    plugins: tuple[str, ...] = ()  # of the device: with other code of its transport or sensors it is measured again
    name: str = "race"

    @property
    def judged(self) -> bool:
        """Whether a variant may ship: artifacts without a verdict are only measured."""
        return any(e.verdict for e in self.entrants)

    def bound(self) -> str:
        """Its maximum cost in words."""
        if self.unmeasured:
            by = next((f"what {e.estimated} estimates" for e in self.entrants if e.estimated), "the target's own order")
            return f"nothing is measured ({self.unmeasured}): {by} decides"
        sessions = sum(self._sizes())
        return (
            f"at most {self.profile.sessions} rounds, {sessions} sessions of {len(self.entrants)} variants, "
            f"about {self.estimate_s() / 60:.1f} min{self._profilers()}"
        )

    def _profilers(self) -> str:
        return f" with {' and '.join(self.profile.profilers)} of the last two" if self.profile.profilers else ""

    def estimate_s(self) -> float:
        """Seconds of measuring when every variant survives."""
        if self.unmeasured:
            return 0.0
        p = self.profile
        one = START_S + p.warmup_s + p.window_s
        profilers = sum(START_S + self._profiler_s(name, options) for name, options in p.profilers.items())
        alone = self._energy_s() + min(len(self.entrants), 2) * profilers
        return sum(self._sizes()) * one + alone + min(len(self.entrants), 2 + LOSERS) * START_S

    def _energy_s(self) -> float:
        """Seconds of the energy windows of the last two; none where energy is only estimated."""
        p = self.profile
        windows_s = p.energy_windows * p.energy_window_s + 2 * p.idle_s
        finalists = 2 if self.judged else len(self.entrants)
        return 0.0 if self.estimated_energy else finalists * (windows_s + p.warmup_s + START_S)

    @property
    def _cuts(self) -> tuple[int, ...]:
        """After which rounds the slower half goes; who is only measured stays."""
        if not self.judged:
            return ()
        return (1, *HALVE_AFTER) if len(self.entrants) > CROWD else HALVE_AFTER

    def _sizes(self) -> list[int]:
        """Variants in each round at most: all survive, and a reference stays beside the faster half."""
        sizes, n = [], len(self.entrants)
        beside = any(e.reference for e in self.entrants)
        for done in range(self.profile.sessions):
            n = min(n, _half(n) + beside) if done in self._cuts else n
            sizes.append(n)
        return sizes

    def step(self, outcomes: Outcomes) -> Sequence[Stage] | Choice:
        """The next round, then energy of the last two and operators of them and of slow losers, then the choice."""
        if self.unmeasured:
            return self._in_order(outcomes)
        field = self._field(outcomes, 0)
        if not field:
            return Choice("", "no variant is left to ship", self._table(outcomes, ""))
        done = self._rounds(outcomes)
        if len(done) < self.profile.sessions and not _broke(outcomes, f"race/round-{len(done) + 1}"):
            return [self._round(len(done) + 1, self._field(outcomes, len(done)))]
        chosen = self._chosen(outcomes)
        if not chosen:
            why = "no variant kept the budget when measured" if self._rounds(outcomes) else "no variant was measured"
            return Choice("", why, self._table(outcomes, ""))
        if "ops" not in outcomes:
            return self._finals(outcomes, chosen)
        return Choice(chosen, self._why(outcomes, chosen), self._table(outcomes, chosen))

    def _in_order(self, outcomes: Outcomes) -> Choice:
        """Without a device of the target: of those within their limits the best that its compiler estimates.

        Without estimates: the first of the target's order.
        """
        estimates = self._estimates(outcomes)
        chosen = compiler_estimates.best(estimates) or next(iter(estimates), "")
        return Choice(chosen, self._why(outcomes, chosen), self._table(outcomes, chosen))

    def _estimates(self, outcomes: Outcomes) -> dict[str, compiler_estimates.Estimate | None]:
        """Of each variant within its limits what a compiler estimates, in the target's order."""
        return {e.name: compiler_estimates.of(outcomes.get(e.artifact)) for e in self.entrants if e.passed(outcomes)}

    # ------------------------------------------------------------------ who runs

    def _rounds(self, outcomes: Outcomes) -> list[dict[str, VariantRound]]:
        """What each finished round measured: {variant: numbers}."""
        done = (outcomes.get(f"race/round-{k + 1}") for k in range(self.profile.sessions))
        return [dict(o.facts["variants"]) for o in done if o and o.status == "ok"]

    def _medians(self, outcomes: Outcomes) -> dict[str, list[float]]:
        """Session medians in ms of each variant, in the order of the rounds; a variant that crashed has none."""
        rounds = self._rounds(outcomes)
        crashed = {v for r in rounds for v, numbers in r.items() if "crashed" in numbers}
        names = {v for r in rounds for v in r} - crashed
        return {v: [r[v]["median_ms"] for r in rounds if v in r] for v in names}

    def _field(self, outcomes: Outcomes, done: int) -> list[Candidate]:
        """The variants of the round after `done` rounds."""
        passed = [e for e in self.entrants if e.passed(outcomes) and not e.simulated]
        for after in (0, *self._cuts):
            if done < after or (after == 0 and done == 0):
                continue
            speed = {v: median(times[: max(after, 1)]) for v, times in self._medians(outcomes).items() if times}
            passed = [e for e in passed if e.name in speed]
            if after:
                passed = _faster_half(passed, speed)
        return passed

    def _round(self, number: int, field: Sequence[Candidate]) -> Stage:
        turn = (number - 1) % len(field)
        order = [e.name for e in (*field[turn:], *field[:turn])]
        p = self.profile
        options: dict[str, Json] = {"order": order, "number": number}
        seconds = len(field) * (START_S + p.warmup_s + p.window_s)
        return self._stage(f"race/round-{number}", "stages.latency:round", field, options, seconds)

    def _finals(self, outcomes: Outcomes, chosen: str) -> list[Stage]:
        times = {v: median(t) for v, t in self._medians(outcomes).items()}
        last = self._last_two(times, chosen)
        profiled = last + self._slow_losers(times, last)
        energy, ops = ({"latency_ms": {e.name: times[e.name] for e in field}} for field in (last, profiled))
        return [
            self._stage("energy", "stages.energy:energy", last, energy, START_S + self._energy_s()),
            self._stage("ops", "stages.operators:ops", profiled, ops, len(profiled) * START_S),
            *(self._profiler(name, options, last) for name, options in self.profile.profilers.items()),
        ]

    def _profiler(self, name: str, options: Mapping[str, Json], field: Sequence[Candidate]) -> Stage:
        request: dict[str, Json] = {"pass": name, "options": dict(options), "order": [e.name for e in field]}
        seconds = len(field) * (START_S + self._profiler_s(name, options))
        stage = self._stage(f"pass/{name}", "stages.profilers:run", field, request, seconds)
        return dataclasses.replace(stage, plugins=(*stage.plugins, f"profilers.{name}"))

    def _profiler_s(self, name: str, options: Mapping[str, Json]) -> float:
        module = registry.load("profilers", name)
        return float(module.estimate_s(module.Options(**options)))

    def _slow_losers(self, times: dict[str, float], last: Sequence[Candidate]) -> list[Candidate]:
        """Those slower than the fastest reference that promised to be faster; the slowest where there are many."""
        to_beat = min((times[e.name] for e in self.entrants if e.reference and e.name in times), default=math.inf)
        slow = [e for e in self.entrants if not e.reference and times.get(e.name, 0.0) > TIE * to_beat]
        slow.sort(key=lambda e: -times[e.name])
        return [e for e in slow if e not in last][:LOSERS]

    def _last_two(self, times: dict[str, float], chosen: str) -> list[Candidate]:
        """The winner, and what it is compared with: the fastest reference, or else the runner-up.

        All, where they are only measured.
        """
        if not self.judged:
            return [e for e in self.entrants if e.name in times]
        others = sorted((e for e in self.entrants if e.name in times and e.name != chosen), key=lambda e: times[e.name])
        beside = [e for e in others if e.reference] or others
        return [e for e in self.entrants if e.name == chosen] + beside[:1]

    def _stage(
        self, name: str, call: str, field: Sequence[Candidate], options: Mapping[str, Json], seconds: float
    ) -> Stage:
        return Stage(
            name,
            call,
            {**{e.name: e.artifact for e in field}, "samples": self.samples},
            {**options, "runtimes": {e.name: e.runtime for e in field}, "profile": self._protocol()},
            variants=tuple(e.name for e in field),
            plugins=tuple(sorted({*self.plugins, *(f"runtimes.{e.runtime}" for e in field)})),
            context=("seed", "batch", "threads", "device"),
            max_age_s=self.profile.max_age_s,
            estimate_s=seconds,
            timeout_s=600 + 20 * seconds,
        )

    def _protocol(self) -> dict[str, Json]:
        """The profile's numbers: with another description, or other profilers, nothing is measured again."""
        return {k: v for k, v in dataclasses.asdict(self.profile).items() if k not in ("description", "profilers")}

    # ------------------------------------------------------------------ who wins

    def _chosen(self, outcomes: Outcomes) -> str:
        """The fastest of the last field that keeps the budget; between equals the target's order decides."""
        times = self._medians(outcomes)
        last = [e.name for e in self._field(outcomes, len(self._rounds(outcomes)))]
        fit = [v for v in last if times.get(v) and not self._over_budget(outcomes, v)]
        if not fit:
            return ""
        best = min(fit, key=lambda v: median(times[v]))
        return next(v for v in fit if v == best or _same(times[v], times[best]))

    def _over_budget(self, outcomes: Outcomes, variant: str) -> str:
        """Which measured limit the variant breaks, in words."""
        limits = next(e.limits for e in self.entrants if e.name == variant)
        rounds = [r[variant] for r in self._rounds(outcomes) if variant in r]
        peaks = [r["memory"]["peak_rss_bytes"] for r in rounds if r["memory"]["peak_rss_bytes"] is not None]
        if (latency := self._latency(outcomes, variant)) and not latency[0].passes(limits.strict):
            return latency[1]
        if limits.peak_rss_bytes is not None and peaks and max(peaks) > limits.peak_rss_bytes:
            return f"peak memory {max(peaks) >> 10} KiB, limit {limits.peak_rss_bytes >> 10} KiB"
        return ""

    def _latency(self, outcomes: Outcomes, variant: str) -> tuple[Decision, str] | None:
        """How the variant's latency lies to its limit, by the interval of its sessions; None without a limit."""
        limit = next(e.limits.latency_ms for e in self.entrants if e.name == variant)
        each = self._medians(outcomes).get(variant)
        if limit is None or not each:
            return None
        ends = stats.interval(each) if len(each) >= ENOUGH_SESSIONS else None
        decided = decide(median(each), ends[:2] if ends else (None, None), limit)
        says = f"{median(each):.3g} ms, limit {limit:g} ms"
        if decided.word != "undecided":
            return decided, says
        between = (
            f"{ends[0]:.3g} to {ends[1]:.3g} ms with {decision.CONFIDENCE} confidence"
            if ends
            else "few sessions have no interval"
        )
        return decided, f"{says}; {between}: undecided, more sessions may tell"

    def _undecided(self, outcomes: Outcomes, variant: str) -> list[str]:
        """What limits on measured numbers leave undecided."""
        latency = self._latency(outcomes, variant)
        return [latency[1]] if latency and latency[0].word == "undecided" else []

    def _why(self, outcomes: Outcomes, chosen: str) -> str:
        if self.unmeasured:
            first = compiler_estimates.why(self._estimates(outcomes)) or FIRST
            reason = first if chosen else "no variant is left to ship"
            return f"{reason}; not measured on the target: {self.unmeasured}"
        times = self._medians(outcomes)
        others = {v: _ratio(t, times[chosen]).median for v, t in times.items() if v != chosen}
        if not others:
            return "the only variant left"
        near = min(others, key=lambda v: others[v])
        if others[near] < TIE:
            return f"as fast as {near}, and before it in the target's order"
        return f"the fastest that keeps the budget; next is {near}, {others[near]:.2f}x its time"

    def _table(self, outcomes: Outcomes, chosen: str) -> dict[str, ChoiceRow]:
        return table(self.entrants, self.left_out, lambda candidate: self._row(outcomes, candidate, chosen))

    def _row(self, outcomes: Outcomes, candidate: Candidate, chosen: str) -> ChoiceRow:
        times = self._medians(outcomes)
        verdict = candidate.not_passed(outcomes) or self._verdict(outcomes, candidate, chosen, times)
        row = candidate.row(outcomes, verdict, times.get(candidate.name, []))
        row["undecided"] = self._undecided(outcomes, candidate.name)
        if chosen in times and row["medians_ms"]:
            row["ratio"] = dataclasses.asdict(_ratio(times[candidate.name], times[chosen]))
        return row

    def _verdict(self, outcomes: Outcomes, candidate: Candidate, chosen: str, times: dict[str, list[float]]) -> Verdict:
        """The verdict on a candidate that was built and kept its limits."""
        name = candidate.name
        if self.unmeasured or candidate.simulated:
            return self._unranked(outcomes, candidate, chosen)
        crashed = [r[name]["crashed"] for r in self._rounds(outcomes) if "crashed" in r.get(name, {})]
        if crashed:
            return "failed", without_log(crashed[0])
        if name not in times:
            return "failed", "was not measured"
        if over := self._over_budget(outcomes, name):
            return "lost", over
        if name == chosen:
            return candidate.winner(self._why(outcomes, chosen))
        return self._behind(times, name, chosen)

    def _unranked(self, outcomes: Outcomes, candidate: Candidate, chosen: str) -> Verdict:
        """The verdict on a variant within its limits and was not measured."""
        if not self.unmeasured:
            return "passed", f"not measured: {candidate.simulated} stands in for its runtime here"
        estimates = self._estimates(outcomes)
        if candidate.name == chosen:
            return "shipped", compiler_estimates.why(estimates) or FIRST
        reason = compiler_estimates.behind(estimates, candidate.name)
        return "passed", reason or f"after {chosen} in the target's order"

    def _behind(self, times: dict[str, list[float]], name: str, chosen: str) -> Verdict:
        """ "slower" only where a change is called; else "even", with the reason why the other one ships."""
        if chosen not in times:
            return "passed", "nothing ships"
        factor, ran = _ratio(times[name], times[chosen]).median, len(times[name])
        dropped = f" (dropped after {ran} round{'s' if ran > 1 else ''})" if ran < len(times[chosen]) else ""
        if not _same(times[name], times[chosen]):
            return "slower", f"{factor:.2f}x the time of {chosen}{dropped}"
        near = (
            f"as fast as {chosen}" if abs(factor - 1) < TIE - 1 else f"{factor:.2f}x the time of {chosen}, not called"
        )
        return "even", f"{near}, after it in the order{dropped}"


def _half(n: int) -> int:
    return min(n, max(2, math.ceil(n / 2)))


def _faster_half(field: Sequence[Candidate], speed: dict[str, float]) -> list[Candidate]:
    """The faster half (at least two) and the fastest reference, in the field's order."""
    ranked = sorted(field, key=lambda e: speed[e.name])
    keep = {e.name for e in ranked[: _half(len(ranked))]}
    keep |= {e.name for e in [e for e in ranked if e.reference][:1]}
    return [e for e in field if e.name in keep]


def _ratio(times: list[float], others: list[float]) -> stats.Ratio:
    """The ratio over the rounds that both ran in: everybody starts in the first."""
    n = min(len(times), len(others))
    return stats.ratio(times[:n], others[:n])


def _same(times: list[float], best: list[float]) -> bool:
    """Whether no change may be called between two variants; with too few sessions for an interval, by 2 % alone."""
    ratio = _ratio(times, best)
    return not ratio.changed if ratio.n >= ENOUGH_SESSIONS else ratio.median <= TIE


def _broke(outcomes: Outcomes, stage: str) -> bool:
    return stage in outcomes and outcomes[stage].status != "ok"
