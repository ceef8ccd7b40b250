"""TensorFlow as a source: Keras files and SavedModels in, the same bytes each time, and out to TFLite and ONNX."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from edgecompress.core import config, registry, settings
from edgecompress.core.errors import InputError, MissingDependency, StageFailed
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.tensorflow import savedmodel
from edgecompress.engines.tensorflow.runtimes import tensorflow as source
from edgecompress.engines.tensorflow.techniques import tf_int8
from edgecompress.pipeline import conversion
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow
DIGITS = Path(__file__).parents[1] / "examples" / "keras"
BATCH = Dim("batch", 1, 2**31 - 1)
TF2ONNX = importlib.util.find_spec("tf2onnx") is not None


def two_ends() -> keras.Model:
    """Inputs whose order is not that of the alphabet; two named outputs."""
    first, second = keras.Input((4,), name="second"), keras.Input((6,), name="first")
    both = keras.layers.Concatenate()([keras.layers.Dense(4)(first), second])  # a converter meets "second" first
    return keras.Model([first, second], {"sum": keras.layers.Dense(3)(both), "product": keras.layers.Dense(2)(both)})


def lstm() -> keras.Model:
    ids = keras.Input((8,), dtype="int32", name="ids")
    x = keras.layers.LSTM(16)(keras.layers.Embedding(50, 12)(ids))
    return keras.Model(ids, keras.layers.Dense(5)(x))


def gelu() -> keras.Model:
    x = keras.Input((6,), name="x")
    return keras.Model(x, keras.layers.Dense(3)(keras.layers.Dense(8, activation="gelu")(x)))


def steps() -> keras.Model:
    """The steps of both are loops that were traced for any batch."""
    x = keras.Input((6, 3), name="x")
    return keras.Model(x, keras.layers.GRU(4)(keras.layers.LSTM(5, return_sequences=True)(x)))


def tagger() -> keras.Model:
    """A label for each step, of sentences of any length: what Keras exports of an open length is wrong."""
    layers = [keras.Input((None,), dtype="int32", name="ids"), keras.layers.Embedding(50, 8)]
    layers += [keras.layers.TimeDistributed(keras.layers.Dense(6)), keras.layers.Dense(3)]
    return keras.Sequential(layers)


def saved(folder: Path, build: Callable[[], keras.Model]) -> tuple[keras.Model, Path]:
    keras.utils.set_random_seed(0)
    net = build()
    net.save(folder / "net.keras")
    return net, folder / "net.keras"


def read(path: Path, out: Path, **declared: Any) -> Artifact:
    out.mkdir()
    return source.read(Request({}, out, {"path": str(path), **declared}))


def db(wanted: Any, found: Any) -> float:
    return float(10 * np.log10((wanted**2).sum() / max(((wanted - found) ** 2).sum(), 1e-300)))


# --------------------------------------------------------------------------- sources


def test_a_keras_file_keeps_its_names_its_order_and_its_answers(tmp_path: Path) -> None:
    net, file = saved(tmp_path, two_ends)
    found = read(file, tmp_path / "out")
    assert found.inputs == (TensorSpec("second", (BATCH, 4)), TensorSpec("first", (BATCH, 6)))
    assert [(s.name, s.shape) for s in found.outputs] == [("product", (BATCH, 2)), ("sum", (BATCH, 3))]
    seeded = np.random.default_rng(0)
    given = {s.name: seeded.normal(size=(5, *s.shape[1:])).astype(np.float32) for s in found.inputs}
    answers, wanted = source.open(found, 1).run(given), net(given)
    for name in ("sum", "product"):
        assert db(wanted[name].numpy(), answers[name]) > 120


def augmented(*layers: keras.layers.Layer) -> keras.Model:
    picture = keras.Input((16, 16, 3), name="picture")
    body = keras.Sequential([*layers, keras.layers.Conv2D(4, 3), keras.layers.GlobalAveragePooling2D()])
    return keras.Model(picture, keras.layers.Dense(3)(body(picture)))


AUGMENTATIONS: dict[str, Callable[[], list[keras.layers.Layer]]] = {
    "moves": lambda: [
        keras.layers.RandomFlip(),
        keras.layers.RandomRotation(0.1),
        keras.layers.RandomZoom(0.1),
        keras.layers.RandomTranslation(0.1, 0.1),
        keras.layers.RandomPerspective(),
    ],
    "colours": lambda: [
        keras.layers.RandomContrast(0.2),
        keras.layers.RandomBrightness(0.2),
        keras.layers.RandomHue(0.1),
        keras.layers.RandAugment(),
    ],
    "noise": lambda: [
        keras.layers.GaussianNoise(0.1),
        keras.layers.GaussianDropout(0.1),
        keras.layers.AlphaDropout(0.1),
        keras.layers.SpatialDropout2D(0.1),
        keras.layers.RandomErasing(),
    ],
    "a crop": lambda: [keras.layers.RandomCrop(8, 12)],
    "inside another": lambda: [keras.Sequential([keras.layers.RandomFlip(), keras.layers.CutMix()])],
    "a layer of the user's": lambda: [RandomScale()],
}


@keras.saving.register_keras_serializable("tests")
class RandomScale(keras.layers.Layer):
    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.seed = keras.random.SeedGenerator(1)

    def call(self, x: Any, training: bool = True) -> Any:
        return x * keras.random.uniform((), seed=self.seed) if training else x


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_layers_that_augment_in_training_leave_the_file_of_a_keras_net(name: str, tmp_path: Path) -> None:
    net, file = saved(tmp_path, lambda: augmented(*AUGMENTATIONS[name]()))
    found = read(file, tmp_path / "out")
    graph, _, _ = savedmodel.parsed(found.path / savedmodel.FOLDER)
    assert not [n.op for n in graph.node if "Random" in n.op or "Assign" in n.op or n.op in ("While", "If")]
    assert not graph.library.function
    x = np.random.default_rng(0).uniform(0, 255, (2, 16, 16, 3)).astype(np.float32)
    for _ in range(2):
        answer = next(iter(source.open(found, 1).run({"picture": x}).values()))
        assert db(net(x, training=False).numpy(), answer) > 100


def test_a_savedmodel_loses_what_counts_its_draws_and_is_refused_by_the_operator_where_it_draws(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    net = augmented(*AUGMENTATIONS["moves"]())
    net.export(str(tmp_path / "training"), verbose=False)
    assert "draws random numbers (StatelessRandom" in refused(tmp_path / "training", tmp_path / "out")
    archive = keras.export.ExportArchive()
    archive.track(net)
    ends = [keras.InputSpec(shape=(None, 16, 16, 3), dtype="float32", name="picture")]
    archive.add_endpoint("serve", lambda x: net(x, training=False), ends)
    archive.write_out(str(tmp_path / "inference"), verbose=False)
    found = read(tmp_path / "inference", tmp_path / "made")
    x = np.random.default_rng(0).uniform(0, 255, (2, 16, 16, 3)).astype(np.float32)
    answer = next(iter(source.open(found, 1).run({"picture": x}).values()))
    assert db(net(x, training=False).numpy(), answer) > 100


def test_a_variable_that_is_written_is_refused_where_an_output_reads_it_and_is_left_out_elsewhere(
    tmp_path: Path,
) -> None:
    class Counting(tf.Module):  # type: ignore[misc]
        def __init__(self, read: bool) -> None:
            super().__init__()
            self.calls, self.read = tf.Variable(0.0), read

        @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])  # type: ignore[untyped-decorator]
        def serve(self, x: Any) -> dict[str, Any]:
            self.calls.assign_add(1.0)
            tf.debugging.assert_all_finite(x, "x")
            return {"y": x + self.calls if self.read else x + 1}

    for read_too in (True, False):
        net = Counting(read_too)
        tf.saved_model.save(net, str(tmp_path / str(read_too)), signatures=net.serve)
    assert "keeps state (AssignAddVariableOp)" in refused(tmp_path / "True", tmp_path / "out")
    found = read(tmp_path / "False", tmp_path / "made")
    assert source.open(found, 1).run({"x": np.ones((2, 4), np.float32)})["y"].tolist() == [[2.0] * 4] * 2


def test_an_open_axis_has_the_size_of_the_data(tmp_path: Path) -> None:
    net, file = saved(tmp_path, tagger)
    samples = Artifact(tmp_path, "samples", (TensorSpec("input", (BATCH, 5), "int32"),))
    found = source.read(Request({"samples": samples}, folder(tmp_path / "out"), {"path": str(file)}))
    assert found.inputs == (TensorSpec("ids", (BATCH, 5), "int32"),)
    given = np.random.default_rng(0).integers(0, 50, (3, 5)).astype(np.int32)
    assert db(net(given).numpy(), source.open(found, 1).run({"ids": given})["output_0"]) > 120


def test_an_export_that_answers_otherwise_than_its_model_is_refused(tmp_path: Path) -> None:
    _, file = saved(tmp_path, tagger)
    assert "has other results than the model" in refused(file, tmp_path / "out")


@pytest.mark.parametrize("build", [two_ends, lstm])
def test_a_file_of_keras_2_gives_what_that_of_keras_3_gives(build: Callable[[], keras.Model], tmp_path: Path) -> None:
    net, file = saved(tmp_path, build)
    net.save(tmp_path / "old.h5")
    with h5py.File(tmp_path / "old.h5", "r+") as old:  # Keras 3 refuses this
        written = old.attrs["model_config"].replace('"return_sequences"', '"time_major": false, "return_sequences"')
        assert ("time_major" in written) is (build is lstm)
        old.attrs["model_config"] = written
    assert read(tmp_path / "old.h5", tmp_path / "old").sha256 == read(file, tmp_path / "new").sha256


def rated() -> keras.Model:
    """A state, and a number that is none of the items."""
    x, h, rate = keras.Input((4,), name="x"), keras.Input((4,), name="h"), keras.Input((), name="rate")
    return keras.Model([x, h, rate], {"y": x + h, "next": 0.5 * h + x * keras.ops.reshape(rate, (-1, 1))})


def test_a_keras_file_may_have_state_and_constants(tmp_path: Path) -> None:
    _, file = saved(tmp_path, rated)
    found = read(file, tmp_path / "out", constants={"rate": 3}, state={"h": "next"})
    assert [spec.name for spec in found.inputs] == ["x", "h"]
    assert [(s.name, s.feeds) for s in found.outputs] == [("next", "h"), ("y", "")]
    ones = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(source.open(found, 1).run({"x": ones, "h": ones})["next"], 3.5 * ones)


@pytest.mark.parametrize("build", [two_ends, lstm])
def test_the_same_model_gives_the_same_bytes_as_a_file_and_as_a_folder(
    build: Callable[[], keras.Model], tmp_path: Path
) -> None:
    _, file = saved(tmp_path, build)
    one, two = read(file, tmp_path / "one"), read(file, tmp_path / "two")
    assert one.sha256 == two.sha256
    assert [p.relative_to(one.path).as_posix() for p in one.files()] == ["saved_model/saved_model.pb"]
    again = [read(one.path / "saved_model", tmp_path / name) for name in ("three", "four")]
    assert again[0].sha256 == again[1].sha256
    assert {s.name for s in again[0].inputs} == {s.name for s in one.inputs}


def test_a_savedmodel_gets_the_sizes_of_the_data_where_it_leaves_them_open(tmp_path: Path) -> None:
    class Mean(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, None, 3], tf.float32, name="x")])
        def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": tf.reduce_mean(x, 1) + tf.cast(tf.shape(x)[1], tf.float32)}

    tf.saved_model.save(Mean(), str(tmp_path / "mean"))
    samples = Artifact(tmp_path, "samples", (TensorSpec("input", (BATCH, 5, 3)),))
    found = source.read(Request({"samples": samples}, folder(tmp_path / "out"), {"path": str(tmp_path / "mean")}))
    assert [d if isinstance(d, int) else d.name for d in found.inputs[0].shape] == ["batch", 5, 3]
    x = np.ones((2, 5, 3), np.float32)
    np.testing.assert_array_equal(source.open(found, 1).run({"x": x})["y"], np.full((2, 3), 6, np.float32))


def test_a_savedmodel_of_tensorflow_1_with_what_trained_it_is_read_by_the_signature_to_serve_with(
    tmp_path: Path,
) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x, truth = v1.placeholder(tf.float32, [None, 4], "x"), v1.placeholder(tf.float32, [None, 2])
        y = tf.matmul(x, v1.get_variable("w", [4, 2]), name="y")
        loss = tf.reduce_mean(tf.square(y - truth))
        step = v1.train.AdamOptimizer(0.1).minimize(loss)
        session.run(v1.global_variables_initializer())
        ones = np.ones((3, 4), np.float32)
        session.run(step, {x: ones, truth: np.ones((3, 2))})
        wanted = session.run(y, {x: ones})
        define = v1.saved_model.signature_def_utils.predict_signature_def
        signatures = {"serving_default": define({"x": x}, {"y": y}), "loss": define({"x": x, "t": truth}, {"l": loss})}
        builder = v1.saved_model.Builder(str(tmp_path / "saved"))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    found = read(tmp_path / "saved", tmp_path / "out")
    assert [spec.name for spec in (*found.inputs, *found.outputs)] == ["x", "y"]
    np.testing.assert_allclose(source.open(found, 1).run({"x": ones})["y"], wanted, rtol=1e-6)


@pytest.mark.parametrize("identifier", ["optimizer", "of_another_library"])
@pytest.mark.parametrize("reachable", [True, False])
def test_a_savedmodel_is_read_without_the_slots_of_its_optimizer(
    identifier: str, reachable: bool, tmp_path: Path
) -> None:
    from tensorflow.core.protobuf import saved_model_pb2

    class Trained(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w, self.slot = tf.Variable(tf.ones((4, 2))), tf.Variable(tf.zeros((4, 2)))
            self.optimizer = tf.Module()
            self.optimizer.rate = tf.Variable(0.1)

        @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])  # type: ignore[untyped-decorator]
        def serve(self, x: Any) -> dict[str, Any]:
            return {"y": x @ self.w}

    net = Trained()
    tf.saved_model.save(net, str(tmp_path / "saved"), signatures=net.serve)
    file = tmp_path / "saved" / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    nodes = saved.meta_graphs[0].object_graph_def.nodes
    places = {child.local_name: child.node_id for child in nodes[0].children}
    optimizer = nodes[places["optimizer"]]
    optimizer.user_object.identifier = identifier
    slot = {"original_variable_node_id": places["w"], "slot_variable_node_id": places["slot"]}
    optimizer.slot_variables.add(slot_name="m", **slot)
    if not reachable:
        del nodes[0].children[[child.local_name for child in nodes[0].children].index("slot")]
    file.write_bytes(saved.SerializeToString())
    found = read(tmp_path / "saved", tmp_path / "out")
    assert source.open(found, 1).run({"x": np.ones((1, 4), np.float32)})["y"].tolist() == [[4.0, 4.0]]


def test_a_savedmodel_of_a_plain_module_is_read_by_its_signature(tmp_path: Path) -> None:
    class Scale(tf.Module):
        def __init__(self) -> None:
            self.weight = tf.Variable([1.0, 2.0, 3.0])

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
        def __call__(self, x: Any) -> Any:
            return {"y": x * self.weight}

    module = Scale()
    tf.saved_model.save(module, str(tmp_path / "their"), signatures={"serving_default": module.__call__})
    found = read(tmp_path / "their", tmp_path / "out")
    assert found.inputs == (TensorSpec("x", (BATCH, 3)),)
    answer = source.open(found, 1).run({"x": np.ones((2, 3), np.float32)})
    assert answer["y"].tolist() == [[1.0, 2.0, 3.0]] * 2


def test_the_operators_say_why_they_have_no_times(tmp_path: Path) -> None:
    _, file = saved(tmp_path, lstm)
    found = read(file, tmp_path / "out")
    item = next(tensors.batches(conformance.samples(found, tmp_path), "test", 1))
    table = source.open(found, 1, profile=True).ops(item, 2)
    assert table["ops"] == table["fallback"] == []
    assert "not timed" in table["why"]


# --------------------------------------------------------------------------- what is refused


def refused(path: Path, out: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(path, out)
    says = str(caught.value)
    assert "\n" not in says
    assert path.name in says
    return says


def test_the_loop_of_an_lstm_reaches_litert_and_is_not_calibrated(tmp_path: Path) -> None:
    keras_net, file = saved(tmp_path, steps)
    model = read(file, tmp_path / "source")
    litert = registry.load("runtimes", "litert")
    made = litert.export(Request({"model": model}, folder(tmp_path / "out"), context=Context(batch=2)))
    x = np.random.default_rng(0).normal(size=(2, 6, 3)).astype("float32")
    found = litert.open(made, 1).run({"x": x})
    assert db(keras_net.predict(x, verbose=0), next(iter(found.values()))) > 100
    with pytest.raises(StageFailed, match="which TensorFlow's converter does not calibrate; use int8-dynamic"):
        tf_int8.apply(Request({"model": model}, folder(tmp_path / "int8"), tf_int8.Options()))


@pytest.mark.parametrize("name", ["net.keras", "net.h5"])
def test_a_lambda_is_not_loaded(name: str, tmp_path: Path) -> None:
    image = keras.Input((4,))
    keras.Model(image, keras.layers.Lambda(lambda x: x * 2)(image)).save(tmp_path / name)
    assert "a Lambda layer, Python code that loading would run" in refused(tmp_path / name, tmp_path / "out")


def test_weights_alone_are_told_so(tmp_path: Path) -> None:
    saved(tmp_path, two_ends)[0].save_weights(tmp_path / "net.weights.h5")
    assert "it holds weights alone: make the net, call its load_weights" in refused(
        tmp_path / "net.weights.h5", tmp_path / "out"
    )


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("cut", [10, 2000])
def test_a_damaged_keras_file_is_one_line(cut: int, suffix: str, tmp_path: Path) -> None:
    net, file = saved(tmp_path, two_ends)
    net.save(file.with_suffix(suffix))
    bad = tmp_path / f"bad{suffix}"
    bad.write_bytes(file.with_suffix(suffix).read_bytes()[:cut])
    assert "truncated or damaged" in refused(bad, tmp_path / "out")
    assert "no such file" in refused(tmp_path / "none.keras", tmp_path / "none")


def test_a_damaged_savedmodel_is_one_line(tmp_path: Path) -> None:
    _, file = saved(tmp_path, two_ends)
    folder = tmp_path / "bad"
    shutil.copytree(read(file, tmp_path / "out").path / "saved_model", folder)
    data = (folder / "saved_model.pb").read_bytes()
    (folder / "saved_model.pb").write_bytes(data[: len(data) // 2])
    assert "TensorFlow cannot load it" in refused(folder, tmp_path / "again")


def test_a_savedmodel_without_a_signature_is_told_so(tmp_path: Path) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"))
    assert "no signature 'serving_default' (it has none)" in refused(tmp_path / "bare", tmp_path / "out")


def test_text_and_tables_are_refused(tmp_path: Path) -> None:
    words = keras.layers.StringLookup(vocabulary=["a", "b"])
    text = keras.Input((1,), dtype="string", name="text")
    keras.Model(text, keras.layers.Embedding(4, 2)(words(text))).save(tmp_path / "net.keras")
    assert refused(tmp_path / "net.keras", tmp_path / "out")


def test_broken_weights_are_named(tmp_path: Path) -> None:
    net, file = saved(tmp_path, two_ends)
    kernel = net.layers[-1].kernel
    kernel.assign(kernel * np.nan)
    net.save(file)
    assert "NaN; train or export it again" in refused(file, tmp_path / "out")


# --------------------------------------------------------------------------- what becomes of them


def digits(folder: Path) -> tuple[Artifact, Artifact]:
    """The example's net, and its calibration and test images as it takes them."""
    spec = importlib.util.spec_from_file_location("example_keras", DIGITS / "net.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for split in ("calibrate", "test"):
        images, labels = zip(*module.data(split), strict=True)
        x = (np.stack(images)[..., None] / 16).astype(np.float32)
        tensors.write_split(folder / "samples" / split, {"image": x, "labels": np.array(labels)})
    image = TensorSpec("image", (Dim("batch", 1, 500), 8, 8, 1))
    samples = Artifact(folder / "samples", "samples", (image,), (), {"splits": {"calibrate": 150, "test": 500}}).write()
    return read(DIGITS / "digits.keras", folder / "digits"), samples


def right(artifact: Artifact, samples: Artifact) -> int:
    """Of 500 images."""
    session = next(m for _, m in registry.every("runtimes") if artifact.kind == m.FORMAT).open(artifact, 1)
    items = tensors.batches(samples, "test", 1, model=artifact)
    found = [session.run(item)["probabilities"].argmax() for item in items]
    return int((np.array(found) == tensors.load(samples, "test", "labels")).sum())


def test_the_example_is_a_source_that_is_right_and_stays_so_in_int8(tmp_path: Path) -> None:
    described = config.build(settings.Source, config.read_toml(DIGITS / "source.toml"), "source.toml")
    assert (described.model, described.data) == ("digits.keras", "net:data")
    net, samples = digits(tmp_path)
    out = tmp_path / "int8"
    out.mkdir()
    int8 = tf_int8.apply(Request({"model": net, "samples": samples}, out, tf_int8.Options(samples=100)))
    assert int8.facts == {"samples": 100}
    assert [s.name for s in (*int8.inputs, *int8.outputs)] == ["image", "probabilities"]
    assert int8.inputs[0] == TensorSpec("image", (1, 8, 8, 1))
    assert int8.size_bytes < 0.5 * net.size_bytes
    before = right(net, samples)
    assert before >= 490
    assert abs(before - right(int8, samples)) <= 2


@pytest.mark.prove
def test_layers_of_a_diagnosis_stay_in_float_of_tensorflow_s_converter(tmp_path: Path) -> None:
    net, samples = digits(tmp_path)
    made = [tf_compressed(net, samples, tmp_path / "int8")]
    taps = (
        registry.load("runtimes", "litert").tapped(Request({"model": made[0]}, folder(tmp_path / "taps"))).facts["taps"]
    )
    for count, row in enumerate((taps[0], taps[-2])):
        made.append(tf_compressed(net, samples, tmp_path / f"kept{count}", **tf_int8.kept({}, [row])))
    sizes = [artifact.size_bytes for artifact in made]
    assert sizes[0] < min(sizes[1:])
    assert all(abs(right(net, samples) - right(artifact, samples)) <= 2 for artifact in made)
    with pytest.raises(InputError, match="skip: no operator's name matches 'absent'"):
        tf_compressed(net, samples, tmp_path / "absent", skip=("absent",))


def tf_compressed(net: Artifact, samples: Artifact, out: Path, **options: Any) -> Artifact:
    made = config.build(tf_int8.Options, {"samples": 50, **options}, "tf_int8")
    return tf_int8.apply(Request({"model": net, "samples": samples}, folder(out), made))


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_inputs_of_unlike_shapes_are_calibrated_by_their_names(tmp_path: Path) -> None:
    net, file = saved(tmp_path, two_ends)
    found = read(file, tmp_path / "out")
    seeded = np.random.default_rng(0)
    arrays = {s.name: seeded.normal(size=(40, *s.shape[1:])).astype(np.float32) for s in found.inputs}
    tensors.write_split(tmp_path / "samples" / "calibrate", arrays)
    samples = Artifact(tmp_path / "samples", "samples", found.inputs, facts={"splits": {"calibrate": 40}})
    int8 = tf_compressed(found, samples, tmp_path / "int8")
    session = registry.load("runtimes", "litert").open(int8, 1)
    answers = [session.run({name: array[i : i + 1] for name, array in arrays.items()}) for i in range(40)]
    wanted = net(arrays)
    assert all(db(wanted[name].numpy(), np.concatenate([a[name] for a in answers])) > 25 for name in wanted)


def far_pool() -> keras.Model:
    """Numbers below 0, of which a pool hands on the others to a join."""
    x = keras.Input((8, 8, 3), name="x")
    pooled = keras.layers.ReLU()(keras.layers.AveragePooling2D(2)(x))
    parts = [pooled, keras.layers.Conv2D(4, 2, strides=2, activation="relu")(x)]
    flat = [keras.layers.Flatten()(part) for part in parts]
    return keras.Model(x, keras.layers.Dense(3)(keras.layers.Concatenate()(flat)))


def small_and_large() -> keras.Model:
    """A join of numbers with others that are 300 times as large, and weighs both alike."""
    x = keras.Input((12,), name="x")
    large = keras.layers.Dense(12, kernel_initializer=keras.initializers.RandomNormal(stddev=100))(x)
    joined = keras.layers.Concatenate()([x, keras.layers.ReLU()(large)])
    net = keras.Model(x, keras.layers.Dense(3)(joined))
    kernel = net.layers[-1].kernel
    kernel.assign(kernel * np.repeat([1.0, 1 / 300], 12)[:, None])
    return net


@pytest.mark.parametrize("build", [far_pool, small_and_large])
def test_int8_of_what_is_joined_keeps_the_numbers_that_are_read_elsewhere(
    build: Callable[[], keras.Model], tmp_path: Path
) -> None:
    _, file = saved(tmp_path, build)
    net = read(file, tmp_path / "net")
    (end,) = net.inputs
    x = np.random.default_rng(0).normal(size=(60, *end.shape[1:])).astype(np.float32)
    tensors.write_split(tmp_path / "samples" / "calibrate", {"x": x})
    spec = TensorSpec("x", (Dim("batch", 1, 60), *end.shape[1:]))
    samples = Artifact(tmp_path / "samples", "samples", (spec,), facts={"splits": {"calibrate": 60}}).write()
    session = registry.load("runtimes", "litert").open(tf_compressed(net, samples, tmp_path / "int8"), 1)
    found = [next(iter(session.run({"x": row[None]}).values())) for row in x]
    wanted = next(iter(source.open(net, 1).run({"x": x}).values()))
    assert db(wanted, np.concatenate(found)) > 25


@pytest.mark.parametrize("joined", [False, True], ids=["if", "switch and merge"])
@pytest.mark.parametrize("training", [False, True])
def test_of_a_branch_that_is_decided_the_one_that_is_taken_stays(joined: bool, training: bool, tmp_path: Path) -> None:
    """As nets of TensorFlow 1 have dropout, by a placeholder that is fed in training alone."""
    v1, x = tf.compat.v1, np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    (v1.disable_control_flow_v2 if joined else v1.enable_control_flow_v2)()
    try:
        with v1.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            given = v1.placeholder(tf.float32, [None, 6], "x")
            phase = v1.placeholder_with_default(training, [], "training")
            made = tf.matmul(given, v1.get_variable("w", [6, 4], use_resource=False))
            branches = [lambda: made * 2.0 + 1.0, lambda: made + tf.random.uniform([])]
            answer = tf.nn.relu(tf.cond(phase, *(branches if training else branches[::-1])))
            session.run(v1.global_variables_initializer())
            wanted = session.run(answer, {given: x})
            builder = v1.saved_model.Builder(str(tmp_path / "saved"))
            told = v1.saved_model.predict_signature_def({"x": given}, {"y": answer})
            builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": told})
            builder.save()
    finally:
        v1.enable_control_flow_v2()
    net = read(tmp_path / "saved", tmp_path / "net")
    np.testing.assert_allclose(source.open(net, 1).run({"x": x})["y"], wanted, rtol=1e-5)
    for runtime in ("litert", *(["onnx"] if TF2ONNX else [])):
        engine = registry.load("runtimes", runtime)
        (tmp_path / runtime).mkdir()
        file = engine.export(Request({"model": net}, tmp_path / runtime, None, Context(batch=1)))
        found = [next(iter(engine.open(file, 1).run({"x": row[None]}).values())) for row in x]
        np.testing.assert_allclose(np.concatenate(found), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "stride", "same"), [((17, 18), 10, False), ((16, 20), 4, False), ((21, 19), 10, True)]
)
def test_a_same_padding_that_pads_nothing_is_told_so(
    size: tuple[int, int], stride: int, same: bool, tmp_path: Path
) -> None:
    def build() -> keras.Model:
        x = keras.Input((*size, 3), name="x")
        far = {"strides": stride, "padding": "same"}
        made = [
            keras.layers.Conv2D(4, 3, **far)(x),
            keras.layers.DepthwiseConv2D(3, **far)(x),
            keras.layers.MaxPooling2D(2, **far)(x),
            keras.layers.AveragePooling2D(2, **far)(x),
        ]
        return keras.Model(x, keras.layers.Concatenate()(made))

    _, file = saved(tmp_path, build)
    net, litert = read(file, tmp_path / "net"), registry.load("runtimes", "litert")
    (tmp_path / "file").mkdir()
    made = litert.export(Request({"model": net}, tmp_path / "file", None, Context(batch=1)))
    x = np.random.default_rng(0).normal(size=(1, *size, 3)).astype(np.float32)
    wanted = next(iter(source.open(net, 1).run({"x": x}).values()))
    np.testing.assert_allclose(next(iter(litert.open(made, 1).run({"x": x}).values())), wanted, atol=1e-5)
    graph = flatbuffer_utils.read_model(str(made.file(".tflite"))).subgraphs[0]
    told = {op.builtinOptions.padding for op in graph.operators if hasattr(op.builtinOptions, "padding")}
    assert (schema.Padding.SAME in told) == same


