"""Distiller's quantizer without training: which tensors are rounded, to which grids, by whose statistics."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import grids
from edgecompress.extras.schedules.post_training import quantize
from edgecompress.extras.schedules.scheduler import CompressionScheduler
from edgecompress.formats import torch_edits

torch = pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")
nn = torch.nn
pytestmark = pytest.mark.slow


class Net(nn.Module):  # type: ignore[misc, name-defined]
    """A convolution with its batch norm and ReLU, one with a sum behind it, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout()
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        """[n, 3, h, w] -> [n, 4]."""
        x = self.relu1(self.bn1(self.conv1(x)))
        return self.fc(self.drop(self.pool(self.conv2(x) + x).flatten(1)))


def batches() -> list[Any]:
    """Four, in which the second half is larger."""
    generator = torch.Generator().manual_seed(3)
    return [scale * torch.randn(16, 3, 8, 8, generator=generator) for scale in (1, 1, 2, 2)]


@pytest.fixture(scope="module")
def trained() -> Net:
    """Its batch norm has seen the batches."""
    torch.manual_seed(0)
    net = Net().train()
    for batch in batches():
        net(batch)
    return net.eval()


def written(folder: Path, **given: Any) -> Path:
    """A file of the quantizer alone."""
    text = {"quantizers": {"q": {"class": "PostTrainLinearQuantizer", **given}}}
    (folder / "q.yaml").write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    return folder / "q.yaml"


def rounded(edits: list[Any]) -> dict[str, Any]:
    """The edits of activations, by the module and an input of it."""
    return {f"{e['module']}{e.get('input', '')}": e for e in edits if e["edit"] == "levels"}


ASYMMETRIC = {"mode": "ASYMMETRIC_UNSIGNED", "per_channel_wts": True}


def test_each_layer_takes_and_gives_rounded_activations_once(trained: Net, tmp_path: Path) -> None:
    """A batch norm is folded, the ReLU's range counts before it; what is rounded already is not rounded again."""
    net = copy.deepcopy(trained)
    edits = quantize(net, written(tmp_path, **ASYMMETRIC), batches())
    assert list(rounded(edits)) == ["conv10", "relu1", "conv2", "pool0", "pool", "fc0", "fc"]
    assert [(e["edit"], e["module"]) for e in edits[:2]] == [("replace", "bn1"), ("replace", "conv1")]
    fresh = Net().eval()
    torch_edits.apply(fresh, edits)
    fresh.load_state_dict(net.state_dict())
    x = batches()[0]
    assert torch.equal(fresh(x), net(x))
    assert (net(x) - trained(x)).abs().max() < 0.05 * trained(x).abs().max()
    assert len(net.conv2.weight[0].unique()) > 16


def test_grids_are_those_of_the_formulas(trained: Net, tmp_path: Path) -> None:
    """Of 6 bits: the mean range of the items (AVG) of an input, the whole range of an override, a symmetric weight."""
    net = copy.deepcopy(trained)
    mode = {"activations": "ASYMMETRIC_SIGNED", "weights": "SYMMETRIC_RESTRICTED"}
    given = {"bits_activations": 6, "bits_parameters": 6, "mode": mode, "clip_acts": "AVG"}
    overrides = {"fc": {"clip_acts": "NONE", "bits_weights": 4}}
    found = rounded(quantize(net, written(tmp_path, **given, overrides=overrides), batches()))
    items = torch.cat(batches()).flatten(1).double()
    least, most = items.amin(1).mean(), items.amax(1).mean()
    step = float((most - least) / 63)
    assert found["conv10"] == {
        "edit": "levels", "module": "conv1", "input": 0,
        "step": pytest.approx(step), "low": round(float(least) / step), "high": round(float(least) / step) + 63,
    }  # fmt: skip
    with torch.no_grad():
        out = torch.cat([trained(batch) for batch in batches()])
    assert found["fc"]["step"] == pytest.approx(float(out.max() - out.min()) / 63)
    scale = trained.fc.weight.abs().max() / 7
    assert torch.allclose(net.fc.weight, torch.round(trained.fc.weight / scale) * scale, atol=1e-6)
    assert len(net.conv2.weight.unique()) <= 63


