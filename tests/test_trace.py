"""From torch to artifacts: names, shapes and state of nets of many forms, and what is said of those that fail."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.formats import torch_module
from edgecompress.stages import trace

pytestmark = pytest.mark.slow
ITEMS = 6
STATE = {"h": "h", "c": "c"}  # input -> output

NETS = '''
import torch
from torch import nn


class Plain(nn.Module):
    """One array in, one out."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image):
        return self.conv(image).mean((2, 3))


class Masked(nn.Module):
    """Whole numbers and a mask in, a dictionary with a tuple out."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids, mask):
        x = self.table(ids) * mask.unsqueeze(-1)
        return {"mean": x.mean(1), "parts": (x, x.sum((1, 2)))}


class Nested(nn.Module):
    def forward(self, pair):
        return pair["a"] + pair["b"]


class Stateful(nn.Module):
    """An LSTM cell that gives back its state."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTMCell(3, 5)

    def forward(self, x, h=None, c=None):
        h, c = self.rnn(x, None if h is None else (h, c))
        return {"scores": h.sum(1, keepdim=True), "h": h, "c": c}


class Dropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.drop(x))


class Branching(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


class Picking(nn.Module):
    def forward(self, x):
        return torch.nonzero(x)


class Fixed(nn.Module):
    def forward(self, x):
        return x.reshape(1, 4) * 2


class Counting(nn.Module):
    """Writes a buffer, by which its answers change or not."""

    def __init__(self, weight, anew):
        super().__init__()
        self.weight, self.anew, self.norm = weight, anew, nn.Module()
        self.norm.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        if self.anew:
            self.norm.seen = self.norm.seen * 0.5 + x.mean(0)
        else:
            self.norm.seen += x.mean(0)
        return x + self.weight * self.norm.seen


class Double(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3).double()
        self.register_buffer("shift", torch.ones(3, dtype=torch.float64))

    def forward(self, x):
        return self.linear(x.double()) + self.shift + torch.full((3,), 0.5, dtype=torch.float64)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 2, batch_first=True)

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x[..., None], (x < 9).sum(1), True, False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], True)[0]


def counting(): return Counting(1.0, False)
def averaging(): return Counting(0.1, True)
def unread(): return Counting(0.0, False)
def double(): torch.manual_seed(0); return Double()
def packed(): return Packed()
def plain(): torch.manual_seed(0); return Plain()
def masked(): torch.manual_seed(0); return Masked()
def nested(): return Nested()
def stateful(): torch.manual_seed(0); return Stateful()
def dropout(): return Dropout().train()
def branching(): return Branching()
def picking(): return Picking()
def fixed(): return Fixed()
def raises(): raise ValueError("no such\\nweights")
def number(): return 3
def lazy(): return nn.Sequential(nn.LazyConv2d(4, 3))
def nan():
    net = Plain()
    net.conv.weight.data[0, 0, 0, 0] = float("nan")
    net.conv.weight.data[1, 0, 0, 0] = float("inf")
    return net