def test_int8_ends_are_told_with_their_quantization(tmp_path: Path) -> None:
    net, samples = digits(tmp_path)
    out = tmp_path / "int8"
    out.mkdir()
    options = tf_int8.Options(io="int8", samples=20)
    int8 = tf_int8.apply(Request({"model": net, "samples": samples}, out, options, Context(batch=2)))
    (image,) = int8.inputs
    assert image.dtype == int8.outputs[0].dtype == "int8"
    assert image.shape == (2, 8, 8, 1)
    assert image.quantization is not None
    assert image.quantization.scale[0] == pytest.approx(1 / 255, rel=0.1)


def test_a_savedmodel_has_a_way_to_every_format_it_should() -> None:
    for goal, calls in {
        "tflite": ["runtimes.litert:export"],
        "onnx": ["runtimes.onnx:export"],
        "openvino": ["runtimes.onnx:export", "runtimes.openvino:export"],
        "pte": ["runtimes.onnx:export", conversion.IMPORT, conversion.TRACE, "runtimes.executorch:export"],
    }.items():
        assert conversion.shortest_path("savedmodel", [goal]) == calls
    table = {"description": "x", "runtime": "litert", "variant": [{"name": "v", "compress": [{"use": "int8"}]}]}
    target = config.build(settings.Target, table, "target")
    assert conversion.steps(target, target.variant[0], "savedmodel", "target") == [("techniques.tf_int8:apply", {})]


