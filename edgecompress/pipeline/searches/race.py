"""The race of the variants: interleaved rounds, in which those leave that cannot win any more; the fastest ships."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from edgecompress.core import limit_decision, registry, stats
from edgecompress.core.json import Json
from edgecompress.core.limit_decision import Decision, decide
from edgecompress.core.model import Choice, Outcomes, Stage
from edgecompress.core.plain_text import plural
from edgecompress.core.sequential_comparison import Bound
from edgecompress.core.session_stats import TOO_NOISY
from edgecompress.core.settings import Profile
from edgecompress.core.stats import CHANGE
from edgecompress.data import compiler_estimates
from edgecompress.pipeline.candidate_variant import Candidate, ChoiceRow, Verdict, table, without_log
from edgecompress.pipeline.searches.standings import Standings

START_S = 2.0  # of a fresh process: imports and load
LEADERS = 3  # that are left after two rounds, as a rule: what the estimate of the time goes by
ALIKE = f"{100 * CHANGE:g} %"  # what equals are shown to be within
FIRST = "the first in the target's order that is within its limits"
NO_INTERVAL = "few sessions have no interval"
LOSERS = 6  # slow variants whose operators are timed, so that the report can say why they are slow


@dataclass(frozen=True)
class Race:
    """A search: interleaved rounds of measuring -> the fastest variant that keeps the budget.

    After each round a variant leaves that is shown to be slower than the leader, with an error that all looks and all
    variants share (core.sequential_comparison). The fastest reference stays to the end: it is what the others are
    compared with. Leaders between whom `sessions` rounds decide nothing run `more_sessions` at most. Of variants shown
    to be equal the first in the target's order ships; where it is not decided, the one that seems to be the fastest.
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

    @property
    def looks(self) -> int:
        """Rounds at most."""
        return self.profile.sessions + self.profile.more_sessions

    def bound(self) -> str:
        """Its maximum cost in words."""
        if self.unmeasured:
            by = next((f"what {e.estimated} estimates" for e in self.entrants if e.estimated), "the target's own order")
            return f"nothing is measured ({self.unmeasured}): {by} decides"
        leave = "; a variant that fails verification or cannot win any more leaves" if self.judged else ""
        rounds = f"{'at most ' if self.looks > 1 else ''}{plural(self.looks, 'round')}"
        passes = f" with {' and '.join(self.profile.profilers)} of the last two" if self.profile.profilers else ""
        most_s = self.estimate_s()
        return f"{rounds} of {plural(len(self.entrants), 'variant')}{leave}; about {most_s / 60:.1f} min{passes}"

    def estimate_s(self) -> float:
        """Seconds of measuring when as many variants leave as mostly do."""
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

    def _sizes(self) -> list[int]:
        """Variants in each round, as a rule: half of them after the first one, then the leaders."""
        n = len(self.entrants)
        left = [n, max(LEADERS, math.ceil(n / 2))] if self.judged else [n] * self.profile.sessions
        return [min(n, size) for size in [*left, *[LEADERS] * self.profile.sessions][: self.profile.sessions]]

    def step(self, outcomes: Outcomes) -> Sequence[Stage] | Choice:
        """The next round, then energy of the last two and operators of them and of slow losers, then the choice."""
        if self.unmeasured:
            return self._in_order(outcomes)
        if not any(e.passed(outcomes) and not e.simulated for e in self.entrants):
            return Choice("", "no variant is left to ship", self._table(outcomes, ""))
        field, standings = self._field(outcomes), self._standings(outcomes)
        done = len(standings.rounds)
        tried = outcomes.get(f"race/round-{done + 1}")
        broke = tried is not None and tried.status != "ok"
        if field and self._goes_on(outcomes, standings) and not broke:
            return [self.round(done + 1, field)]
        chosen = self._chosen(outcomes)
        if not chosen:
            unmeasured = f"no variant was measured{_why_broke(outcomes)}"
            why = "no variant kept the budget when measured" if done else unmeasured
            return Choice("", why, self._table(outcomes, ""))
        if "ops" not in outcomes:
            return self._finals(outcomes, chosen)
        return Choice(chosen, self._why(outcomes, chosen), self._table(outcomes, chosen))

    def _goes_on(self, outcomes: Outcomes, standings: Standings) -> bool:
        """Whether another round is due: until the sessions are full, then while the leaders are undecided.

        Where artifacts are only measured: while one of them was too noisy in a session.
        """
        done, field = len(standings.rounds), [e.name for e in self._field(outcomes)]
        if standings.hopeless(field) or done >= self.looks:
            return False
        if done < self.profile.sessions:
            return True
        if not self.judged:
            return any(len(standings.times(name)) < self.profile.sessions for name in field)
        return bool(self._undecided(standings, [e.name for e in self._contenders(outcomes)]))

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

    def _standings(self, outcomes: Outcomes, rounds: int | None = None) -> Standings:
        """What the finished rounds tell, or the first of them."""
        done = [outcomes.get(f"race/round-{k + 1}") for k in range(self.looks)]
        told = [dict(o.facts["variants"]) for o in done if o and o.status == "ok"]
        return Standings(told[:rounds], self.looks, len(self.entrants) - 1)

    def _fields(self, outcomes: Outcomes) -> tuple[list[Candidate], list[Candidate]]:
        """Those that may still win after the finished rounds, and those that run in the next one."""
        runs = (e for e in self.entrants if e.passed(outcomes) and not e.simulated)
        contenders = field = [e for e in runs if not self._same(outcomes, e)]
        for done in range(1, len(self._standings(outcomes).rounds) + 1):
            standings = self._standings(outcomes, done)
            field = [e for e in field if not standings.crashed(e.name)]
            if not self.judged:
                contenders = field
                continue
            contenders = self._left(outcomes, standings, [e for e in contenders if e in field])
            reference = standings.ranked(e.name for e in field if e.reference)[:1]
            field = [e for e in field if e in contenders or e.name in reference]
        return contenders, field

    def _same(self, outcomes: Outcomes, candidate: Candidate) -> str:
        """Where variants are judged: one before it in the target's order that is the same file, or ""."""
        before = self.entrants[: self.entrants.index(candidate)] if self.judged else ()
        own = _file(outcomes, candidate)
        return next((e.name for e in before if own and own == _file(outcomes, e) and e.passed(outcomes)), "")

    def _left(self, outcomes: Outcomes, standings: Standings, contenders: list[Candidate]) -> list[Candidate]:
        """Those that keep the budget so far, and are not shown to be slower than the leader."""
        ranked = standings.ranked(e.name for e in contenders if not self._over_budget(standings, e))
        if not ranked:
            return contenders
        return [e for e in contenders if e.name in ranked and not standings.slower(e.name, ranked[0])]

    def _contenders(self, outcomes: Outcomes) -> list[Candidate]:
        return self._fields(outcomes)[0]

    def _field(self, outcomes: Outcomes) -> list[Candidate]:
        return self._fields(outcomes)[1]

    def round(self, number: int, field: Sequence[Candidate]) -> Stage:
        """The stage that measures a session of each of `field`."""
        turn = (number - 1) % len(field)
        order = [e.name for e in (*field[turn:], *field[:turn])]
        p = self.profile
        options: dict[str, Json] = {"order": order, "number": number}
        seconds = len(field) * (START_S + p.warmup_s + p.window_s)
        return self._stage(f"race/round-{number}", "stages.latency:round", field, options, seconds)

    def _finals(self, outcomes: Outcomes, chosen: str) -> list[Stage]:
        standings = self._standings(outcomes)
        times = {e.name: median(t) for e in self.entrants if (t := standings.times(e.name))}
        last = self._last_two(times, chosen)
        profiled = last + self._slow_losers(times, last)
        energy, ops = ({"latency_ms": {e.name: times.get(e.name) for e in field}} for field in (last, profiled))
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
        slow = [e for e in self.entrants if not e.reference and times.get(e.name, 0.0) > (1 + CHANGE) * to_beat]
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
        # The profile's numbers: with another description, or other profilers, nothing is measured again.
        numbers = {k: v for k, v in dataclasses.asdict(self.profile).items() if k not in ("description", "profilers")}
        own: dict[str, Json] = {e.name: e.variant.threads for e in field if e.variant.threads}
        threads: dict[str, Json] = {"threads": own} if own else {}
        return Stage(
            name,
            call,
            {**{e.name: e.artifact for e in field}, "samples": self.samples},
            {**options, "runtimes": {e.name: e.runtime for e in field}, "profile": numbers, **threads},
            variants=tuple(e.name for e in field),
            plugins=tuple(sorted({*self.plugins, *(f"runtimes.{e.runtime}" for e in field)})),
            context=("seed", "batch", "threads", "device"),
            max_age_s=self.profile.max_age_s,
            estimate_s=seconds,
            timeout_s=600 + 20 * seconds,
        )

    # ------------------------------------------------------------------ who wins

    def _chosen(self, outcomes: Outcomes) -> str:
        """The fastest that keeps the budget; of those shown to be equal to it the first in the target's order."""
        standings, contenders = self._standings(outcomes), self._contenders(outcomes)
        fit = [e.name for e in contenders if not self._over_budget(standings, e)]
        ranked = standings.ranked(fit)
        return next((v for v in fit if v == ranked[0] or self._equal(standings, v, ranked[0])), "") if ranked else ""

    def _equal(self, standings: Standings, name: str, other: str) -> bool:
        return standings.equal(name, other, self.looks - self.profile.sessions + 1)

    def _undecided(self, standings: Standings, names: Sequence[str]) -> list[str]:
        """Of those that may win, the ones that are not shown to be equal to the leader, the fastest first."""
        leader, *others = standings.ranked(names) or [""]
        return [v for v in others if not self._equal(standings, v, leader)]

    def _over_budget(self, standings: Standings, candidate: Candidate) -> str:
        """Which measured limit the variant breaks, in words."""
        limits, rounds = candidate.limits, standings.of(candidate.name)
        peaks = [r["memory"]["peak_rss_bytes"] for r in rounds if r["memory"]["peak_rss_bytes"] is not None]
        if (latency := _latency(standings, candidate)) and not latency[0].passes(limits.strict):
            return latency[1]
        if limits.peak_rss_bytes is not None and peaks and max(peaks) > limits.peak_rss_bytes:
            return f"peak memory {max(peaks) >> 10} KiB, limit {limits.peak_rss_bytes >> 10} KiB"
        return ""

    def _why(self, outcomes: Outcomes, chosen: str) -> str:
        if self.unmeasured:
            first = compiler_estimates.why(self._estimates(outcomes)) or FIRST
            reason = first if chosen else "no variant is left to ship"
            return f"{reason}; not measured on the target: {self.unmeasured}"
        standings, names = self._standings(outcomes), [e.name for e in self._contenders(outcomes)]
        others = [v for v in self._measured(standings) if v != chosen]
        if not others:
            return "the only variant left"
        if noise := standings.noisy(chosen):
            return f"{TOO_NOISY}: {noise}; by rough times it is the fastest"
        undecided = [v for v in self._undecided(standings, names) if v != chosen]
        equals = [v for v in names if v not in (chosen, *undecided)]
        before = f"equal to {' and '.join(equals)} within {ALIKE}, and before it in the target's order"
        near = ", ".join(_apart(standings, v, chosen) for v in undecided or standings.ranked(others)[:1])
        if undecided:
            return "; ".join([*([before] if equals else []), f"the fastest measured, undecided: {near}"])
        return before if equals else f"the fastest that keeps the budget; {near}"

    def _measured(self, standings: Standings) -> list[str]:
        return [e.name for e in self.entrants if standings.of(e.name) and not standings.crashed(e.name)]

    def _table(self, outcomes: Outcomes, chosen: str) -> dict[str, ChoiceRow]:
        return table(self.entrants, self.left_out, lambda candidate: self._row(outcomes, candidate, chosen))

    def _row(self, outcomes: Outcomes, candidate: Candidate, chosen: str) -> ChoiceRow:
        standings = self._standings(outcomes)
        verdict = candidate.not_passed(outcomes) or self._verdict(outcomes, candidate, chosen)
        crashed = standings.crashed(candidate.name)
        row = candidate.row(outcomes, verdict, [] if crashed else standings.times(candidate.name))
        latency = _latency(standings, candidate)
        row["undecided"] = [latency[1]] if latency and latency[0].word == "undecided" else []
        if chosen and not crashed and (ratio := standings.ratio(candidate.name, chosen)):
            row["ratio"] = dataclasses.asdict(ratio)
        return row

    def _verdict(self, outcomes: Outcomes, candidate: Candidate, chosen: str) -> Verdict:
        """The verdict on a candidate that was built and kept its limits."""
        name, standings = candidate.name, self._standings(outcomes)
        if self.unmeasured or candidate.simulated:
            return self._unranked(outcomes, candidate, chosen)
        if crashed := standings.crashed(name):
            return "failed", without_log(crashed)
        if same := self._same(outcomes, candidate):
            return "equal", f"the same file as {same}"
        if not standings.of(name):
            return "failed", f"was not measured{_why_broke(outcomes)}"
        if over := self._over_budget(standings, candidate):
            return "lost", over
        if name == chosen:
            return candidate.winner(self._why(outcomes, chosen))
        return self._behind(outcomes, standings, name, chosen)

    def _unranked(self, outcomes: Outcomes, candidate: Candidate, chosen: str) -> Verdict:
        """The verdict on a variant within its limits and was not measured."""
        if not self.unmeasured:
            return "passed", f"not measured: {candidate.simulated} stands in for its runtime here"
        estimates = self._estimates(outcomes)
        if candidate.name == chosen:
            return "shipped", compiler_estimates.why(estimates) or FIRST
        reason = compiler_estimates.behind(estimates, candidate.name)
        return "passed", reason or f"after {chosen} in the target's order"

    def _behind(self, outcomes: Outcomes, standings: Standings, name: str, chosen: str) -> Verdict:
        """The verdict on one that ran and does not ship: "slower", "equal", "undecided" or "noisy"."""
        if not chosen:
            return "slower", "nothing ships"
        bound = standings.bound(name, chosen)
        if bound is None:
            noise = standings.noisy(name) or standings.noisy(chosen) or "its windows disagree"
            return "noisy", f"{TOO_NOISY}: {noise}"
        contenders = [e.name for e in self._contenders(outcomes)]
        leader = standings.ranked(contenders)[0]
        if name in contenders and name != leader and not self._equal(standings, name, leader):
            return "undecided", f"not decided: {_times(bound)} the time of {chosen}"
        if name in contenders:
            fastest = chosen if name == leader else leader
            return "equal", f"equal to {fastest} within {ALIKE}, and after {chosen} in the target's order"
        ran = len(standings.of(name))
        early = f", left after {ran} round{'s' if ran > 1 else ''}" if ran < len(standings.of(chosen)) else ""
        return "slower", f"{_times(bound)} the time of {chosen}{early}"


