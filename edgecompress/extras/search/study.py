"""The trials of a search as a study of Optuna: asked and told, in a database that outlives `kill -9`.

What is drawn follows from the seed and the trials before: a search that was killed goes on as if nothing had happened.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import random
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import environments, package_files
from edgecompress.core.errors import MissingDependency
from edgecompress.core.json import Json

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial

OPTUNA = "optuna>=5"
NAME = "search"
FEWEST = 10  # trials inside the limits that tell which knobs matter
BEST = 0.25  # of the trials inside the limits: what a knob has to bring about to matter
NEAR = 0.9  # of the trials: they turn some knobs of one that is on the front
KNOBS = 2  # as many, and more where what comes of it had been tried
TINY = 1e-3  # of a gap between two that are the same in an objective
ROW = "row"  # the attribute of a trial with all that is told of it


def require() -> None:
    """Raises MissingDependency without Optuna."""
    if not environments.met(OPTUNA):
        raise MissingDependency(f"search needs {OPTUNA}, not installed; run: {package_files.install('search')}")


class TrialStudy:
    """A study that is asked for trials, one or several at once, and told how they ended."""

    def __init__(self, file: Path | None, objectives: Sequence[str], sampler: str = "tpe", seed: int = 0) -> None:
        """`file`: its database, made where there is none; None keeps it in memory."""
        import optuna

        optuna.logging.set_verbosity(logging.ERROR)
        self.sampler, self.seed = sampler, seed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.study = optuna.create_study(
                storage=f"sqlite:///{file}" if file else None,
                study_name=NAME,
                load_if_exists=True,
                directions=["minimize"] * len(objectives),
            )
        running = self.study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
        self.left = list(running)  # by a run that was killed

    def begin(self, values: Sequence[Mapping[str, Json]]) -> None:
        """The values that the first trials are to have; asked once more, nothing changes."""
        for each in values:
            self.study.enqueue_trial(dict(each), skip_if_exists=True)

    @property
    def waiting(self) -> bool:
        """Whether a trial with given values has not begun."""
        from optuna.trial import TrialState

        return bool(self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    def ask(self) -> Trial:
        """The next trial; one that a killed run began comes first, with the same values.

        With TPE most turn some knobs of a trial on the front, more of them after trials that drew what had been tried
        before. Other samplers then draw at random.
        """
        import optuna
        from optuna.trial import TrialState

        left, trials = self.left.pop(0) if self.left else None, self.study.get_trials(deepcopy=False)
        waiting = (trial.number for trial in trials if trial.state == TrialState.WAITING)
        number = left.number if left else next(waiting, len(trials))
        own = int.from_bytes(hashlib.sha256(f"{self.seed} {number}".encode()).digest()[:4])
        again = sum(1 for _ in itertools.takewhile(lambda t: t.state == TrialState.FAIL, reversed(trials[:number])))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.study.sampler = sampler("random" if again else self.sampler, own)
            turns = self.sampler == "tpe" and (again or random.Random(own).random() < NEAR)
            if turns and (front := self._front(number)):
                self.study.sampler = near(front, KNOBS + again // 2, own)
            return optuna.trial.Trial(self.study, left._trial_id) if left else self.study.ask()

    def _front(self, number: int) -> list[FrozenTrial]:
        """The trials before one of a number that no other beats, once those with given values have ended."""
        return [] if self.waiting else [trial for trial in self.study.best_trials if trial.number < number]

    def tell(
        self, trial: Trial, values: Sequence[float] | None, excess: Mapping[str, float], row: Mapping[str, Json]
    ) -> None:
        """How a trial ended. `values`: one for each objective, None where a limit was broken before all were known."""
        from optuna.trial import TrialState

        trial.set_user_attr(ROW, json.dumps(row))
        for name, value in excess.items():
            trial.set_constraint(name, value)
        self.study.tell(trial, values, TrialState.COMPLETE if values is not None else TrialState.PRUNED)

    def skip(self, trial: Trial, excess: Mapping[str, float] | None = None) -> None:
        """Ends a trial that needs no try: of a recipe that was tried before, or of one that is known to break."""
        from optuna.trial import TrialState

        for name, value in (excess or {}).items():
            trial.set_constraint(name, value)
        self.study.tell(trial, state=TrialState.PRUNED if excess else TrialState.FAIL)

    def rows(self) -> list[dict[str, Any]]:
        """What was told of each trial that ended, in order."""
        return [json.loads(t.user_attrs[ROW]) for t in self._ended() if ROW in t.user_attrs]

    def _ended(self) -> list[FrozenTrial]:
        return [t for t in self.study.get_trials(deepcopy=False) if t.state.is_finished()]

    def importances(self) -> dict[str, float]:
        """How much each knob decides whether a trial is among the best, as shares of 1 (PED-ANOVA); empty: too few."""
        import optuna

        if sum(trial.state == optuna.trial.TrialState.COMPLETE for trial in self._ended()) < FEWEST:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BEST)
                found = optuna.importance.get_param_importances(self.study, evaluator=evaluator)
            except (RuntimeError, ValueError):  # nothing was varied
                return {}
        return {name: share for name, share in found.items() if share > 0}


def sampler(name: str, seed: int) -> BaseSampler:
    """A sampler by its name."""
    from optuna import samplers

    if name == "random":
        return samplers.RandomSampler(seed=seed)
    if name == "nsga2":
        return samplers.NSGAIISampler(population_size=20, seed=seed)
    return samplers.TPESampler(multivariate=True, group=True, seed=seed)


def near(front: Sequence[FrozenTrial], knobs: int, seed: int) -> BaseSampler:
    """TPE of some knobs, the others as a trial of the front has them: one beside a gap, the wider the likelier."""
    from optuna import samplers

    drawn, ordered = random.Random(seed), sorted(front, key=lambda trial: trial.values)
    spans = [max(ends) - min(ends) or 1.0 for ends in zip(*(t.values for t in ordered), strict=True)]
    gaps = [
        math.prod(abs(x - y) / span + TINY for x, y, span in zip(a.values, b.values, spans, strict=True))
        for a, b in itertools.pairwise(ordered)
    ]
    beyond = sum(gaps) / len(gaps) if gaps else 1.0  # the two ends: as wide as the others are in the mean
    place = drawn.choices(range(len(gaps) + 2), [beyond, *gaps, beyond])[0] - drawn.randrange(2)
    params = ordered[min(max(place, 0), len(ordered) - 1)].params
    free = drawn.sample(sorted(params), min(knobs, len(params)))
    fixed = {name: value for name, value in params.items() if name not in free}
    return samplers.PartialFixedSampler(fixed, sampler("tpe", seed))
