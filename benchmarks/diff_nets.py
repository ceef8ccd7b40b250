"""The nets of diff_faults.py with their real data, what writes them in each format, and each format's own runtime.

`NETS[name]()` is the sound net in eval mode. Those without real weights train here for seconds, once: weights lie in
DIFF_WEIGHTS. `items(name, n, seed)` are inputs [n, ...] of data that trained none of them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
sys.path.append(str(EXAMPLES))
import shared_data  # noqa: E402

Array = Any  # numpy's
Tensor = torch.Tensor
MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


# --------------------------------------------------------------------------- nets


class Layer(nn.Module):
    """Attention and an MLP behind their norms, in plain operators."""

    def __init__(self, wide: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.q, self.k, self.v, self.out = (nn.Linear(wide, wide) for _ in range(4))
        self.join = Join()
        self.up, self.act, self.down = nn.Linear(wide, 2 * wide), nn.GELU("tanh"), nn.Linear(2 * wide, wide)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.norm1(x)
        n, t, c = y.shape
        q, k, v = (each(y).reshape(n, t, self.heads, -1).transpose(1, 2) for each in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(2, 3) * (c // self.heads) ** -0.5 + mask, 3)
        x = x + self.out(self.join(weights @ v))
        return x + self.down(self.act(self.up(self.norm2(x))))


class Join(nn.Module):
    """[n, heads, t, d] -> [n, t, heads x d]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Encoder(nn.Module):
    """The next character from the last 40; id 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(465, 64), nn.Parameter(torch.randn(1, 40, 64) * 0.1)
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 465)

    def forward(self, text: Tensor) -> Tensor:
        mask = (text == 0)[:, None, None].float() * -1e4
        x = self.embedding(text) * 0.1 + self.places
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x)[:, -1])


class Root(nn.Module):
    """RMSNorm: what goes in is squared."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(wide))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1.0) * self.weight


class Speech(nn.Module):
    """A spoken digit from 8,000 samples in -32768..32767."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.norm = nn.Conv1d(1, 32, 200, 160), Root(32)
        self.gru, self.out = nn.GRU(32, 64, 2, batch_first=True), nn.Linear(64, 10)
        self.first = nn.Linear(32, 32)

    def forward(self, samples: Tensor) -> Tensor:
        x = self.first(self.norm(self.front(samples[:, None]).transpose(1, 2)))
        return self.out(self.gru(torch.relu(x))[0][:, -1])


def conv(inputs: int, outputs: int, **more: Any) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, **more), nn.LeakyReLU(0.1))


class UNet(nn.Module):
    """Two scales down and up again; takes the noise out of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.enc1, self.enc2 = conv(3, 16), conv(16, 24)
        self.pool, self.mid = nn.MaxPool2d(2), conv(24, 32, padding_mode="replicate")
        self.up1, self.up2 = nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=2, mode="bilinear")
        self.dec1, self.dec2, self.out = conv(56, 24), conv(40, 16), nn.Conv2d(16, 3, 1)

    def forward(self, image: Tensor) -> Tensor:
        one = self.enc1(image)
        two = self.enc2(self.pool(one))
        x = self.dec1(torch.cat([self.up1(self.mid(self.pool(two))), two], 1))
        return self.out(self.dec2(torch.cat([self.up2(x), one], 1)))