'''


@pytest.fixture(autouse=True)
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module `tiny_nets` in the working folder."""
    (tmp_path / "tiny_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "tiny_nets", raising=False)


def images() -> dict[str, Any]:
    return {"image": np.random.default_rng(0).normal(size=(ITEMS, 3, 8, 8)).astype(np.float32)}


def rows(width: int = 4) -> dict[str, Any]:
    return {"x": np.random.default_rng(0).normal(size=(ITEMS, width)).astype(np.float32)}


def masks() -> dict[str, Any]:
    seeded = np.random.default_rng(0)
    ids = seeded.integers(0, 10, (ITEMS, 7)).astype(np.int64)
    return {"mask": (ids > 3).astype(np.float32), "ids": ids}  # not in the order of forward


Arrays = Mapping[str, Any]


def stage(tmp_path: Path, name: str) -> Path:
    out = tmp_path / name
    out.mkdir()
    return out


def samples(tmp_path: Path, arrays: Arrays) -> Artifact:
    out = stage(tmp_path, "samples")
    tensors.write_split(out / "test", arrays)
    specs = tuple(TensorSpec(n, (Dim("batch", 1, ITEMS), *a.shape[1:]), str(a.dtype)) for n, a in arrays.items())
    return Artifact(out, "samples", specs, (), {"splits": {"test": ITEMS}}).write()


def load(tmp_path: Path, name: str, arrays: Arrays, **options: Any) -> tuple[Artifact, Artifact]:
    """The module and its samples."""
    data = samples(tmp_path, arrays)
    asked = {"source": {"model": f"tiny_nets:{name}", **options}}
    return trace.load(Request({"samples": data}, stage(tmp_path, "module"), asked)), data


def program(tmp_path: Path, name: str, arrays: Arrays, batch: int = 1, **options: Any) -> tuple[Artifact, Artifact]:
    model, data = load(tmp_path, name, arrays, **options)
    inputs = {"model": model, "samples": data}
    request = Request(inputs, stage(tmp_path, "program"), {"dynamic": {}, **options}, Context(batch=batch))
    return model, trace.run(request)


def answers(artifact: Artifact, arrays: Arrays, begin: int = 0, end: int = 1) -> dict[str, Any]:
    import torch

    given = {name: torch.from_numpy(array[begin:end]) for name, array in arrays.items()}
    return {n: t.numpy() for n, t in torch_module.outputs(torch_module.rebuild(artifact), artifact, given).items()}


def shapes(specs: tuple[TensorSpec, ...]) -> dict[str, list[Any]]:
    return {s.name: [d if isinstance(d, int) else d.name for d in s.shape] for s in specs}


def test_a_module_has_named_specs_and_the_batch_is_found(tmp_path: Path) -> None:
    model, _ = load(tmp_path, "plain", images())
    assert shapes(model.inputs) == {"image": ["batch", 3, 8, 8]}
    assert shapes(model.outputs) == {"output": ["batch", 4]}
    assert {p.name for p in model.files()} == {"module.json", "state.safetensors"}


def test_a_net_whose_batch_is_fixed_says_so(tmp_path: Path) -> None:
    model, _ = load(tmp_path, "fixed", rows())
    assert shapes(model.inputs) == {"x": [1, 4]}


def test_whole_numbers_masks_dictionaries_and_tuples_keep_their_names(tmp_path: Path) -> None:
    model, traced = program(tmp_path, "masked", masks())
    assert shapes(model.inputs) == {"ids": ["batch", 7], "mask": ["batch", 7]}  # forward's order
    assert [s.dtype for s in model.inputs] == ["int64", "float32"]
    names = {"mean": [1, 4], "parts.0": [1, 7, 4], "parts.1": [1]}
    assert shapes(traced.outputs) == names
    for name, found in answers(traced, masks()).items():
        np.testing.assert_allclose(found, answers(model, masks())[name], atol=1e-6)


def test_dotted_inputs_are_put_back_together(tmp_path: Path) -> None:
    arrays = {"pair.a": rows()["x"], "pair.b": rows()["x"] + 1}
    model, traced = program(tmp_path, "nested", arrays)
    assert list(shapes(traced.inputs)) == ["pair.a", "pair.b"]
    for artifact in (model, traced):
        np.testing.assert_allclose(answers(artifact, arrays)["output"], arrays["pair.a"][:1] + arrays["pair.b"][:1])


def test_data_without_names_takes_those_of_forward(tmp_path: Path) -> None:
    unnamed = {"input_0": masks()["ids"], "input_1": masks()["mask"]}
    model, _ = load(tmp_path, "masked", unnamed)
    assert [s.name for s in model.inputs] == ["ids", "mask"]


def test_state_goes_round_without_data(tmp_path: Path) -> None:
    model, traced = program(tmp_path, "stateful", rows(3), state=STATE)
    assert shapes(traced.inputs) == {"x": [1, 3], "h": [1, 5], "c": [1, 5]}
    assert {s.name: s.feeds for s in traced.outputs} == {"scores": "", "h": "h", "c": "c"}
    assert {s.name: s.feeds for s in model.outputs} == {"scores": "", "h": "h", "c": "c"}
    first = answers(traced, {**rows(3), "h": np.zeros((1, 5), np.float32), "c": np.zeros((1, 5), np.float32)})
    second = answers(traced, {**rows(3), "h": first["h"], "c": first["c"]})
    assert not np.allclose(first["scores"], second["scores"])


def test_a_program_runs_in_eval_mode(tmp_path: Path) -> None:
    model, traced = program(tmp_path, "dropout", rows())
    np.testing.assert_array_equal(answers(traced, rows())["output"], answers(traced, rows())["output"])
    np.testing.assert_allclose(answers(model, rows())["output"], rows()["x"][:1], atol=1e-4)


def test_the_batch_is_fixed_to_the_one_asked_for(tmp_path: Path) -> None:
    _, traced = program(tmp_path, "plain", images(), batch=3)
    assert shapes(traced.inputs) == {"image": [3, 3, 8, 8]}
    assert answers(traced, images(), 0, 3)["output"].shape == (3, 4)


def test_declared_axes_stay_dynamic_under_their_names_and_ranges(tmp_path: Path) -> None:
    dynamic = {n: {"0": "batch:1..8", "1": "length:2..16"} for n in ("ids", "mask")}
    model, traced = program(tmp_path, "masked", masks(), dynamic=dynamic)
    batch, length = Dim("batch", 1, 8), Dim("length", 2, 16)
    assert [s.shape for s in traced.inputs] == [(batch, length)] * 2
    assert {s.name: s.shape for s in traced.outputs}["parts.0"] == (batch, length, 4)
    shorter = {name: array[:5, :4] for name, array in masks().items()}
    np.testing.assert_allclose(answers(traced, shorter, 0, 5)["mean"], answers(model, shorter, 0, 5)["mean"], atol=1e-6)


def test_a_saved_program_is_a_source(tmp_path: Path) -> None:
    _, traced = program(tmp_path, "masked", masks())
    again = tmp_path / "again"
    again.mkdir()
    data = Artifact.read(tmp_path / "samples")
    asked = {"source": {"model": str(traced.file(".pt2")), "kind": "program"}}
    source = trace.load(Request({"samples": Artifact(data.path, *_renamed(data))}, again, asked))
    assert source.kind == "program"
    assert [s.shape for s in source.inputs] == [(1, 7), (1, 7)]


def _renamed(data: Artifact) -> Any:
    """The samples as arrays without names, in the order of the program's inputs."""
    (data.path / "test" / "ids.npy").rename(data.path / "test" / "input_0.npy")
    (data.path / "test" / "mask.npy").rename(data.path / "test" / "input_1.npy")
    by_name = {s.name: s for s in data.inputs}
    specs = [TensorSpec(f"input_{i}", by_name[n].shape, by_name[n].dtype) for i, n in enumerate(("ids", "mask"))]
    return "samples", tuple(specs), (), data.facts


def test_the_same_net_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir(), second.mkdir()
    assert program(first, "plain", images())[1].sha256 == program(second, "plain", images())[1].sha256


WRONG: dict[str, tuple[Callable[[], Arrays], list[str]]] = {
    "raises": (images, ["tiny_nets:raises raised ValueError: no such", "tiny_nets.py:"]),
    "number": (images, ["returned a int", "torch.nn.Module"]),
    "nan": (images, ["weight 'conv.weight' holds 1 NaN and 1 infinite"]),
    "lazy": (images, ["weight '0.weight' of a lazy module has no numbers yet; call the net once on an example"]),
    "plane": (images, ["no function 'plane'", "did you mean 'plain'?"]),
    "masked": (images, ["forward takes ids, mask, the data has: image", "ids.npy, mask.npy"]),
    "dropout": (lambda: rows(5), ["x float32 [1, 5]", "its forward does not take the data", "4"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_work_is_said_in_one_line(name: str, tmp_path: Path) -> None:
    arrays, words = WRONG[name]
    with pytest.raises(InputError) as caught:
        load(tmp_path, name, arrays())
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_factory_that_returns_the_same_net_again_is_not_changed_by_what_is_done_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    kept = torch.nn.Linear(3, 2)
    module = types.ModuleType("nets_kept")
    module.build = lambda: kept  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nets_kept", module)
    torch_module.factory("nets_kept:build").requires_grad_(False).weight.data.zero_()
    again = torch_module.factory("nets_kept:build")
    assert again.weight.abs().sum() > 0 and again.weight.requires_grad


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda image: image[:, None], "an item has no batch axis: leave it out"),
        (lambda image: np.stack([image] * 5, 1), "one sample, not a batch of 5: give each by itself"),
        (lambda image: np.moveaxis(image, 1, -1), 'the channels come last: set layout = "NCHW"'),
        (lambda image: np.moveaxis(image, 1, -1).astype(np.uint8), "come last: .*; 'image': set scale = 0.0039"),
        (lambda image: image.astype(np.float64), r'save it as .astype\("float32"\)$'),
        (lambda image: image[:, :1], r"the data has one channel, the model takes 3: numpy.repeat\(data, 3, 1\)$"),
        (lambda image: np.moveaxis(image[:, :1], 1, -1), r'numpy.repeat\(data, 3, 3\); then set layout = "NCHW"'),
        (lambda image: np.concatenate([image, image[:, :1]], 1), r"alpha, out: data\[:, :3\]$"),
        (
            lambda image: np.moveaxis(np.concatenate([image, image[:, :1]], 1), 1, -1),
            r"data\[..., :3\]; then set layout",
        ),
        (lambda image: image[:, :2], "check the data's shape and"),
        (lambda image: np.arange(len(image)), r"a single number: items are \(inputs, label\), in this order$"),
    ],
)
def test_what_a_forward_would_take_is_tried(
    given: Callable[[np.ndarray], np.ndarray], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"its forward does not take the data .*{says}"):
        load(tmp_path, "plain", {"image": np.ascontiguousarray(given(images()["image"]))})


@pytest.mark.parametrize(
    ("net", "says"),
    [
        (
            "branching",
            r"tiny_nets:branching: torch\.export cannot trace it: a size, or a choice, that depends",
        ),
        ("picking", r"output 'output' is as long as the data says, by the operator aten\.nonzero.*: give a mask"),
        ("packed", r"a packed sequence.*: give the LSTM or GRU the padded tensor.*tiny_nets\.py:\d"),
    ],
)
def test_what_cannot_be_traced_is_named_with_what_to_do(net: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        program(tmp_path, net, rows())


def test_a_module_that_is_not_there_names_itself_and_the_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no module 'tiny_nest' in"):
        torch_module.factory("tiny_nest:plain")


@pytest.mark.parametrize(
    ("dynamic", "says"),
    [
        ({"picture": {"0": "batch:1..8"}}, "no input 'picture'"),
        ({"image": {"0": "batch:8..1"}}, "'batch:8..1' is not a range"),
        ({"image": {"rows": "h:1..8"}}, "an axis is a number"),
        ({"image": {"7": "h:1..8"}}, "there is no axis 7"),
    ],
)
def test_a_wrong_dynamic_axis_is_said_before_anything_is_traced(dynamic: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        load(tmp_path, "plain", images(), dynamic=dynamic)


@pytest.mark.parametrize("name", ["counting", "averaging"])
def test_a_buffer_that_forward_writes_and_answers_by_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"forward writes its buffer 'norm\.seen', so its answers change"):
        load(tmp_path, name, rows())


def test_a_buffer_that_no_answer_depends_on_stays_as_it_was(tmp_path: Path) -> None:
    model, _ = load(tmp_path, "unread", rows())
    assert not torch_module.rebuild(model).norm.seen.any()


@pytest.mark.parametrize("kind", ["module", "program"])
def test_weights_in_float64_become_float32_with_a_warning(kind: str, tmp_path: Path) -> None:
    import torch

    model, traced = program(tmp_path, "double", rows())
    if kind == "program":
        net, x = torch_module.rebuild(model), torch.from_numpy(rows()["x"])
        torch.export.save(torch.export.export(net, (x[:1],)), tmp_path / "net.pt2")
        asked = {"source": {"model": str(tmp_path / "net.pt2"), "kind": "program"}}
        data = Artifact(tmp_path / "samples", "samples", traced.inputs, (), {"splits": {"test": ITEMS}})
        model = traced = trace.load(Request({"samples": data}, stage(tmp_path, "loaded"), asked))
    assert "weight" in model.facts["warnings"][0] and "float64" in model.facts["warnings"][0]
    assert "float64" not in str(torch_module.rebuild(traced).state_dict()) and traced.outputs[0].dtype == "float32"
    want = torch_module.factory("tiny_nets:double")(torch.from_numpy(rows()["x"][:1])).detach().numpy()
    np.testing.assert_allclose(
        next(iter(answers(traced, {traced.inputs[0].name: rows()["x"]}).values())), want, atol=1e-6
    )


def test_a_damaged_program_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.pt2"
    file.write_bytes(b"PK\3\4 not really")
    data = samples(tmp_path, images())
    with pytest.raises(InputError, match=r"bad\.pt2: not a program of torch\.export"):
        trace.load(
            Request({"samples": data}, stage(tmp_path, "out"), {"source": {"model": str(file), "kind": "program"}})
        )
