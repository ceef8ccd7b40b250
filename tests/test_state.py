"""State and constants that a source declares: found in the model, seen by calibration, fed back in verify."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.core.settings import Source
from edgecompress.core.source import resolved
from edgecompress.data import states, tensors
from edgecompress.device.agent import outputs
from edgecompress.device.request import AgentRequest, PluginModule
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.stages import data, golden, shipped_items, trace
from edgecompress.stages import states as with_states
from edgecompress.techniques import _calibration

pytestmark = pytest.mark.slow

N, KEPT = 11, 0.9
X = np.random.default_rng(0).normal(size=(N, 4)).astype("float32")


def leaky(batch: int | str = "batch", kept: float = KEPT, axis: int = 1) -> onnx.ModelProto:
    """y = x + h[0]; the next h is kept * h + x, [2, batch, 4] or [batch, 2, 4]."""
    shape = [2, batch, 4] if axis else [batch, 2, 4]
    nodes = [
        helper.make_node("Gather", ["h", "zero"], ["own"], axis=1 - axis),
        helper.make_node("Add", ["x", "own"], ["y"]),
        helper.make_node("Mul", ["h", "kept"], ["left"]),
        helper.make_node("Unsqueeze", ["x", "place"], ["once"]),
        helper.make_node("Concat", ["once", "once"], ["twice"], axis=1 - axis),
        helper.make_node("Add", ["left", "twice"], ["hn"]),
    ]
    constants = {"zero": np.int64(0), "kept": np.float32(kept), "place": np.array([1 - axis])}
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [batch, 4]), ("h", shape), ("y", [batch, 4]), ("hn", shape))
    ]
    graph = helper.make_graph(
        nodes, "net", ends[:2], ends[2:], [numpy_helper.from_array(np.asarray(c), n) for n, c in constants.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def right(kept: float = KEPT, length: int = N) -> tuple[np.ndarray, np.ndarray]:
    """What it answers to X, one after the other, and its state before each."""
    answers, before, h = [], [], np.zeros((2, 4), "float32")
    for i, x in enumerate(X):
        h = h if i % length else np.zeros_like(h)
        before.append(h)
        answers.append(x + h[0])
        h = np.float32(kept) * h + x
    return np.stack(answers), np.stack(before)


def read(folder: Path, model: onnx.ModelProto, **declared: Any) -> Artifact:
    folder.mkdir(parents=True)
    onnx.save_model(model, folder.parent / f"{folder.name}.onnx")
    return ort.read(Request({}, folder, {"path": str(folder.parent / f"{folder.name}.onnx"), **declared}))


def sized(folder: Path, model: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> Artifact:
    """The source, read with its data."""
    folder.mkdir(parents=True)
    onnx.save_model(model, folder.parent / "sized.onnx")
    asked = {"path": str(folder.parent / "sized.onnx")}
    return ort.read(Request({"samples": made(folder.parent / "sizes", arrays)}, folder, asked))


def made(folder: Path, arrays: Mapping[str, np.ndarray] | None = None) -> Artifact:
    """Samples of the splits calibrate and test."""
    arrays = {"x": X} if arrays is None else arrays
    for split in ("calibrate", "test"):
        tensors.write_split(folder / split, arrays)
    specs = tuple(TensorSpec(n, (Dim("batch", 1, N), *a.shape[1:]), str(a.dtype)) for n, a in arrays.items())
    return Artifact(folder, "samples", specs, facts={"splits": {"calibrate": N, "test": N}, "labelled": False}).write()


def stage(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def seen(folder: Path, model: Artifact, length: int | None = None) -> Artifact:
    """The samples with the states of a source."""
    inputs = {"model": model, "items": made(folder / "items")}
    return with_states.run(Request(inputs, stage(folder / "seen"), {"sequence": length}))


@pytest.mark.parametrize(
    ("model", "shape", "layout"),
    [
        (leaky(), [2, "batch", 4], "SNS"),
        (leaky(1), [2, 1, 4], "SNS"),
        (leaky(3), [2, 3, 4], "SNS"),
        (leaky(axis=0), ["batch", 2, 4], ""),
    ],
)
def test_a_state_has_its_batch_where_the_model_has_it(
    tmp_path: Path, model: onnx.ModelProto, shape: list[Any], layout: str
) -> None:
    found = read(tmp_path / "source", model, state={"h": "hn"})
    for spec in (found.inputs[1], found.outputs[1]):
        assert ([d if isinstance(d, int) else d.name for d in spec.shape], spec.layout) == (shape, layout)
    assert [spec.feeds for spec in found.outputs] == ["", "h"]


@pytest.mark.parametrize("length", [None, 4])
@pytest.mark.parametrize("batch", ["batch", 1, 3])
def test_samples_have_the_state_before_each_item_and_the_source_answers_with_it(
    tmp_path: Path, batch: int | str, length: int | None
) -> None:
    source = read(tmp_path / "source", leaky(batch), state={"h": "hn"})
    samples = seen(tmp_path, source, length)
    answers, before = right(length=length or N)
    np.testing.assert_allclose(tensors.load(samples, "calibrate", "h"), before, atol=1e-5)
    assert [spec.name for spec in samples.inputs] == ["x", "h"] and samples.facts["sequence"] == (length or N)
    options = {"splits": ["test"], "metric": "none"}
    context = Context(batch=batch if isinstance(batch, int) else 1)
    right_ones = golden.run(
        Request({"model": source, "samples": samples}, stage(tmp_path / "golden"), options, context)
    )
    np.testing.assert_allclose(tensors.load(right_ones, "test", "y"), answers, atol=1e-5)
    assert [spec.name for spec in right_ones.outputs] == ["y"]


def test_calibration_takes_the_states_as_the_model_has_them(tmp_path: Path) -> None:
    source = read(tmp_path / "source", leaky(3), state={"h": "hn"})
    samples = seen(tmp_path, source)
    given = _calibration.inputs_of(Request({"model": source, "samples": samples}, tmp_path), [1, 5, 9])
    np.testing.assert_allclose(given["h"], right()[1][[1, 5, 9]].transpose(1, 0, 2), atol=1e-5)


def test_a_state_of_one_item_lies_in_memory_as_others_do(tmp_path: Path) -> None:
    """torch.export notes the order of the axes by their strides, those of size 1 too."""
    source = read(tmp_path / "source", leaky(1), state={"h": "hn"})
    samples = seen(tmp_path, source)
    given = _calibration.inputs_of(Request({"model": source, "samples": samples}, tmp_path), [1])
    assert given["h"].strides == np.empty((2, 1, 4), "float32").strides


@pytest.mark.parametrize(("batch", "length"), [("batch", N), (3, N), ("batch", 4)])
def test_an_artifact_goes_on_from_its_own_state(tmp_path: Path, batch: int | str, length: int) -> None:
    """One that forgets faster answers right from the source's states, and goes wrong by its own."""
    samples = seen(tmp_path, read(tmp_path / "source", leaky(batch), state={"h": "hn"}), length)
    artifact = read(tmp_path / "artifact", leaky(batch, kept=0.5), state={"h": "hn"})
    asked = AgentRequest(
        "outputs",
        runtime=PluginModule("onnx", ort.__name__),
        artifact=str(artifact.path),
        samples=str(samples.path),
        split="test",
        batch=3,
    )
    told = outputs.run(asked, stage(tmp_path / "out"))
    own = tensors.load(Artifact(tmp_path / "out", ""), "test", "y")
    assert told["n"] == N
    np.testing.assert_allclose(own, right(kept=0.5, length=length)[0], atol=1e-5)
    assert np.abs(own - right(length=length)[0]).max() > 0.1