def _file(outcomes: Outcomes, candidate: Candidate) -> tuple[str, str, int | None] | None:
    """What tells whether two variants are one and the same: the runtime, the artifact's sha256, its own threads."""
    made = outcomes.get(candidate.artifact)
    return (candidate.runtime, made.artifact.sha256, candidate.variant.threads) if made and made.artifact else None


def _latency(standings: Standings, candidate: Candidate) -> tuple[Decision, str] | None:
    """How the latency of a variant lies to its limit, by the interval of its sessions; None without a limit."""
    limit, each = candidate.limits.latency_ms, standings.times(candidate.name)
    latency = median(each) if each else standings.rough(candidate.name)
    if limit is None or latency == math.inf:
        return None
    ends = stats.interval(each) if len(each) >= limit_decision.SESSIONS else None
    decided = decide(latency, ends[:2] if ends else (None, None), limit)
    says = f"{latency:.3g} ms, limit {limit:g} ms"
    if decided.word != "undecided":
        return decided, says
    between = f"{ends[0]:.3g} to {ends[1]:.3g} ms with {limit_decision.CONFIDENCE} confidence" if ends else NO_INTERVAL
    return decided, f"{says}; {between}: undecided, more sessions may decide"


def _apart(standings: Standings, name: str, chosen: str) -> str:
    """`fp32 takes 1.92x (1.88–1.95) as long`; one session has no interval."""
    bound = standings.bound(name, chosen)
    if bound and len(standings.of(name)) == 1:
        return f"{name} takes {bound.ratio:.2f}x as long in one session"
    return f"{name} takes {_times(bound)} as long" if bound else f"{name} was {TOO_NOISY}"


def _times(bound: Bound) -> str:
    return f"{bound.ratio:.2f}x ({bound.low:.2f}–{bound.high:.2f})"


def _why_broke(outcomes: Outcomes) -> str:
    """`: ` and why the first round broke, or ""."""
    reason = outcomes["race/round-1"].reason if "race/round-1" in outcomes else ""
    return f": {without_log(reason)}" if reason else ""
