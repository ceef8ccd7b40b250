"""A budget of bits for weights: which layers get more than four, by what each loses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgecompress
from edgecompress.core.errors import ConfigError
from edgecompress.core.model import Artifact, Choice, Outcome, Stage
from edgecompress.formats.precision import facts
from edgecompress.pipeline import plan
from edgecompress.pipeline.job import job
from edgecompress.pipeline.searches.bit_budget import BitBudget
from edgecompress.stages import integer_program

NUMBERS = {"a": 1000, "b": 4000, "c": 1000, "d": 2000}
EFFECTS = {"a": 1e-1, "b": 1e-3, "c": 1e-5, "d": 1e-2}


def search(bits: float, runtime: str = "onnx", **more: Any) -> BitBudget:
    """The search in the int8 variant of the demo on x86, with another recipe."""
    recipe = {"variant.int8.compress": [{"use": "int4", "bits": bits}], "variant.int8.runtime": runtime}
    steps = plan.deploy(job(None, "x86", only=["int8"], settings={**recipe, **more}))
    return next(step for step in steps.stages if isinstance(step, BitBudget))


class Bench:
    """Plays the stages of a search."""

    def __init__(self, numbers: Mapping[str, int] = NUMBERS, eight: tuple[str, ...] = ()) -> None:
        self.facts = {"numbers": dict(numbers), "bits": 4, "int8": list(eight)}
        self.outcomes, self.stages = dict[str, Outcome](), dict[str, Stage]()

    def play(self, budget: BitBudget) -> Choice:
        """Steps until it chooses."""
        while not isinstance(step := budget.step(self.outcomes), Choice):
            assert step, "a step without stages would never end"
            for stage in step:
                assert stage.name not in self.stages
                self.stages[stage.name] = stage
                self.outcomes[stage.name] = Outcome(stage.name, "ok", Artifact(Path(), "made", facts=self.told(stage)))
        return step

    def told(self, stage: Stage) -> dict[str, Any]:
        if stage.call.startswith("stages.diagnose"):
            return {"layers": [row(name, effect) for name, effect in EFFECTS.items()] + [row("norm", 1.0)]}
        if stage.call.startswith("stages.integer_program"):
            return {"choices": integer_program.frontier(**stage.options)}
        return self.facts


def row(name: str, effect: float) -> dict[str, Any]:
    return {"name": f"layer {name}", "operator": name, "module": "", "effect": effect}


def test_the_layers_that_lose_most_get_more_bits_within_the_budget() -> None:
    budget, bench = search(5.5), Bench()
    choice = bench.play(budget)
    assert choice.table["bits"] == {"layer a": 8, "layer b": 4, "layer c": 4, "layer d": 8}
    mixed = bench.stages[choice.stage].options
    assert (mixed["int8"], mixed["skip"], "bits" in mixed) == (["a", "d"], [], False)
    assert choice.reason == "5.50 bits on average, asked for 5.5; layers: 2 with 4, 2 with 8"


def test_a_layer_stays_in_float_where_that_pays_more_than_eight_bits_elsewhere() -> None:
    bench = Bench({"a": 100, "b": 4000, "c": 1000, "d": 4000})
    assert bench.play(search(6.5)).table["bits"] == {"layer a": 32, "layer b": 4, "layer c": 4, "layer d": 8}


def test_layers_that_take_no_four_bits_count_with_eight() -> None:
    bench = Bench(eight=("b",))
    assert bench.play(search(6.5)).table["bits"] == {"layer a": 8, "layer c": 4, "layer d": 4}
    choice = Bench(eight=("b",)).play(search(5.5))
    assert choice.stage == "" and choice.reason == "bits = 5.5: some layers take no fewer than 8, give 6.00 or more"


def test_a_diagnosis_that_fails_ends_the_search_with_its_reason() -> None:
    budget, bench = search(5.0), Bench()
    for stage in budget.plain:
        bench.outcomes[stage.name] = Outcome(stage.name, "lost", reason="no product")
    assert budget.step(bench.outcomes) == Choice("", "no product")


def test_every_runtime_with_four_bits_is_diagnosed_as_it_runs() -> None:
    for runtime in ("openvino", "litert", "executorch"):
        calls = [stage.call for stage in search(5.0, runtime).plain]
        assert calls[-1] == "stages.diagnose:run" and calls[0].startswith("techniques.")


@pytest.mark.parametrize("bits", [3.9, 8.0])
def test_a_budget_that_says_nothing_is_refused(bits: float) -> None:
    with pytest.raises(ConfigError, match="bits must be at least 4 and below 8; for 8 use int8-weights"):
        search(bits)


def test_bits_and_the_guard_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="remove bits or the guard"):
        search(5.0, **{"guard.on": True})


def test_a_file_whose_layers_cannot_be_judged_is_told_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    recipe = {"variant.int8.compress": [{"use": "int4", "bits": 5.0}]}
    with pytest.raises(ConfigError, match="needs a torch source: which layers get more bits is chosen by"):
        plan.deploy(job(str(tmp_path / "net.onnx"), "x86", only=["int8"], data="random", settings=recipe))


# --------------------------------------------------------------------------- the whole way


class Mixer(torch.nn.Module):
    """Linear layers of unlike sizes beside a shortcut each; what some of them answer is louder than the rest."""

    WIDTHS, LOUD = (64, 256, 128, 64, 256, 128), {0: 2.5, 1: 3.0, 3: 2.5}

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = torch.nn.ModuleList(torch.nn.Linear(64, width) for width in self.WIDTHS)
        self.down = torch.nn.ModuleList(torch.nn.Linear(width, 64) for width in self.WIDTHS)
        with torch.no_grad():
            for place, factor in self.LOUD.items():
                self.down[place].weight *= factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 64] -> [n, 64]."""
        for up, down in zip(self.up, self.down, strict=True):
            x = x + down(torch.relu(up(x)))
        return x