def test_what_ships_along_begins_as_the_test_items_do(tmp_path: Path) -> None:
    source = read(tmp_path / "source", leaky(), state={"h": "hn"})
    samples = seen(tmp_path, source, 4)
    answers = golden.run(
        Request(
            {"model": source, "samples": samples}, stage(tmp_path / "golden"), {"splits": ["test"], "metric": "none"}
        )
    )
    inputs = {"samples": samples, "golden": answers}
    excerpt = shipped_items.run(Request(inputs, stage(tmp_path / "excerpt"), {"items": 6}))
    assert excerpt.facts[states.SEQUENCE] == 4


def test_a_state_that_gets_infinite_is_told(tmp_path: Path) -> None:
    source = read(tmp_path / "source", leaky(kept=1e30), state={"h": "hn"})
    with pytest.raises(InputError, match=r"item 3: the source's state 'h' is NaN or infinite; .*\(sequence\)"):
        seen(tmp_path, source)


def scalar(elem: int = TensorProto.INT64, shape: tuple[int, ...] = ()) -> onnx.ModelProto:
    """y = x * rate / 2, where the rate is an input."""
    nodes = [
        helper.make_node("Cast", ["rate"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "real"], ["m"]),
        helper.make_node("Div", ["m", "two"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in ("x", "y")]
    rate = helper.make_tensor_value_info("rate", elem, shape)
    two = numpy_helper.from_array(np.float32(2), "two")
    graph = helper.make_graph(nodes, "net", [ends[0], rate], ends[1:], [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("shape", [(), (1,), (4,)])
def test_a_constant_is_inside_and_no_input_any_more(tmp_path: Path, shape: tuple[int, ...]) -> None:
    found = read(tmp_path / "source", scalar(shape=shape), constants={"rate": 16})
    assert [spec.name for spec in found.inputs] == ["x"]
    np.testing.assert_array_equal(ort.open(found, 1).run({"x": X[:2]})["y"], X[:2] * 8)


def test_a_list_is_a_constant_too(tmp_path: Path) -> None:
    found = read(tmp_path / "source", scalar(shape=(4,)), constants={"rate": [2, 4, 6, 8]})
    np.testing.assert_allclose(ort.open(found, 1).run({"x": X[:2]})["y"], X[:2] * [1, 2, 3, 4], rtol=1e-6)


def counted() -> onnx.ModelProto:
    """A state without an axis of the batch: a running sum over the items."""
    nodes = [
        helper.make_node("Add", ["x", "total"], ["y"]),
        helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0),
        helper.make_node("Add", ["total", "sum"], ["next"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in ("x", "y")]
    sums = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("total", "next")]
    axes = numpy_helper.from_array(np.array([0]), "axes")
    graph = helper.make_graph(nodes, "net", [sums[0], ends[0]], [ends[1], sums[1]], [axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_state_of_one_item_needs_no_axis_of_the_batch_and_may_come_first(tmp_path: Path) -> None:
    source = read(tmp_path / "source", counted(), state={"total": "next"})
    assert (source.batch, source.inputs[0].layout) == (1, "S")
    samples = seen(tmp_path, source)
    before = np.concatenate([np.zeros((1, 4)), X.cumsum(0)[:-1]])
    np.testing.assert_allclose(tensors.load(samples, "test", "total"), before, atol=1e-4)
    options = {"splits": ["test"], "metric": "none"}
    answers = golden.run(Request({"model": source, "samples": samples}, stage(tmp_path / "golden"), options))
    np.testing.assert_allclose(tensors.load(answers, "test", "y"), X + before, atol=1e-4)


def grown() -> onnx.ModelProto:
    """A cache that is longer after each call."""
    node = helper.make_node("Concat", ["past", "x"], ["present"], axis=1)
    shapes = (("x", ["batch", 1]), ("past", ["batch", "seen"]), ("present", ["batch", "now"]))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes]
    graph = helper.make_graph([node], "net", ends[:2], ends[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def shared() -> onnx.ModelProto:
    model = counted()
    for value in (*model.graph.input, *model.graph.output):
        if len(value.type.tensor_type.shape.dim) == 2:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


@pytest.mark.parametrize(
    ("model", "declared", "words"),
    [
        (leaky(), {"state": {"hh": "hn"}}, ["state: the model has no input 'hh', did you mean 'h'?"]),
        (leaky(), {"state": {"h": "hm"}}, ["state: the model has no output 'hm', did you mean 'hn'?"]),
        (leaky(), {"state": {"h": "y"}}, ["input 'h' is float32 [2 x batch x 4]", "output 'y' float32 [batch x 4]"]),
        (leaky(), {"state": {"h": "hn", "x": "hn"}}, ["output 'hn' feeds two inputs"]),
        (leaky(), {"state": {"h": "hn", "x": "y"}}, ["every input is fed by an output"]),
        (grown(), {"state": {"past": "present"}}, ["a state keeps its size"]),
        (shared(), {"state": {"total": "next"}}, ["has no axis of the batch", "a batch of 1"]),
        (scalar(), {}, ["'rate' is a single number", "constants = { rate = ... }", "--set source.constants.rate="]),
        (scalar(), {"constants": {"rat": 3}}, ["constants: the model has no input 'rat', did you mean 'rate'?"]),
        (scalar(), {"constants": {"rate": 1.5}}, ["constants.rate: 1.5 does not fit", "int64"]),
        (scalar(), {"constants": {"rate": "fast"}}, ["constants.rate: 'fast' is no number"]),
        (scalar(shape=(4,)), {"constants": {"rate": [1, 2]}}, ["constants.rate is [2]; the model takes int64 [4]"]),
    ],
)
def test_what_does_not_fit_the_model_is_told(
    tmp_path: Path, model: onnx.ModelProto, declared: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path / "source", model, **declared)
    assert "\n" not in str(caught.value) and "source.onnx: " in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


# --------------------------------------------------------------------------- where items lie


def answered(folder: Path, source: Artifact, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What golden keeps of the source's answers to data, which is what the agent does."""
    batch = source.batch if isinstance(source.batch, int) else 2
    samples = made(folder / "data", arrays)
    options = {"splits": ["test"], "metric": "none"}
    inputs = {"model": source, "samples": samples}
    kept = golden.run(Request(inputs, stage(folder / "golden"), options, Context(batch=batch)))
    runtime = PluginModule("onnx", ort.__name__)
    asked = AgentRequest(
        "outputs", runtime=runtime, artifact=str(source.path), samples=str(samples.path), split="test", batch=batch
    )
    outputs.run(asked, stage(folder / "out"))
    for spec in kept.outputs:
        own = tensors.load(Artifact(folder / "out", ""), "test", spec.name)
        np.testing.assert_allclose(own, tensors.load(kept, "test", spec.name), atol=1e-5)
    return {spec.name: tensors.load(kept, "test", spec.name) for spec in kept.outputs}


H = np.random.default_rng(1).normal(size=(N, 2, 4)).astype("float32")


@pytest.mark.parametrize("batch", ["n", 1, 3])
@pytest.mark.parametrize("first", ["x", "h"])
def test_items_may_lie_on_another_axis_of_an_input_and_of_an_output(
    tmp_path: Path, batch: int | str, first: str
) -> None:
    model = leaky(batch)
    if first == "h":
        h = model.graph.input.pop(1)
        model.graph.input.insert(0, h)
    source = sized(tmp_path / "source", model, {"x": X, "h": H})
    assert {s.name: s.layout for s in (*source.inputs, *source.outputs)} == {"x": "", "h": "SNS", "y": "", "hn": "SNS"}
    found = answered(tmp_path, source, {"x": X, "h": H})
    np.testing.assert_allclose(found["y"], X + H[:, 0], atol=1e-5)
    np.testing.assert_allclose(found["hn"], np.float32(KEPT) * H + X[:, None], atol=1e-5)


def test_a_model_for_one_item_may_have_ends_without_an_axis_of_items(tmp_path: Path) -> None:
    source = sized(tmp_path / "source", counted(), {"x": X, "total": X})
    assert {s.name: s.layout for s in (*source.inputs, *source.outputs)} == {
        "total": "S",
        "x": "",
        "y": "",
        "next": "S",
    }
    found = answered(tmp_path, source, {"x": X, "total": X[::-1].copy()})
    np.testing.assert_allclose(found["next"], X + X[::-1], atol=1e-5)


def test_a_single_number_is_an_items_own_in_a_model_for_one_item(tmp_path: Path) -> None:
    model = scalar()
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    rates = np.arange(N)
    source = sized(tmp_path / "source", model, {"x": X, "rate": rates})
    found = answered(tmp_path, source, {"x": X, "rate": rates})
    np.testing.assert_allclose(found["y"], X * rates[:, None] / 2, rtol=1e-6)


def test_data_may_keep_the_axis_of_a_batch_of_one(tmp_path: Path) -> None:
    source = read(tmp_path / "source", leaky(1))
    found = answered(tmp_path, source, {"x": X[:, None], "h": H[:, :, None]})
    np.testing.assert_allclose(found["y"], X + H[:, 0], atol=1e-5)


@pytest.mark.parametrize("arrays", [{"x": X}, {"x": X, "h": H[:, :1]}])
def test_what_may_be_a_state_is_told_how_to_be_declared(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    source = read(tmp_path / "source", leaky())
    with pytest.raises(InputError, match=r"'hn' was at the call before, declare it: state = \{ h = \"hn\" \}"):
        answered(tmp_path, source, arrays)


def test_data_of_a_declared_state_is_not_used(tmp_path: Path) -> None:
    source = read(tmp_path / "source", leaky(), state={"h": "hn"})
    inputs = {"model": source, "items": made(tmp_path / "items", {"x": X, "h": H})}
    samples = with_states.run(Request(inputs, stage(tmp_path / "seen"), {"sequence": None}))
    assert [spec.name for spec in samples.inputs] == ["x", "h"]
    np.testing.assert_allclose(tensors.load(samples, "test", "h"), right()[1], atol=1e-5)


# --------------------------------------------------------------------------- data of sequences


def cut(folder: Path, count: int, **declared: Any) -> dict[str, list[int]]:
    """The numbers of the items of each split, of a set that came without splits."""
    np.save(folder / "x.npy", np.arange(count, dtype="float32")[:, None])
    source = Source("net.onnx", str(folder), **declared)
    samples = data.run(Request({}, stage(folder / "cut"), {"source": vars(source)}, Context(seed=3)))
    return {split: tensors.load(samples, split, "x")[:, 0].astype(int).tolist() for split in samples.facts["splits"]}


@pytest.mark.parametrize(("length", "splits"), [(None, [5, 5, 10]), (3, [3, 3, 14])])
def test_items_of_a_sequence_stay_in_their_order(tmp_path: Path, length: int | None, splits: list[int]) -> None:
    found = cut(tmp_path, 20, state={"h": "hn"}, sequence=length)
    assert [len(items) for items in found.values()] == splits
    assert [item for items in found.values() for item in items] == list(range(20))


def test_the_first_items_are_taken_of_a_sequence(tmp_path: Path) -> None:
    found = cut(tmp_path, 40, state={"h": "hn"}, samples=2)
    assert found == {"calibrate": [0], "select": [1], "test": [2, 3]}


def test_too_few_sequences_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"20 items cannot be split into .* of whole sequences of 9"):
        cut(tmp_path, 20, state={"h": "hn"}, sequence=9)


# --------------------------------------------------------------------------- torch

NETS = """
import dataclasses
import torch
from torch import nn

@dataclasses.dataclass
class Answer:
    scores: torch.Tensor
    parts: object = None
    name: str = "an answer"

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 3, num_layers=2, batch_first=True)

    def forward(self, x, state=None):
        y, state = self.rnn(x[:, None], state)
        return Answer(y[:, 0], {"state": state, "none": None, "count": 2})

class Rated(nn.Module):
    def forward(self, x, rate, weights, mode="plain"):
        return x * rate * weights if mode == "times" else x

def recurrent(): torch.manual_seed(0); return Recurrent()
def rated(): return Rated()
"""
LSTM = {"state.0": "parts.state.0", "state.1": "parts.state.1"}


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module `state_nets` in the working folder."""
    (tmp_path / "state_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "state_nets", raising=False)
    return tmp_path


def loaded(folder: Path, **source: Any) -> tuple[Artifact, Artifact]:
    """The source, and the program of it."""
    samples = made(folder / "samples")
    model = trace.load(Request({"samples": samples}, stage(folder / "source"), {"source": source}))
    inputs = {"model": model, "samples": samples}
    return model, trace.run(Request(inputs, stage(folder / "program"), {"dynamic": {}}))


def test_a_torch_net_may_have_a_tuple_of_states_with_the_batch_on_axis_1(nets: Path) -> None:
    import torch

    model, program = loaded(nets, model="state_nets:recurrent", state=LSTM)
    assert [(s.name, s.layout, s.feeds) for s in (*program.inputs, *program.outputs)] == [
        ("x", "", ""),
        ("state.0", "SNS", ""),
        ("state.1", "SNS", ""),
        ("scores", "", ""),
        ("parts.state.0", "SNS", "state.0"),
        ("parts.state.1", "SNS", "state.1"),
    ]
    samples = with_states.run(
        Request({"model": model, "items": Artifact.read(nets / "samples")}, stage(nets / "seen"), {"sequence": None})
    )
    net = sys.modules["state_nets"].recurrent().eval()
    with torch.inference_mode():
        whole, _ = net.rnn(torch.from_numpy(X)[None])
    options = {"splits": ["test"], "metric": "none"}
    answers = golden.run(Request({"model": model, "samples": samples}, stage(nets / "golden"), options))
    np.testing.assert_allclose(tensors.load(answers, "test", "scores"), whole[0].numpy(), atol=1e-6)


def test_a_torch_net_is_called_with_its_constants(nets: Path) -> None:
    constants = {"rate": 3, "weights": [1.0, 2.0, 3.0, 4.0], "mode": "times"}
    for artifact in loaded(nets, model="state_nets:rated", constants=constants):
        assert [spec.name for spec in artifact.inputs] == ["x"]
        answer = golden.opened(artifact, 1)({"x": X[:1]})["output"]
        np.testing.assert_allclose(answer, X[:1] * [3, 6, 9, 12], rtol=1e-6)


def test_a_program_has_inside_what_it_was_exported_with_and_what_is_declared(nets: Path) -> None:
    import torch

    rated = __import__("state_nets").rated()
    x, weights = torch.from_numpy(X[:2]), torch.ones(4)
    shapes = {"x": {0: torch.export.Dim("n", min=1, max=8)}, "rate": None, "weights": {}, "mode": None}
    program = torch.export.export(rated, (x, 3, weights), {"mode": "times"}, dynamic_shapes=shapes)
    torch.export.save(program, nets / "net.pt2")
    source = {"model": str(nets / "net.pt2"), "kind": "program", "constants": {"weights": [1.0, 2.0, 3.0, 4.0]}}
    found = trace.load(Request({"samples": made(nets / "samples")}, stage(nets / "source"), {"source": source}))
    assert [(s.name, s.shape[1:]) for s in found.inputs] == [("x", (4,))] and isinstance(found.batch, Dim)
    answer = golden.opened(found, 1)({"x": X[:3]})["output"]
    np.testing.assert_allclose(answer, X[:3] * [3, 6, 9, 12], rtol=1e-6)


def test_a_state_that_forward_always_needs_is_told(nets: Path) -> None:
    (nets / "needing.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x, h): return {'y': x + h, 'h': h}\n"
    )
    with pytest.raises(InputError, match="forward takes no call without 'h'; give it the default None"):
        loaded(nets, model="needing:Net", state={"h": "h"})


def test_only_a_source_with_state_has_a_stage_more(tmp_path: Path) -> None:
    from edgecompress.pipeline import job, plan

    (tmp_path / "net.onnx").write_bytes(leaky().SerializeToString())
    np.save(tmp_path / "x.npy", X)
    text = 'model = "net.onnx"\ndata = "."\nmetric = "none"\n'
    names = []
    for more in ("", 'state = { h = "hn" }\n'):
        (tmp_path / "source.toml").write_text(text + more)
        front = plan.front(job.job(str(tmp_path / "source.toml"), "x86"))
        names.append([stage.name for stage in front])
        assert resolved(Source(str(tmp_path / "net.onnx"))).kind == "onnx"
    assert names == [["data", "source", "golden", "excerpt"], ["items", "source", "data", "golden", "excerpt"]]