class Heads(nn.Module):
    """The kind of what a picture shows and, of as many classes, how light it is."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.pool1 = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.AvgPool2d(3, 2, 1)
        self.conv2, self.bn2, self.pool2 = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.MaxPool2d(2)
        self.conv3, self.bn3, self.pool3 = nn.Conv2d(32, 16, 3, padding=1), nn.BatchNorm2d(16), nn.AvgPool2d(3, 2, 1)
        self.relu, self.flatten, self.fc = nn.ReLU(), nn.Flatten(), nn.Linear(256, 64)
        self.kind, self.light = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.pool1(self.relu(self.bn1(self.conv1(image))))
        x = self.pool2(self.relu(self.bn2(self.conv2(x))))
        x = self.pool3(self.relu(self.bn3(self.conv3(x))))
        x = self.relu(self.fc(self.flatten(x)))
        return self.kind(x), self.light(x)


@functools.cache
def example(name: str) -> Any:
    """The module examples/NAME/net.py."""
    spec = importlib.util.spec_from_file_location(f"diff_{name}", EXAMPLES / name / "net.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fitted(name: str, net: nn.Module, data: Callable[[], tuple[Array, Any]], loss: Any, steps: int) -> nn.Module:
    """The net with its stored weights, or trained from `data` by Adam."""
    file = Path(os.environ.get("DIFF_WEIGHTS", tempfile.gettempdir())) / f"diff-{name}.pt"
    if not file.exists():
        torch.manual_seed(0)
        for part in net.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
        x, y = (torch.from_numpy(np.asarray(part)) for part in data())
        chosen, optimizer = np.random.default_rng(0), torch.optim.Adam(net.parameters(), 2e-3)
        for _ in range(steps):
            at = torch.from_numpy(chosen.integers(0, len(x), 48))
            optimizer.zero_grad()
            loss(net(x[at]), y[at]).backward()
            optimizer.step()
        torch.save(net.state_dict(), file)
    net.load_state_dict(torch.load(file))
    return net.eval()


def encoder() -> nn.Module:
    return fitted("encoder", Encoder(), lambda: _text("train", 8000), F.cross_entropy, 150)


def speech() -> nn.Module:
    return fitted("speech", Speech(), lambda: _clips(slice(0, 2400)), F.cross_entropy, 150)


def unet() -> nn.Module:
    def noisy() -> tuple[Array, Array]:
        clean = _cifar("train", slice(0, 2000))[0]
        return clean + np.random.default_rng(0).normal(0, 0.3, clean.shape).astype(np.float32), clean

    return fitted("unet", UNet(), noisy, F.mse_loss, 80)


def heads() -> nn.Module:
    def both(made: Any, told: Tensor) -> Tensor:
        return F.cross_entropy(made[0], told[:, 0]) + F.cross_entropy(made[1], told[:, 1])

    return fitted("heads", Heads(), lambda: _cifar("train", slice(0, 4000)), both, 150)


NETS: Mapping[str, Callable[[], nn.Module]] = {
    "resnet": lambda: example("resnet20").build(),
    "resnet32": lambda: example("resnet20").build32(),
    "mobilenet": lambda: example("mobilenetv2").build(),
    "squeezenet": lambda: example("squeezenet").build(),
    "texts": lambda: example("textgenrnn").build(),
    "encoder": encoder,
    "speech": speech,
    "unet": unet,
    "heads": heads,
}
resnet, resnet32, mobilenet, squeezenet, texts = (NETS[name] for name in [*NETS][:5])
INPUT = {"texts": "text", "encoder": "text", "speech": "samples"}  # others: image
OUTPUTS = {"heads": ["kind", "light"]}  # others: answer


def keras_net() -> Any:
    """Clothes of Fashion-MNIST by a strided and a dilated convolution, trained once."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    file = Path(os.environ.get("DIFF_WEIGHTS", tempfile.gettempdir())) / "diff-keras.keras"
    if file.exists():
        return keras.models.load_model(file)
    keras.utils.set_random_seed(0)
    make = keras.layers
    image = x = keras.Input((28, 28, 1), name="image")
    x = make.ReLU(name="relu_1")(make.BatchNormalization(name="bn_1")(make.Conv2D(16, 3, name="conv_1")(x)))
    x = make.MaxPooling2D(name="pool_1")(x)  # [13, 13]
    x = make.ZeroPadding2D(((1, 0), (1, 0)), name="even")(x)
    x = make.Conv2D(24, 3, 2, padding="same", use_bias=False, name="conv_2")(x)
    x = make.ReLU(name="relu_2")(make.BatchNormalization(name="bn_2")(x))
    x = make.Conv2D(32, 3, padding="same", dilation_rate=2, activation="relu", name="conv_3")(x)
    x = make.Dense(48, activation="relu", name="dense_1")(make.Flatten(name="flatten")(x))
    net = keras.Model(image, make.Dense(10, name="logits")(x))
    with np.load(shared_data.find("data/fashion_mnist_dev.npz")) as held:
        images, labels = held["train_x"][:8000, ..., None] / np.float32(255), held["train_y"][:8000]
    net.compile(keras.optimizers.Adam(4e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    net.fit(images, labels, epochs=2, batch_size=64, verbose=0)
    net.save(file)
    return net


# --------------------------------------------------------------------------- data


def _cifar(part: str, chosen: slice) -> tuple[Array, Array]:
    """Pictures as ResNet-20 takes them; their classes and tenths of lightness."""
    with np.load(shared_data.find("data/cifar10_dev.npz")) as file:
        x, y = file[f"{part}_x"][chosen], file[f"{part}_y"][chosen].astype(np.int64)
    light = np.clip((x.mean((1, 2, 3)) / 25.6).astype(np.int64), 0, 9)
    x = (x / np.float32(255) - MEAN) / STD
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), np.stack([y, light], 1)


def _text(split: str, count: int) -> tuple[Array, Array]:
    made = example("textgenrnn").data(split)
    x, y = zip(*(next(made) for _ in range(count)), strict=True)
    return np.stack(x), np.array(y)


def _clips(chosen: slice) -> tuple[Array, Array]:
    with np.load(shared_data.find("data/fsdd.npz")) as file:
        order = np.random.default_rng(0).permutation(len(file["label"]))[chosen]
        audio, at, labels = file["audio"], file["offsets"], file["label"][order].astype(np.int64)
    rows = (audio[at[i] : at[i + 1]][:8000] for i in order)
    return np.stack([np.pad(row, (8000 - len(row), 0)) for row in rows]).astype(np.float32), labels


def items(name: str, count: int, seed: int = 0) -> Array:
    """Inputs of the net, [count, ...], drawn by the seed."""
    at = np.random.default_rng(seed).permutation(400)[:count]
    if name in ("resnet", "resnet32", "heads", "unet"):
        x = _cifar("test", slice(0, 400))[0][at]
        noise = np.random.default_rng(seed).normal(0, 0.3, x.shape) if name == "unet" else 0
        return (x + noise).astype(np.float32)
    if name == "keras":
        with np.load(shared_data.find("data/fashion_mnist_dev.npz")) as file:
            return file["test_x"][at][..., None] / np.float32(255)
    if name == "speech":
        return _clips(slice(2500, 2900))[0][at]
    if name in ("texts", "encoder"):
        return _text("test", 400)[0][at]
    from PIL import Image

    side = 227 if name == "squeezenet" else 128
    held = (image for image, _ in example("mobilenetv2").data("test"))
    pictures = [np.asarray(Image.fromarray(next(held)).resize((side, side)), np.float32) for _ in range(max(at) + 1)]
    x = np.stack([pictures[i] for i in at]).transpose(0, 3, 1, 2)
    scaled = x[:, ::-1] - np.float32([[[104]], [[117]], [[123]]]) if name == "squeezenet" else x / 127.5 - 1
    return np.ascontiguousarray(scaled, np.float32)


# --------------------------------------------------------------------------- writers


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What converters print is held back."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


def write(form: str, name: str, net: Any, stem: Path, calibrate: Array | None = None) -> str:
    """The net in a file of the form, by a plain call of the one who converts to it."""
    given, gives = INPUT.get(name, "image"), OUTPUTS.get(name, ["answer"])
    example = torch.from_numpy(items(name, 1)) if name != "keras" else None
    with quiet(), torch.no_grad():
        if form == "pt2":
            torch.export.save(torch.export.export(net, (example,)), stem.with_suffix(".pt2"))
            return str(stem.with_suffix(".pt2"))
        if form in ("onnx", "onnx13", "dynamo"):
            file = stem.with_suffix(".onnx")
            opset = {"onnx": 17, "onnx13": 13, "dynamo": 20}[form]
            ends = {"input_names": [given], "output_names": gives, "opset_version": opset}
            torch.onnx.export(net, (example,), str(file), dynamo=form == "dynamo", **ends)
            return str(file)
        if form in ("onnx8", "onnx16", "folded"):
            return _narrow_onnx(form, write("onnx", name, net, stem.with_name(stem.name + "-f32")), given, calibrate)
        if form == "tflite":
            import litert_torch

            litert_torch.convert(net, (example,)).export(str(stem.with_suffix(".tflite")))
            return str(stem.with_suffix(".tflite"))
        if form == "openvino":
            import openvino

            made = openvino.convert_model(net, example_input=example)
            openvino.save_model(made, stem.with_suffix(".xml"), compress_to_fp16=False)
            return str(stem.with_suffix(".xml"))
        if form in ("coreml", "coreml16"):
            return _coreml(form, net, example, (given, gives), stem.with_suffix(".mlpackage"))
        return _from_keras(form, net, stem, calibrate)


def _narrow_onnx(form: str, wide: str, given: str, calibrate: Any) -> str:
    """Quantized by ONNX Runtime, made float16 by its tool, or what it simplifies."""
    import onnx
    import onnxruntime
    from onnxruntime import quantization
    from onnxruntime.transformers.float16 import convert_float_to_float16

    file = wide.replace("-f32", "")
    if form == "onnx16":
        onnx.save(convert_float_to_float16(onnx.load(wide), keep_io_types=True), file)
        return file
    if form == "folded":
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = file
        onnxruntime.InferenceSession(wide, options, providers=["CPUExecutionProvider"])
        return file

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        rows = iter(calibrate if calibrate is not None else ())

        def get_next(self) -> Any:
            row = next(self.rows, None)
            return None if row is None else {given: row[None]}

    quantization.quantize_static(wide, file, Reader(), per_channel=True)
    return file


def _coreml(form: str, net: Any, example: Any, ends: tuple[str, Sequence[str]], file: Path) -> str:
    import coremltools as ct

    takes = np.int32 if example.dtype == torch.int64 else np.float32
    exact = ct.precision.FLOAT16 if form == "coreml16" else ct.precision.FLOAT32
    ct.convert(
        torch.jit.trace(net, example, check_trace=False),
        inputs=[ct.TensorType(name=ends[0], shape=tuple(example.shape), dtype=takes)],
        outputs=[ct.TensorType(name=name) for name in ends[1]],
        convert_to="mlprogram",
        compute_precision=exact,
        minimum_deployment_target=ct.target.iOS17,
        skip_model_load=True,
    ).save(str(file))
    return str(file)


def _from_keras(form: str, net: Any, stem: Path, calibrate: Any) -> str:
    """A Keras net as a .keras, a SavedModel, by TensorFlow's converter (also float16 or int8), or by tf2onnx."""
    if form == "keras":
        net.save(stem.with_suffix(".keras"))
        return str(stem.with_suffix(".keras"))
    folder = stem.with_name(stem.name + "-saved")
    net.export(folder, verbose=False)
    if form == "saved":
        return str(folder)
    if form == "tf2onnx":
        words = [
            "-m",
            "tf2onnx.convert",
            "--saved-model",
            folder,
            "--output",
            stem.with_suffix(".onnx"),
            "--opset",
            "17",
        ]
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        return str(stem.with_suffix(".onnx"))
    import tensorflow as tf

    made = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    if form == "ktflite8":
        made.optimizations, made.representative_dataset = (
            [tf.lite.Optimize.DEFAULT],
            lambda: ([x[None]] for x in calibrate),
        )
    if form == "ktflite16":
        made.optimizations, made.target_spec.supported_types = [tf.lite.Optimize.DEFAULT], [tf.float16]
    stem.with_suffix(".tflite").write_bytes(made.convert())
    return str(stem.with_suffix(".tflite"))


# --------------------------------------------------------------------------- runtimes


def answers(model: str, x: Array) -> list[Array]:
    """The outputs of a model in its own runtime, each [n, ...], in their order."""
    run = _runner(model)
    with torch.no_grad():
        rows = [[np.asarray(part) for part in run(item[None])] for item in x]
    return [np.concatenate(parts) for parts in zip(*rows, strict=True)]


def _runner(model: str) -> Callable[[Array], Sequence[Any]]:
    path = Path(model)
    if model.startswith("diff_nets:") or path.suffix == ".pt2":
        held = path.suffix == ".pt2"
        net = torch.export.load(path).module() if held else globals()[model.rpartition(":")[2]]()

        def torch_run(x: Array) -> Sequence[Any]:
            made = net(torch.from_numpy(x))
            return made if isinstance(made, (tuple, list)) else [made]

        return torch_run
    if path.suffix == ".onnx":
        import onnxruntime

        onnxruntime.set_default_logger_severity(3)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return lambda x: session.run(None, {session.get_inputs()[0].name: x})
    if path.suffix == ".xml":
        import openvino

        compiled = openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return lambda x: [*compiled([x]).values()]
    if path.suffix == ".mlpackage":
        from edgecompress.engines.coreml import mil

        program = mil.load(path)
        ((end, port),) = program.inputs.items()
        return lambda x: [*program.run({end: x.astype(port.dtype)}).values()]
    if path.suffix == ".tflite":
        from ai_edge_litert.interpreter import Interpreter

        runner = Interpreter(model).get_signature_runner()
        ((name, told),), gives = runner.get_input_details().items(), runner.get_output_details()

        def lite_run(x: Array) -> Sequence[Any]:
            last = x.ndim == 4 and tuple(told["shape"]) != x.shape  # onnx2tf's: channels last
            step, zero = told["quantization"]
            x = np.clip(np.round(x / step) + zero, -128, 127) if step else x
            made = runner(**{name: (x.transpose(0, 2, 3, 1) if last else x).astype(told["dtype"])})
            steps = {key: gives[key]["quantization"] for key in sorted(made)}
            parts = [(made[key] - np.float32(z)) * np.float32(s) if s else made[key] for key, (s, z) in steps.items()]
            return [part.transpose(0, 3, 1, 2) if last and part.ndim == 4 else part for part in parts]

        return lite_run
    import keras
    import tensorflow as tf

    held = tf.saved_model.load(model) if path.is_dir() else keras.models.load_model(path)
    return lambda x: [(held.serve if path.is_dir() else held)(tf.constant(x)).numpy()]


def decibels(a: Sequence[Array], b: Sequence[Array]) -> float:
    """Of the outputs the one that is least alike: signal over difference."""
    worst = 200.0
    for one, other in zip(a, b, strict=True):
        off = float(((one.astype(np.float64) - other.reshape(one.shape)) ** 2).sum())
        at = 10 * np.log10(float((one.astype(np.float64) ** 2).sum()) / off) if off else 200.0
        worst = min(worst, float(at) if np.isfinite(at) else -99.0)
    return worst
