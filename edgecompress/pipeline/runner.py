"""Runs a plan: each stage is found in the store or run in a worker process; searches are stepped until they choose."""

from __future__ import annotations

import dataclasses
import json
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from edgecompress.core import environments, registry
from edgecompress.core.errors import EdgeError
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Choice, Context, Outcome, Search, Stage, Substitute, seconds
from edgecompress.pipeline import code_digest, fork_server
from edgecompress.pipeline.side_by_side import SideBySide, Step
from edgecompress.pipeline.stage_order import Here, Order, Place
from edgecompress.pipeline.store import Parts, Store, StoredResult, key_of

CLOCK_S = 60.0  # a correction of the clock by less is ignored
CODE = "code of edgecompress"  # the part of a key that covers all but techniques and runtimes


@dataclass(frozen=True)
class Event:
    """An event for listeners: a stage began, made progress, or ended."""

    kind: str  # "started", "progress", "ended"
    stage: Stage
    why: str = ""  # started: why it runs
    fraction: float = 0.0  # progress: of this stage, 0..1
    what: str = ""  # progress: in words
    outcome: Outcome | None = None  # ended
    number: int = 0  # of the stage, among so many that are known
    of: int = 0
    left_s: float = 0.0  # seconds until everything is done, as far as is known
    target: str = ""  # of a deploy


Listener = Callable[[Event], None]