def test_distillers_statistics_do_as_batches_do(trained: Net, tmp_path: Path) -> None:
    """A file with DataParallel's names, given, or named inside the schedule's own folder."""
    seen: dict[str, Any] = {}

    def watch(name: str) -> Any:
        def hook(_: Any, inputs: Any, output: Any) -> None:
            seen.setdefault(name, ([], []))[0].append(inputs[0])
            seen[name][1].append(output)

        return hook

    net = copy.deepcopy(trained)
    for name, module in net.named_modules():
        if name:
            module.register_forward_hook(watch(name))
    with torch.no_grad():
        for batch in batches():
            net(batch)

    def of(parts: list[Any]) -> dict[str, Any]:
        x = torch.cat(parts).double().flatten(1)
        spread = (x - x.mean()).abs().mean()
        ends = {"min": x.min(), "max": x.max(), "avg_min": x.amin(1).mean(), "avg_max": x.amax(1).mean()}
        numbers = {**ends, "mean": x.mean(), "std": x.std(), "b": spread}
        return {"shape": "(16, 3)", **{name: float(value) for name, value in numbers.items()}}

    table = {f"module.{name}": {"inputs": {0: of(i)}, "output": of(o)} for name, (i, o) in seen.items()}
    (tmp_path / "stats.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")
    given = {**ASYMMETRIC, "clip_acts": "LAPLACE", "overrides": {"pool": {"clip_acts": "GAUSS"}}}
    expected = rounded(quantize(copy.deepcopy(trained), written(tmp_path, **given), batches()))
    file = written(tmp_path, **given)
    named = written(tmp_path, **given, model_activation_stats="stats.yaml")
    for found in (
        quantize(copy.deepcopy(trained), file, statistics=tmp_path / "stats.yaml"),
        quantize(copy.deepcopy(trained), named),
    ):
        steps = {name: edit["step"] for name, edit in rounded(found).items()}
        assert steps == pytest.approx({name: edit["step"] for name, edit in expected.items()}, rel=1e-4)


