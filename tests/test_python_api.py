"""The Python API: what it takes in the place of references, what it gives back, and that its errors are ours."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nulls
import numpy as np
import pytest

import edgecompress
from edgecompress import EdgeError, InputError, Options, Result
from edgecompress.commands import objects
from edgecompress.data import npy

CALLS = (
    edgecompress.analyze,
    edgecompress.check,
    edgecompress.deploy,
    edgecompress.diagnose,
    edgecompress.profile,
    edgecompress.trim,
    edgecompress.verify,
)
ITEMS = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
LABELS = np.arange(40) % 3
QUICK: dict[str, Any] = {"profile": "quick", "settings": nulls.FAST}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return {**nulls.make(tmp_path), **QUICK}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("shipped")
    result = edgecompress.deploy(**nulls.make(folder), **QUICK, options=Options(store=folder / "s", out=folder / "out"))
    assert isinstance(result, Result)
    return result


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., Path]:
    """Writes a model or data into a store; where it lies there."""
    options = Options(store=tmp_path / "store")

    def write(model: Any = None, data: Any = None, **more: Any) -> Path:
        written = objects.written(model, {"data": data, **more}, options)
        return Path(str(written["data" if model is None else "model"] or ""))

    return write


def arrays(folder: Path) -> dict[str, np.ndarray]:
    return {file.relative_to(folder).with_suffix("").as_posix(): npy.mapped(file) for file in folder.rglob("*.npy")}


# --------------------------------------------------------------------------- calls


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_every_keyword_is_in_the_signature(call: Callable[..., Any]) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(call).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert {"settings", "options"} < {*inspect.signature(call).parameters}


def test_the_public_names_complete() -> None:
    assert {*edgecompress.__all__} < {*dir(edgecompress)}
    assert all(getattr(edgecompress, name) for name in dir(edgecompress))


def test_a_deploy_takes_paths_arrays_and_one_name_of_a_variant(asked: dict[str, Any], tmp_path: Path) -> None:
    places = {"model": Path(asked["model"]), "target": Path(asked["target"]), "data": (ITEMS, LABELS)}
    result = edgecompress.deploy(**{**asked, **places}, only="plain", options=Options(out="here", store="there"))
    assert result.out == tmp_path / "here"
    assert (tmp_path / "there" / "given").is_dir()
    assert edgecompress.verify("here", options=Options(store="there")).exit_code == 0
    assert edgecompress.package("here", out="app.tar.gz") == tmp_path / "app.tar.gz"


def test_the_same_objects_are_all_hits_the_second_time(asked: dict[str, Any]) -> None:
    for _ in range(2):
        result = edgecompress.deploy(**{**asked, "data": {"x": ITEMS.copy(), "labels": LABELS.copy()}})
    assert {outcome.why_run for outcome in result.outcomes.values()} == {"hit"}


def test_a_list_of_targets_gives_a_result_for_each(asked: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(nulls.TARGET)
    results = edgecompress.deploy(**{**asked, "target": [asked["target"], tmp_path / "other.toml"]})
    assert isinstance(results, dict)
    assert {name: result.out for name, result in results.items()} == {
        name: tmp_path / "dist" / name for name in ("null", "other")
    }
    assert results._repr_html_().count("<iframe ") == 2


def test_compare_and_diagnose_take_the_names_of_the_command_line(shipped: Result, asked: dict[str, Any]) -> None:
    found = edgecompress.compare([shipped.out, shipped.out], fail_if=["size_bytes > 0.5x"])  # type: ignore[list-item]
    assert found.exit_code == 1
    with pytest.raises(InputError, match=r"--variant none: .* has no such variant"):
        edgecompress.diagnose(asked["model"], target=asked["target"], data=asked["data"], variant="none")
    with pytest.raises(InputError, match="--items 0: must be at least 1"):
        edgecompress.diagnose(asked["model"], items=0)


def test_a_result_is_short_runs_and_shows_its_report(shipped: Result) -> None:
    assert repr(shipped).startswith("Result(exit_code=0, 'plain: ")
    assert len(repr(shipped)) < 300
    answer = shipped.run(ITEMS[:3])
    assert answer["y"] == pytest.approx(ITEMS[:3].mean(1, keepdims=True) * [1, 2, 3], rel=1e-5)
    assert shipped.run({"x": ITEMS[:3].astype("float64")})["y"] == pytest.approx(answer["y"])
    assert shipped._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (ITEMS[:, :3], "input 'x' takes batch x 4"),
        ({"z": ITEMS}, "the model takes x"),
        (ITEMS.astype("uint8"), "takes float32, the array has uint8"),
        ("net.png", "'x' is a str"),
        (ITEMS[:0], "at least one"),
    ],
)
def test_a_wrong_input_of_a_run_is_told(shipped: Result, inputs: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        shipped.run(inputs)
    with pytest.raises(InputError, match="nothing shipped: too slow"):
        Result(1, "too slow").run(ITEMS)


@pytest.mark.parametrize(
    ("key", "given", "says"),
    [
        ("model", 42, "model: cannot take a int; give a factory pkg.mod:fn"),
        ("model", {"weight": ITEMS}, "give the module that has loaded them"),
        ("data", 3, "data: cannot take a single int"),
        ("data", object(), "data: 'input' is a object of object, not numbers"),
        ("data", {"tests": (ITEMS, LABELS), "test": ITEMS}, "data: 'tests' is no split"),
        ("data", ["images", "labels"], "not numbers; give pkg.mod:fn, a path"),
        (
            "data",
            (ITEMS, [*map(str, LABELS)]),
            "data: 'labels' is text; give classes as whole numbers from 0 on",
        ),
        ("data", [*zip(ITEMS, LABELS, strict=True)], "a list of parts of unlike shapes; give pkg.mod:fn, a path"),
        ("data", lambda split: 1 / 0, "data: the function given raised ZeroDivisionError"),
        ("target", 3, "target: is a int"),
        ("target", [], "target: the list is empty"),
        ("device", 3, "device: is a int"),
        ("threads", "many", "threads many: give a whole number, 1 to 1024"),
        ("only", "plane", "did you mean 'plain'"),
        ("options", Options(store="/proc/nowhere"), "/proc/nowhere: cannot keep results there"),
    ],
)
def test_a_wrong_argument_is_an_error_of_ours_that_names_it(
    asked: dict[str, Any], key: str, given: Any, says: str
) -> None:
    with pytest.raises(EdgeError) as error:
        edgecompress.deploy(**{**asked, key: given})
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_progress_is_one_line_that_is_gone_at_the_end(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    edgecompress.deploy(**asked, options=Options(progress=True))
    told = capsys.readouterr().err
    assert "\n" not in told
    assert " of " in told and "left" in told
    assert not told.split("\r")[-2].strip()
    edgecompress.deploy(**asked)
    assert capsys.readouterr().err == ""  # it is no terminal


@pytest.mark.slow
def test_an_analysis_is_short_and_prints_its_tables(asked: dict[str, Any]) -> None:
    found = edgecompress.analyze(onnx_net(), edgecompress.AnalysisRequest("host", page="page.html"))
    assert "\n" not in repr(found) and repr(found).startswith("Analysis(model.onnx: ")
    assert len(str(found).splitlines()) > 5
    assert Path("page.html").is_file()


# --------------------------------------------------------------------------- data


def pairs() -> Iterator[tuple[np.ndarray, int]]:
    return zip(ITEMS, LABELS.tolist(), strict=True)


def loaded(kind: str, batch: int | None = 16) -> Any:
    """The items as a loader or a dataset of torch."""
    torch = pytest.importorskip("torch")

    class Streamed(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
            return pairs()

    indexed = torch.utils.data.TensorDataset(torch.from_numpy(ITEMS), torch.from_numpy(LABELS))
    dataset = Streamed() if kind == "streamed" else indexed
    return torch.utils.data.DataLoader(dataset, batch_size=batch) if kind == "loader" else dataset


@pytest.mark.parametrize(
    "given",
    [
        lambda: (ITEMS, LABELS),
        lambda: ({"input": ITEMS}, LABELS),
        lambda: {"input": ITEMS.tolist(), "labels": LABELS},
        pytest.param(lambda: loaded("loader"), marks=pytest.mark.slow),
        pytest.param(lambda: loaded("loader", None), marks=pytest.mark.slow),
        pytest.param(lambda: loaded("indexed"), marks=pytest.mark.slow),
        pytest.param(lambda: loaded("streamed"), marks=pytest.mark.slow),
    ],
)
def test_items_and_labels_are_written_as_arrays(given: Callable[[], Any], kept: Callable[..., Path]) -> None:
    found = arrays(kept(data=given()))
    assert {*found} == {"input", "labels"}
    assert found["input"] == pytest.approx(ITEMS)
    assert (found["labels"] == LABELS).all()


def test_splits_may_be_of_any_form(kept: Callable[..., Path]) -> None:
    assert {*arrays(kept(data={"calibrate": ITEMS, "test": ({"a": ITEMS, "b": ITEMS}, LABELS)}))} == {
        "calibrate/input",
        "test/a",
        "test/b",
        "test/labels",
    }
    assert {*arrays(kept(data=lambda split: pairs() if split == "test" else None))} == {"test/input", "test/labels"}


def test_equal_data_has_one_place_and_other_data_another(kept: Callable[..., Path], tmp_path: Path) -> None:
    first = kept(data=(ITEMS, LABELS))
    os.truncate(first / "input.npy", 100)  # damaged
    assert kept(data=(ITEMS.copy(), LABELS.tolist())) == first
    assert arrays(first)["input"] == pytest.approx(ITEMS)
    assert kept(data=ITEMS) != first
    assert not [*(tmp_path / "store" / "tmp").rglob("*.npy")]


# --------------------------------------------------------------------------- models


def onnx_net() -> Any:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    taken, given = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in "xy")
    weight = onnx.numpy_helper.from_array(ITEMS[:4], "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [taken], [given], [weight])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def made_here() -> Any:
    torch = pytest.importorskip("torch")

    class Head(torch.nn.Module):  # type: ignore[misc,name-defined]
        """Not importable: as of a notebook's cell."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.inner = torch.nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.inner(x))

    return Head()