def items(split: str) -> Iterator[np.ndarray] | None:
    seed = {"calibrate": 1, "select": 2, "test": 3}.get(split)
    return iter(np.random.default_rng(seed).normal(size=(32, 64)).astype(np.float32)) if seed else None


TARGET = """
description = "weights of few bits"
runtime = "onnx"
[limits]
channel_error = 9.0
tail_error = 9.0
choice_loss = 0.9
divergence = 9.0
[[variant]]
name = "small"
compress = [{ use = "int4", symmetric = true }]
"""


def deployed(folder: Path, **options: Any) -> tuple[edgecompress.Result, Artifact, float]:
    """The run of a recipe, its artifact, and the noise over signal at the output."""
    (folder / "few.toml").write_text(TARGET, encoding="utf-8")
    result = edgecompress.deploy(
        Mixer().eval(),
        folder / "few.toml",
        data=items,
        metric="none",
        settings={f"variant.small.{key}": value for key, value in options.items()},
        profile="quick",
        options=edgecompress.Options(store=folder / "store", out=folder / "out"),
    )
    assert isinstance(result, edgecompress.Result)
    verdict, artifact = result.outcomes["small/verify"], result.outcomes["small/onnx_int4"].artifact
    assert artifact is not None
    return result, artifact, 10 ** (-verdict.facts["outputs"][0]["sqnr_db"] / 10)


def held(artifact: Artifact) -> int:
    """Bytes of the weights."""
    weights = facts.of(artifact)["weights"]
    assert weights is not None
    return sum(weights.values())


@pytest.mark.prove
def test_the_budget_is_kept_to_the_byte_and_loses_less_than_the_worst_layers_first(tmp_path: Path) -> None:
    whole, bits = (
        2 * 64 * sum(Mixer.WIDTHS),
        4 + 4 * 256 / sum(Mixer.WIDTHS),
    )  # as many as two of the widest layers with 8
    result, mixed, less = deployed(tmp_path, bits=bits)
    numbers = mixed.facts["numbers"]
    assert held(mixed) == (whole + sum(numbers[name] for name in mixed.facts["int8"])) / 2 <= whole * bits / 8
    rows = sorted(result.outcomes["small/onnx_int4/diagnosis"].facts["layers"], key=lambda row: -(row["effect"] or 0))
    worst = [row["operator"] for row in rows if row["operator"] in numbers][:2]
    _, doubled, more = deployed(tmp_path, int8=worst)
    assert held(mixed) <= held(doubled) == whole * bits / 8 and less < more