def test_a_schedule_reads_nothing_outside_its_folder(trained: Net, tmp_path: Path) -> None:
    """Published files name `../`: the statistics, or batches, are the caller's to give."""
    (tmp_path / "stats.yaml").write_text("fc: {}\n", encoding="utf-8")
    (tmp_path / "inner").mkdir()
    file = written(tmp_path / "inner", model_activation_stats="../stats.yaml")
    with pytest.raises(InputError, match=r"q\.yaml: line 2: q: no statistics of 'conv1'; give batches, a file"):
        quantize(copy.deepcopy(trained), file)
    with pytest.raises(InputError, match=r"stats\.yaml: not Distiller's statistics of activations: KeyError"):
        quantize(copy.deepcopy(trained), file, statistics=tmp_path / "stats.yaml")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"bits_activations": 9, "clip_acts": "GAUSS"}, "'conv1': clip_acts GAUSS is of at most 8 bits, not 9"),
        ({"bits_activations": 1}, "SYMMETRIC needs at least 2 bits"),
        ({"overrides": {"fc": {"fpq_module": 16}}}, "'fc': fp16 and fpq_module are not run"),
        ({"inputs_quant_auto_fallback": False}, "input 0 of 'conv1' is not quantized"),
        (
            {"overrides": {"conv2": {"input_overrides": {"0": {"bits_activations": 4}}}}},
            "input_overrides of 'conv2': 'relu1' has rounded input 0 already",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(trained: Net, tmp_path: Path, given: dict[str, Any], line: str) -> None:
    """With the file's line and the module."""
    with pytest.raises(InputError, match=rf"q\.yaml: line 2: q: .*{line}"):
        quantize(copy.deepcopy(trained), written(tmp_path, **given), batches())


@pytest.mark.parametrize("wrong", ["labels too", "one tensor", "numpy"])
def test_batches_that_the_model_does_not_take_are_one_line(trained: Net, tmp_path: Path, wrong: str) -> None:
    own = batches()[0]
    first = own[0] if isinstance(own, (tuple, list)) else own
    given: Any = {"labels too": [(first, torch.zeros(len(first)))], "one tensor": first, "numpy": [first.numpy()]}[
        wrong
    ]
    with pytest.raises(
        InputError, match=r"the model does not take a batch: .*; batches are a list of what it is called"
    ):
        quantize(trained, written(tmp_path), given)


def test_a_training_loop_refuses_its_file(trained: Net, tmp_path: Path) -> None:
    """It would train and quantize nothing."""
    net = copy.deepcopy(trained)
    with pytest.raises(InputError, match="PostTrainLinearQuantizer does not train; give the file to post_training"):
        CompressionScheduler(net, torch.optim.SGD(net.parameters(), lr=0.1), written(tmp_path))


def test_an_input_has_bits_of_its_own(trained: Net, tmp_path: Path) -> None:
    """And a module with null bits is left in floating point."""
    overrides = {
        "conv1": {"input_overrides": {"0": {"bits_activations": 4, "mode": "SYMMETRIC"}}},
        "fc": {"bits_activations": None, "bits_weights": None},
    }
    net = copy.deepcopy(trained)
    found = rounded(quantize(net, written(tmp_path, **ASYMMETRIC, overrides=overrides), batches()))
    assert (found["conv10"]["low"], found["conv10"]["high"]) == (-8, 7)
    assert "fc" not in found and torch.equal(net.fc.weight, trained.fc.weight)


def test_weights_are_clipped_where_it_says_so(trained: Net, tmp_path: Path) -> None:
    """At their mean and one standard deviation."""
    net = copy.deepcopy(trained)
    quantize(net, written(tmp_path, also_clip_weights=True, clip_acts="N_STD", clip_n_stds=1.0), batches())
    weight = trained.fc.weight.detach()
    clipped = weight.clamp(weight.mean() - weight.std(), weight.mean() + weight.std())
    assert torch.allclose(net.fc.weight, grids.linear(clipped, 8, "SYMMETRIC", per_channel=False), atol=1e-5)


class EltwiseAdd(nn.Module):  # type: ignore[misc, name-defined]
    """As in Distiller's nets."""

    def forward(self, *summands: Any) -> Any:
        return sum(summands[1:], summands[0])


class Summed(Net):
    """Whose sum is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.add = EltwiseAdd()

    def forward(self, x: Any) -> Any:
        x = self.relu1(self.bn1(self.conv1(x)))
        return self.fc(self.pool(self.add(self.conv2(x), x)).flatten(1))


def test_a_sum_that_is_a_module_has_a_grid_of_its_own(tmp_path: Path) -> None:
    net = Summed().eval()
    path = written(tmp_path, bits_activations=6, overrides={".*add": {"bits_activations": 8}})
    found = rounded(quantize(net, path, batches()))
    assert found["add"]["high"] - found["add"]["low"] > 250 > 63 >= found["conv2"]["high"] - found["conv2"]["low"]
    assert "pool0" not in found  # what it takes is rounded already


def test_sums_that_no_module_gives_are_told(trained: Net, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"sums of the forward itself \(add\) are computed in float"):
        quantize(copy.deepcopy(trained), written(tmp_path), batches())


@pytest.mark.shared
def test_the_published_file_quantizes_a_net(trained: Net) -> None:
    """6 bits, its clip the mean range; its statistics lie elsewhere, so batches are given."""
    assert SHARED is not None
    folder = SHARED / "distiller_schedules/quantization/post_train_quant"
    net = copy.deepcopy(trained)
    edits = quantize(net, folder / "resnet18_imagenet_post_train.yaml", batches())
    assert {edit["high"] - edit["low"] for edit in rounded(edits).values()} == {63}
