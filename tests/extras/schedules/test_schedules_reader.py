"""Distiller's YAML schedules: what the reader takes, and the line that it refuses each mistake with."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED
from hypothesis import given, settings
from hypothesis import strategies as st

from edgecompress.core.errors import ConfigError, InputError
from edgecompress.extras.schedules import arguments, documents, quantizer_arguments, rate_arguments, reader

yaml = pytest.importorskip("yaml")

AGP = """\
version: 1
pruners:
  fc:
    class: AutomatedGradualPruner
    initial_sparsity: 0.05
    final_sparsity: 0.7
    weights: module.fc.weight
lr_schedulers:
  lr: {class: StepLR, step_size: 45, gamma: 1e-1}
policies:
  - pruner:
      instance_name: fc
      args:
        keep_mask: True
    starting_epoch: 2
    ending_epoch: 20
    frequency: 1
  - lr_scheduler:
      instance_name: lr
    epochs: [5, 3]
"""


def read(folder: Path, text: str) -> reader.Schedule:
    """The schedule of a text."""
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    return reader.read(folder / "s.yaml")


def refused(folder: Path, text: str) -> str:
    """What the reader says of a text, without the folder."""
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2
    return str(caught.value).removeprefix(f"{folder}/")


def test_a_schedule_is_read_with_its_types_and_lines(tmp_path: Path) -> None:
    schedule = read(tmp_path, AGP)
    pruner, rate = schedule.policies
    assert pruner.instance.arguments == arguments.GradualLevel(
        initial_sparsity=0.05, final_sparsity=0.7, weights=("module.fc.weight",)
    )
    assert pruner.arguments == arguments.PruningPolicy(keep_mask=True)
    assert (list(pruner.epochs), pruner.ending, pruner.instance.where) == (
        list(range(2, 20)),
        20,
        f"{tmp_path}/s.yaml: line 3",
    )
    assert rate.instance.arguments == rate_arguments.Step(step_size=45, gamma=0.1)
    assert (rate.epochs, rate.starting, rate.ending, schedule.warnings) == ((3, 5), 3, 6, ())


MISTAKES = [
    ("version: 1", "versoin: 1", "line 1: unknown key 'versoin', did you mean 'version'?"),
    ("AutomatedGradualPruner", "AutomaticGradualPruner", "line 4: pruners.fc: unknown class 'AutomaticGradualPruner',"),
    ("AutomatedGradualPruner", "__import__", "line 4: pruners.fc: unknown class '__import__'; known: "),
    ("StepLR", "LambdaLR", "line 9: lr_schedulers.lr: LambdaLR takes functions"),
    ("StepLR, ", "StepLR, step_siez: 4, ", "line 9: lr_schedulers.lr (StepLR): unknown argument 'step_siez', did you"),
    ("    final_sparsity: 0.7\n", "", "line 3: pruners.fc (AutomatedGradualPruner): the argument 'final_sparsity' is"),
    ("0.7", "seven", "line 6: pruners.fc (AutomatedGradualPruner): final_sparsity: must be a number, not 'seven'"),
    ("0.7", "1.7", "line 3: pruners.fc (AutomatedGradualPruner): initial_sparsity and final_sparsity must be between"),
    ("0.7", "0.01", "line 3: pruners.fc (AutomatedGradualPruner): final_sparsity must be larger than initial_sparsity"),
    ("    class: AutomatedGradualPruner\n", "", "line 3: pruners.fc: key 'class' is missing"),
    ("instance_name: fc", "instance_name: fcc", "line 12: policies: pruners has no instance 'fcc', did you mean 'fc'?"),
    ("      instance_name: fc\n", "", "line 11: policies: pruner: key 'instance_name' is missing"),
    ("keep_mask", "kep_mask", "line 14: policies: pruner fc: args: unknown argument 'kep_mask', did you mean 'keep_ma"),
    ("keep_mask", "mask_gradients", "line 11: policies: pruner fc: args: mask_gradients needs mask_on_forward_only"),
    ("keep_mask: True", "levels: {a: 0.5}", "line 11: policies: pruner fc: args: levels is of SparsityLevel"),
    ("- pruner:", "- pruneer:", "line 11: policies: unknown key 'pruneer', did you mean 'pruner'?"),
    ("ending_epoch: 20", "ending_epoch: 2", "line 16: policies: pruner fc: ending_epoch 2 must be larger than startin"),
    ("ending_epoch: 20", "ending_epoch: 3", "line 11: policies: pruner fc: AutomatedGradualPruner needs at least two"),
    ("frequency: 1", "frequency: 0", "line 17: policies: pruner fc: frequency must be at least 1"),
    ("frequency: 1", "frequncy: 1", "line 17: policies: unknown key 'frequncy', did you mean 'frequency'?"),
    ("    frequency: 1\n", "", "line 11: policies: pruner fc: give either epochs, or all of starting_epoch"),
    ("epochs: [5, 3]", "epochs: []", "line 20: policies: lr_scheduler lr: epochs: must be a list of epochs"),
    ("version: 1", "a: [", "line 3: not valid YAML: "),
    ("version: 1", "version: !!python/name:os.system x", "line 1: not valid YAML: could not determine a constructor"),
    ("version: 1", "version: !!python/object:os.x {}", "line 1: the tag 'tag:yaml.org,2002:python/object:os.x' is not"),
    ("version: 1", "version: 2001-99-99", "line 1: not valid YAML: "),
    ("version: 1", "? [1]\n: 1", "line 1: a key must be a text"),
    ("version: 1", "k" * 501 + ": 1", "line 1: a key must be a text of at most 500"),
    ("version: 1", "&a version: *a\nx: [*a, *b]", "line 2: not valid YAML: found undefined alias 'b'"),
    ("version: 1", "version: " + "[" * 40 + "]" * 40, "line 1: nested more than 32 levels deep"),
    ("version: 1", "version: " + "[" * 9999, "nested more than 32 levels deep"),
    ("version: 1", "version: \0", "not valid YAML: unacceptable character"),
    ("version: 1", "quantizers: {a: {class: WRPNQuantizer}, b: {class: WRPNQuantizer}}", "line 1: quantizers.b: a sch"),
    ("version: 1", "quantizers: {a: {class: WRPNQuantizer, overrides: {'(': {}}}}", "line 1: quantizers.a (WRPNQuanti"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "says"), MISTAKES, ids=[says[:60] for _, _, says in MISTAKES])
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in AGP
    assert refused(tmp_path, AGP.replace(old, new, 1)).removeprefix("s.yaml: ").startswith(says)


def test_each_entry_of_a_table_has_a_line_of_its_own(tmp_path: Path) -> None:
    regims = "    reg_regims:\n      a: [0.1, 2D]\n      b: [0.1, 2d]\n"
    text = f"regularizers:\n  r:\n    class: GroupLassoRegularizer\n{regims}"
    assert "line 6: regularizers.r (GroupLassoRegularizer): reg_regims.b[1]: '2d' is not a valid value" in refused(
        tmp_path, text
    )


def test_a_file_that_is_none_or_too_large_or_repeats_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.yaml: no such file"):
        reader.read(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="larger than"):
        read(tmp_path, "#" * (documents.LARGEST + 1))
    bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{y}: &{y} [{','.join([f'*{x}'] * 10)}]\n" for x, y in ["ab", "bc", "cd", "de", "ef", "fg"]
    )
    assert "more than 20000 values" in refused(tmp_path, bomb)
    assert refused(tmp_path, "").endswith("s.yaml: is empty")


WARNED = [
    ("    weights: module", "    weights: a\n    weights: module", "line 8: 'weights' was given in line 7 already; th"),
    ("epochs: [5, 3]", "starting_epoch: 1\n    ending_epoch: 2\n    frequency: 3",
     "line 18: policies: lr_scheduler lr: its frequency is larger than its epochs: it acts once, at 1"),
    ("frequency: 1", "frequency: 2", "line 11: policies: fc: keep_mask does nothing: epoch 19, the last, is not one o"),
    ("lr_schedulers:", "lr_schedulers:\n  other: {class: ExponentialLR, gamma: 0.9}", "line 9: lr_schedulers.other is"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "says"), WARNED, ids=[says[:60] for _, _, says in WARNED])
def test_what_distiller_silently_ignored_is_a_warning(tmp_path: Path, old: str, new: str, says: str) -> None:
    (warning,) = read(tmp_path, AGP.replace(old, new, 1)).warnings
    assert warning.removeprefix(f"{tmp_path}/s.yaml: ").startswith(says)


# --------------------------------------------------------------------------- the published ones


@pytest.mark.shared
def test_the_published_schedules_are_read_unmodified() -> None:
    found = {file.name: reader.read(file) for file in sorted((SHARED / "distiller_schedules").rglob("*.yaml"))}
    assert len(found) == 16
    warned = {name: len(schedule.warnings) for name, schedule in found.items() if schedule.warnings}
    assert warned == {"resnet20_slimming.yaml": 1, "ssl_channels-removal_training.yaml": 2}
    acting = [p for schedule in found.values() for p in schedule.policies]
    assert {p.kind for p in acting} == {"pruner", "regularizer", "quantizer", "lr_scheduler", "extension"}
    pact = found["preact_resnet20_cifar_pact.yaml"].policies[0].instance.arguments
    assert isinstance(pact, quantizer_arguments.LearnedClip) and pact.overrides is not None
    assert list(pact.overrides) == ["conv1", "layer1.0.pre_relu", "final_relu", "fc"]
    assert pact.overrides["fc"] == quantizer_arguments.Override(bits_weights=None, bits_activations=None)


# --------------------------------------------------------------------------- every class, with all its arguments

WEIGHTS: dict[str, Any] = {"weights": ["a", "b"]}
GRADUAL = {"initial_sparsity": 0.1, "final_sparsity": 0.5}
RANKED = {**WEIGHTS, "group_type": "Filters", "group_dependency": "Leader", "kwargs": None}
NORM = {**RANKED, "desired_sparsity": 0.5, "noise": 0, "group_size": 4, "rounding_fn": "floor"}
REGIMS = {"threshold_criteria": "Max", "reg_regims": {"a": [0.1, "Channels"], "b": [1, "4D"]}}
BITS: dict[str, Any] = {"bits_activations": 8, "bits_weights": None, "bits_bias": 32}
INPUTS = {
    "0": {"from_output": True},
    "1": {"bits_activations": 8, "mode": "SYMMETRIC", "clip_acts": "AVG", "clip_n_stds": 2},
}
OVERRIDES = {".*add": {**BITS, "fpq_module": 32, "fake": True, "clip_acts": "None", "input_overrides": INPUTS}}
QUANTIZED = {**BITS, "overrides": OVERRIDES}
MODES = {"activations": "ASYMMETRIC_UNSIGNED", "weights": "SYMMETRIC_RESTRICTED"}
RANGES = {**QUANTIZED, "mode": MODES, "ema_decay": 0.9, "per_channel_wts": True, "quantize_inputs": False}
EVERY: dict[str, dict[str, dict[str, Any]]] = {
    "pruners": {
        "MagnitudeParameterPruner": {"thresholds": {"*": 0.1, "a": 1}},
        "SparsityLevelParameterPruner": {"levels": {"a": 0.5}},
        "SensitivityPruner": {"sensitivities": {"a": 0.5}},
        "SplicingPruner": {
            "sensitivities": {"a": 0.5},
            "low_thresh_mult": 0.9,
            "hi_thresh_mult": 1.1,
            "sensitivity_multiplier": 0.015,
        },
        "AutomatedGradualPruner": GRADUAL | WEIGHTS,
        "BaiduRNNPruner": {"q": 0.17, "ramp_epoch_offset": 3, "ramp_slope_mult": 2, **WEIGHTS},
        "StructureParameterPruner": REGIMS,
        **{f"{norm}RankedStructureParameterPruner": NORM for norm in ("L1", "L2")},
        **{f"{norm}RankedStructureParameterPruner_AGP": RANKED | GRADUAL for norm in ("L1", "L2")},
        "RandomLevelStructureParameterPruner": {**RANKED, "sparsity_range": [0.1, 0.2]},
        **{name: {**RANKED, "desired_sparsity": 0.5} for name in arguments.RANKINGS},
        **{f"{name}_AGP": RANKED | GRADUAL for name in arguments.RANKINGS},
        "FMReconstructionChannelPruner": {**NORM, "group_type": "Channels"},
    },
    "regularizers": {
        "L1Regularizer": {"reg_regims": {"a": 0.1}, "threshold_criteria": "Mean_Abs"},
        "GroupLassoRegularizer": {**REGIMS, "reg_regims": {"a": [0.1, "Channels+4D"], "b": [0.1, "Rows+Cols"]}},
        "GroupVarianceRegularizer": {"reg_regims": {"a": [0.1, "Channels"]}},
    },
    "quantizers": {
        "WRPNQuantizer": QUANTIZED,
        "DorefaQuantizer": QUANTIZED,
        "PACTQuantizer": {**QUANTIZED, "act_clip_init_val": 8.0, "act_clip_decay": 0.0002},
        "QuantAwareTrainRangeLinearQuantizer": {**RANGES, "num_bits_inputs": 8},
        "NCFQuantAwareTrainQuantizer": RANGES,
        "PostTrainLinearQuantizer": {
            **{key: value for key, value in QUANTIZED.items() if key != "bits_weights"},
            "bits_parameters": 6,
            "bits_accum": 32,
            "mode": MODES,
            "clip_acts": "N_STD",
            "clip_n_stds": 2.5,
            "model_activation_stats": "../stats.yaml",
            "fp16": False,
            "clip_half_range": False,
            "scale_approx_mult_bits": None,
            "inputs_quant_auto_fallback": False,
            "per_channel_wts": True,
            "fpq_module": None,
            "save_fp_weights": True,
            "also_clip_weights": False,
        },
    },
    "lr_schedulers": {
        "StepLR": {"step_size": 45, "gamma": 0.1},
        "MultiStepLR": {"milestones": [60, 120], "gamma": 0.1},
        "MultiStepMultiGammaLR": {"milestones": [60, 75], "gammas": [0.1, 1.2]},
        "ExponentialLR": {"gamma": 0.95},
        "PolynomialLR": {"T_max": 10, "power": 0.5},
        "ConstantLR": {"factor": 0.5, "total_iters": 3},
        "LinearLR": {"start_factor": 0.5, "end_factor": 1, "total_iters": 3},
        "CosineAnnealingLR": {"T_max": 10, "eta_min": 0},
        "CosineAnnealingWarmRestarts": {"T_0": 10, "T_mult": 2, "eta_min": 0.0},
        "CyclicLR": {"base_lr": 0.1, "max_lr": [0.2, 0.3], "step_size_up": 4},
        "OneCycleLR": {"max_lr": 0.1, "total_steps": 10},
        "ReduceLROnPlateau": {"mode": "max", "patience": 5, "min_lr": 0.001, "verbose": True},
    },
    "extensions": {
        name: {"thinning_func_str": "remove_filters", "arch": "resnet20_cifar", "dataset": "cifar10"}
        for name in ("FilterRemover", "ChannelRemover", "StructureRemover")
    }
    | {"Rewinder": {"epoch": 0, "what": "lr"}},
}
CLASSES = [(section, name) for section, classes in EVERY.items() for name in classes]


@pytest.mark.parametrize(("section", "name"), CLASSES)
def test_every_class_takes_its_arguments_and_no_others(tmp_path: Path, section: str, name: str) -> None:
    known = reader.KINDS[reader.SECTIONS[section]][1]
    assert known.keys() == EVERY[section].keys()
    instance = {"class": name, **EVERY[section][name]}
    built = read(tmp_path, yaml.safe_dump({section: {"it": instance}})).instances[section]["it"]
    assert isinstance(built.arguments, known[name]) and built.cls == name
    says = refused(tmp_path, yaml.safe_dump({section: {"it": {**instance, "more": 1}}}))
    assert f"{section}.it ({name}): unknown argument 'more'" in says


acting = st.sampled_from([each for each in CLASSES if each[0] != "quantizers" and each[1] != "Rewinder"])
policies = st.lists(st.tuples(acting, st.integers(0, 9), st.integers(2, 40), st.integers(1, 2)), max_size=6)


def schedule(found: list[Any]) -> dict[str, Any]:
    """A schedule with a policy for each of these classes."""
    made: dict[str, Any] = {"policies": []}
    for number, ((section, name), start, length, frequency) in enumerate(found):
        made.setdefault(section, {})[f"i{number}"] = {"class": name, **EVERY[section][name]}
        when = {"starting_epoch": start, "ending_epoch": start + length * frequency, "frequency": frequency}
        made["policies"].append({reader.SECTIONS[section]: {"instance_name": f"i{number}"}, **when})
    return made


@settings(max_examples=40, deadline=None)
@given(found=policies)
def test_a_valid_schedule_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, found: list[Any]) -> None:
    given = schedule(found)
    result = read(tmp_path_factory.mktemp("valid"), yaml.safe_dump(given, sort_keys=False))
    assert [(p.instance.name, p.instance.cls, p.epochs) for p in result.policies] == [
        (f"i{n}", name, range(start, start + length * f, f)) for n, ((_, name), start, length, f) in enumerate(found)
    ]
    assert result.warnings == ()


@settings(max_examples=60, deadline=None)
@given(found=policies, data=st.data())
def test_a_changed_schedule_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, found: list[Any], data: st.DataObject
) -> None:
    lines = yaml.safe_dump(schedule(found), sort_keys=False).splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    line = lines[number]
    change = st.sampled_from(["", line[1:], line.replace(":", ""), f"{line}x", line.replace("1", "-1"), f"{line} [1]"])
    lines[number] = data.draw(change | st.text(max_size=9))
    folder = tmp_path_factory.mktemp("changed")
    try:
        read(folder, "\n".join(lines))
    except InputError as error:
        assert str(error).startswith(f"{folder}/s.yaml: ") and "\n" not in str(error)


def test_the_public_name_of_a_module_is_the_module_itself() -> None:
    from edgecompress.schedules.documents import read as read_document

    from edgecompress.extras.schedules import reader as inner
    from edgecompress.schedules import reader as outer

    assert outer is inner
    assert read_document.__module__ == "edgecompress.extras.schedules.documents"
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        importlib.import_module("edgecompress.schedules.nothing")