@pytest.mark.slow
def test_a_module_becomes_a_program_of_any_batch_and_stays_as_it_is(kept: Callable[..., Path]) -> None:
    import torch

    net = made_here().train()
    place = kept(net, (ITEMS, LABELS))
    assert place.name == "Head.pt2"
    assert net.training
    program = torch.export.load(place)
    assert program.graph_signature.user_inputs == ("x",)
    for batch in (1, 7):
        assert torch.allclose(program.module()(x=torch.ones(batch, 4)), net(torch.ones(batch, 4)))
    assert kept(made_here(), (ITEMS, LABELS)) == place
    assert b"test_python_api.py" not in place.read_bytes()


@pytest.mark.slow
def test_a_module_whose_batch_is_fixed_has_that_of_the_job(kept: Callable[..., Path]) -> None:
    import torch

    class Fixed(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.reshape(2, 2, 2) if x.shape[0] == 2 else x.reshape(1, 2, 2)

    program = torch.export.load(kept(Fixed(), ITEMS, batch=2))
    assert program.module()(x=torch.ones(2, 4)).shape == (2, 2, 2)
    with pytest.raises(InputError, match="cannot trace Lists: "):
        kept(_untraceable(), ITEMS)
    with pytest.raises(InputError, match="its forward does not take the data"):
        kept(torch.nn.Linear(5, 3), ITEMS)
    with pytest.raises(InputError, match="data: a Fixed is exported with its first items"):
        kept(Fixed())


def _untraceable() -> Any:
    import torch

    class Lists(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * len([v for v in x.flatten().tolist() if v > 0])

    return Lists()


@pytest.mark.slow
def test_preprocessing_is_applied_before_a_module_is_exported(kept: Callable[..., Path]) -> None:
    import torch

    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten())
    images = (ITEMS[:, :1, None] > np.zeros((1, 8, 8))).astype("uint8")
    settings = {"preprocess.colour": "GRAY", "preprocess.scale": 0.5, "preprocess.layout": "NCHW"}
    place = kept(net, images, settings=settings)
    assert torch.export.load(place).module()(input=torch.ones(5, 1, 8, 8)).shape == (5, 72)


@pytest.mark.slow
def test_a_function_goes_by_its_name_where_a_worker_can_import_it(
    kept: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgecompress.demo import net

    assert str(kept(net.build)) == "edgecompress.demo.net:build"
    assert str(kept(data=net.data)) == "edgecompress.demo.net:data"
    (tmp_path / "own_nets.py").write_text("def build():\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    import own_nets  # type: ignore[import-not-found]

    with pytest.raises(InputError, match="model: cannot take a function"):
        kept(own_nets.build)  # no worker looks in that folder: it is called
    monkeypatch.chdir(tmp_path)
    assert str(kept(own_nets.build)) == "own_nets:build"
    assert kept(lambda: made_here(), ITEMS).name == "Head.pt2"


@pytest.mark.slow
def test_an_onnx_model_is_written_once_and_one_without_its_weights_is_refused(kept: Callable[..., Path]) -> None:
    import onnx

    net = onnx_net()
    place = kept(net)
    assert onnx.load(place) == net
    assert kept(net) == place
    onnx.external_data_helper.set_external_data(net.graph.initializer[0], "weights.bin")
    with pytest.raises(InputError, match="give its path"):
        kept(net)


@pytest.mark.slow
def test_a_keras_model_is_one_file_however_often_it_is_given(kept: Callable[..., Path]) -> None:
    keras = pytest.importorskip("keras")
    net = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    place = kept(net)
    assert place.suffix == ".keras"
    assert kept(net) == place
    assert np.allclose(keras.saving.load_model(place).predict(ITEMS, verbose=0), net.predict(ITEMS, verbose=0))
