"""Real nets on real data keep what is promised of them in every format: the function behind benchmarks/parity.py."""

from __future__ import annotations

from pathlib import Path

import prove
import pytest
import test_examples
import vectors

# What is left to the benchmark, which `make prove` runs whole: interpreted and lowered nets, those without accuracy,
# formats of a net that another test holds to the same promises, or that another net goes through.
SKIP: dict[str, tuple[str, ...]] = {
    "resnet20": ("coreml", "executorch", "litert-fp", "onnx-fp16", "openvino-fp32", "torchinductor"),
    "mobilenetv2": (
        *("coreml", "executorch", "torchinductor", "tflite"),
        *("openvino", "litert-fp", "onnx-fp16"),
    ),
    "squeezenet": ("coreml", "executorch-int8", "torchinductor", "tflite", "onnx-fp16"),
    "textgenrnn": ("executorch", "coreml", "torchinductor", "tflite"),
    "bert": ("tflite", "coreml", "torchinductor", "executorch", "onnx-fp16", "litert-fp"),
}


@pytest.mark.prove
@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SKIP)
def test_a_net_keeps_its_promises_in_every_format(name: str, store: Path) -> None:
    script = prove.benchmark("parity")
    net = next(net for net in script.NETS if net.name == name)
    found = script.rows(net, store, SKIP[name])
    script.show(found)
    exact = [row for row in found if not vectors.saturates(*row.variant.split("-", 1))]
    broken = {row.variant: row.broken for row in exact if row.broken and not script.known(row)}
    assert broken == {}
    # What is known to be short of its promise is: one that is kept after all is promised from then on.
    assert all(row.broken for row in exact if net.known_db and row.variant.endswith("-int8"))
    assert len(found) >= 3


@pytest.mark.parametrize(
    ("variant", "sqnr_db", "metric", "says"),
    [
        ("onnx-fp32", 99.9, {"net_lost": 0}, ["99.9 dB, promised 100"]),
        ("onnx-fp32", None, {"net_lost": 0}, []),  # identical
        ("coreml-fp16", 49.0, {"net_lost": 0}, ["49.0 dB, promised 50"]),
        ("litert-int8", 27.9, {"net_lost": 3}, ["27.9 dB, promised 28", "3 items lost, promised 2"]),
        ("litert-int8", 28.0, {"net_lost": -3}, []),
        ("litert-int8", 40.0, None, ["None items lost, promised 2"]),
    ],
)
def test_a_promise_that_is_not_kept_is_named(
    variant: str, sqnr_db: float | None, metric: dict[str, int] | None, says: list[str]
) -> None:
    script = prove.benchmark("parity")
    assert script.broken(script.NETS[0], script.Row("resnet20", variant, sqnr_db, metric, 0.0, ())) == says


@pytest.mark.parametrize(
    ("variant", "sqnr_db", "broken", "known"),
    [
        ("onnx-int8", 24.5, ("24.5 dB, promised 28",), True),
        ("onnx-int8", 23.9, ("23.9 dB, promised 28",), False),
        ("onnx-fp16", 24.5, ("24.5 dB, promised 50",), False),
        ("onnx-int8", 24.5, ("24.5 dB, promised 28", "9 items lost, promised 5"), False),
        ("onnx-int8", None, ("it broke",), False),
    ],
)
def test_only_the_sqnr_that_is_known_to_be_short_is_let_through(
    variant: str, sqnr_db: float | None, broken: tuple[str, ...], known: bool
) -> None:
    script = prove.benchmark("parity")
    assert script.known(script.Row("squeezenet", variant, sqnr_db, None, 0.0, broken)) is known
    assert not script.known(script.Row("resnet20", variant, sqnr_db, None, 0.0, broken))


@pytest.mark.prove
@pytest.mark.shared
@pytest.mark.slow
def test_squeezenet_is_right_on_the_published_share_of_its_images() -> None:
    import numpy as np
    import torch

    module = test_examples.net("squeezenet")
    net, right = module.build(), 0
    items = [*module.data("calibrate"), *module.data("test")]
    for begin in range(0, 500, 50):
        images, labels = zip(*items[begin : begin + 50], strict=True)
        x = np.stack(images).astype(np.float32)[..., ::-1] - np.array([104, 117, 123], np.float32)
        with torch.no_grad():
            logits = net(torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))))
        right += int((logits.argmax(1).numpy() == np.array(labels)).sum())
    assert right == 303  # .606 of 500