@pytest.mark.skipif(TF2ONNX, reason="tf2onnx is installed")
def test_without_tf2onnx_it_says_what_to_install(tmp_path: Path) -> None:
    _, file = saved(tmp_path, two_ends)
    found = read(file, tmp_path / "out")
    with pytest.raises(MissingDependency, match="needs tf2onnx, not installed; run: pip install"):
        ort.export(Request({"model": found}, tmp_path))


@pytest.mark.skipif(not TF2ONNX, reason="tf2onnx is not installed")
@pytest.mark.parametrize("build", [two_ends, lstm, gelu])
def test_a_savedmodel_becomes_onnx_with_its_names(build: Callable[[], keras.Model], tmp_path: Path) -> None:
    _, file = saved(tmp_path, build)
    found = read(file, tmp_path / "out")
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(ort.export(Request({"model": found}, tmp_path / name)))
    assert made[0].sha256 == made[1].sha256
    seeded = np.random.default_rng(0)
    given: dict[str, Any] = {}
    for spec in found.inputs:
        shape = (3, *spec.shape[1:])
        given[spec.name] = (seeded.normal(size=shape) * 9).astype(spec.dtype)
        given[spec.name] = np.abs(given[spec.name]) if spec.dtype == "int32" else given[spec.name]
    answers, wanted = ort.open(made[0], 1).run(given), source.open(found, 1).run(given)
    assert all(db(wanted[name], answers[name]) > 100 for name in wanted)