@dataclass
class PlanRun:
    """One run of a plan: its store, its context and its listener. `outcomes` fills as it runs."""

    store: Store
    context: Context
    path: Sequence[str] = ()  # folders of the user's own modules
    scope: str = ""  # whose stages these are: the reason for a re-run is told within a scope
    offline: bool = False
    remeasure: bool = False
    target: str = ""  # for listeners
    listener: Listener = lambda event: None
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)  # of each search in the place of a stage
    jobs: int = 1  # stages that build at once; what measures is alone
    place: Place = field(default_factory=Here)  # where they are done
    waiting: list[Step] = field(default_factory=list)  # steps known to come, for the time left
    ahead_s: float = 0.0  # seconds of what comes after those, as far as is known
    began: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.store.hold()
        self._telling, self._over = threading.RLock(), threading.Event()
        self._side: SideBySide | None = None  # what runs steps now

    @cached_property
    def _package(self) -> str:
        return code_digest.of_package()

    def stages(self, steps: Sequence[Step], until: str = "") -> bool:
        """Runs the steps up to `until`, in order or side by side; returns whether it was reached.

        Raises what ends the run.
        """
        last = next((number for number, step in enumerate(steps, 1) if step.name == until), None)
        due = steps[:last]
        self.waiting[:0] = due
        if self.jobs > 1:
            self._side = SideBySide(self._do, self._fits, self.stop, self.jobs)
            try:
                self._side.run(due)
            finally:
                self._side = None
            self._in_order(due)
        else:
            for step in due:
                self._do(step)
        return last is not None

    def stop(self) -> None:
        """Ends the stages that run, and those that would: each fails. Called from any thread."""
        self._over.set()

    @property
    def stopped(self) -> bool:
        """Whether it was."""
        return self._over.is_set()

    def _do(self, step: Step) -> Outcome:
        with self._telling:
            self.waiting.remove(step)
        return self.stage(step) if isinstance(step, Stage) else self.substitute(step)

    def _fits(self, step: Step) -> bool:
        made = (self.outcomes[name].artifact for name in step.inputs.values() if name in self.outcomes)
        return self.place.fits(artifact for artifact in made if artifact)

    def _in_order(self, steps: Sequence[Step]) -> None:
        """The outcomes in the order of the plan, whichever ended first: those of a search before what it chose."""
        for step in steps:
            for name in [name for name in self.outcomes if name.startswith(f"{step.name}/")] + [step.name]:
                self.outcomes[name] = self.outcomes.pop(name)

    def search(self, search: Search) -> Choice:
        """Asks a search for stages until it chooses."""
        whole_s, took_s, ahead_s = self.expected_s(search), 0.0, 0.0
        while not isinstance(step := search.step(self.outcomes), Choice):
            left_s = max(0.0, whole_s - took_s - sum(map(self.expected_s, step)))
            self._later(left_s - ahead_s)
            ahead_s = left_s
            self.waiting[:0] = step
            self._asked(step)
            took_s += sum(self.outcomes[stage.name].wall_s for stage in step)
        self._later(-ahead_s)
        self.store.remember_search(self._name(search), took_s)
        return step

    def _asked(self, steps: Sequence[Step]) -> None:
        """What a search asks for: side by side with as many of it as others leave, unless it measures."""
        others = self._side.working - 1 if self._side else 0
        if len(steps) < 2 or self.jobs - others < 2 or any(isinstance(s, Stage) and s.max_age_s for s in steps):
            for step in steps:
                self._do(step)
            return
        side = SideBySide(self._do, self._fits, self.stop, self.jobs - others)
        outer, self._side = self._side, self._side or side
        try:
            side.run(steps)
        finally:
            self._side = outer
        self._in_order(steps)

    def substitute(self, search: Substitute) -> Outcome:
        """Asks a search until it chooses; its name then stands for the stage that it chose."""
        choice = self.choices[search.name] = self.search(search)
        chosen = self.outcomes[choice.stage] if choice.stage else Outcome(search.name, "lost", reason=choice.reason)
        why = "hit" if chosen.why_run == "hit" else choice.reason
        outcome = dataclasses.replace(chosen, stage=search.name, why_run=why)
        self.outcomes[search.name] = outcome
        self._tell("ended", search.stage, outcome=outcome)
        return outcome

    def stage(self, stage: Stage) -> Outcome:
        """Runs one stage, or finds its result. An error of a stage that everything depends on is raised."""
        begin = time.monotonic()
        inputs = (self.outcomes[name] for name in stage.inputs.values())
        fallen = next((o for o in inputs if o.status != "ok"), None)
        if fallen and stage.variants:  # the report does not fall with its inputs: it tells of them
            self.outcomes[stage.name] = dataclasses.replace(fallen, stage=stage.name, artifact=None)
            return self.outcomes[stage.name]
        try:
            outcome = self._found_or_run(stage)
        except EdgeError as error:
            self._tell("ended", stage, outcome=_failed(stage, error, begin))
            if not stage.variants:
                raise
            outcome = _failed(stage, error, begin)
            self.outcomes[stage.name] = outcome
            return outcome
        self.outcomes[stage.name] = outcome
        self._tell("ended", stage, outcome=outcome)
        return outcome

    def _later(self, more_s: float) -> None:
        with self._telling:
            self.ahead_s += more_s

    # ------------------------------------------------------------------ one stage

    def _found_or_run(self, stage: Stage) -> Outcome:
        made = {role: self.outcomes[name].artifact for role, name in stage.inputs.items()}
        inputs = {role: artifact for role, artifact in made.items() if artifact}
        parts = self._parts(stage, inputs)
        with self.store.locked(key_of(parts)):
            entry = self.store.find(parts, stage.observes)
            why = self._why(stage, parts, entry)
            if not why and entry:
                self.store.remember(self._name(stage), parts, entry.receipt)
                return _outcome(stage, entry, "hit")
            self._tell("started", stage, self.expected_s(stage), why=why)
            entry = self._work(stage, inputs, parts)
        self.store.remember(self._name(stage), parts, entry.receipt)
        return _outcome(stage, entry, why)

    def _why(self, stage: Stage, parts: Parts, entry: StoredResult | None) -> str:
        """Why the stage has to run, or "" for a hit."""
        if entry is None:
            return self.store.why(self._name(stage), parts, stage.observes)
        if stage.max_age_s is None:
            return ""
        if self.remeasure and entry.receipt["time"] < self.began:
            return "--remeasure"
        if entry.age_s < -CLOCK_S:
            return "its time stamp is in the future: the clock was set back"
        if entry.age_s > stage.max_age_s:
            return f"measured {entry.age_s / 86400:.1f} days ago, older than {stage.max_age_s / 86400:g}"
        return ""

    def _parts(self, stage: Stage, inputs: Mapping[str, Artifact]) -> dict[str, Json]:
        module, _ = registry.call(stage.call)
        parts: dict[str, Json] = {"call": stage.call, "python": platform.python_version(), CODE: self._package}
        parts |= {f"input.{role}": artifact.sha256 for role, artifact in inputs.items()}
        parts |= _flat("options", _plain(stage.options))
        parts |= _flat("context", {name: _plain(getattr(self.context, name)) for name in stage.context})
        if stage.user_code:
            parts["path"] = list(self.path)
        for reference in (module, *(registry.load(*p.split(".", 1)) for p in stage.plugins)):
            name = reference.__name__.removeprefix("edgecompress.")
            if own := code_digest.of_plugin(reference):
                parts[f"code of {name}"] = own
            parts |= {f"version of {p}": v for p, v in environments.versions(reference).items()}
        return parts

    def _name(self, stage: Stage | Search) -> str:
        return f"{self.scope}:{stage.name}"

    def _tell(self, kind: str, stage: Stage, stage_s: float = 0.0, **more: Any) -> None:
        """An event, of whose stage `stage_s` seconds are left."""
        with self._telling:
            number, left_s = len({*self.outcomes, stage.name}), self.ahead_s + stage_s
            left_s += sum(self.expected_s(step) for step in self.waiting) / self.jobs
            of = number + len(self.waiting)
        event = Event(kind, stage, number=number, of=of, left_s=left_s, target=self.target, **more)
        self._side.later(lambda: self.listener(event)) if self._side else self.listener(event)

    def expected_s(self, step: Stage | Search) -> float:
        """Seconds that a step takes: as the last time, as for other models, or as it says of itself."""
        return self.store.expected_s(self._name(step)) or seconds(step)

    def _work(self, stage: Stage, inputs: Mapping[str, Artifact], parts: Parts) -> StoredResult:
        order = Order(
            stage,
            {role: str(artifact.path) for role, artifact in inputs.items()},
            parts,
            self.context,
            self.path,
            self.offline,
            fork_of=self._package if fork_server.serves(stage, [*self.waiting]) else "",
            alone=self.jobs == 1 or stage.alone,
        )
        begin, expected_s = time.monotonic(), self.expected_s(stage)

        def tell(fraction: float, what: str) -> None:
            took_s = time.monotonic() - begin
            stage_s = took_s * (1 - fraction) / fraction if fraction else max(0.0, expected_s - took_s)
            self._tell("progress", stage, stage_s, fraction=fraction, what=what)

        return self.place.make(self.store, order, tell, self._over)


def _outcome(stage: Stage, entry: StoredResult, why: str) -> Outcome:
    lost = str(entry.artifact.facts.get("lost") or "")
    status: Literal["ok", "lost"] = "lost" if lost else "ok"
    receipt = entry.receipt
    return Outcome(
        stage.name, status, entry.artifact, lost, why, receipt["wall_s"], made=receipt["time"], log=receipt["log"]
    )


def _failed(stage: Stage, error: EdgeError, begin: float) -> Outcome:
    return Outcome(stage.name, "failed", None, str(error), wall_s=time.monotonic() - begin, error=error)


# --------------------------------------------------------------------------- what a key is made of


def _plain(value: Json) -> Json:
    """As JSON would give it back: tuples are lists, dataclasses are tables."""
    plain: Json = json.loads(json.dumps(value, default=lambda v: dataclasses.asdict(v)))
    return plain


def _flat(prefix: str, value: Json) -> dict[str, Json]:
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in _flat(f"{prefix}.{key}", item).items()}
    return {prefix: value}
