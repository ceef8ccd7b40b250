"""A source whose axis 0 is not its batch is refused before anything is compared with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from edgecompress.core.errors import InputError
from edgecompress.stages import batch_axis

SEEDED = np.random.default_rng(3)
ITEMS = {"x": SEEDED.normal(size=(8, 5, 4)).astype("float32")}
WEIGHT = SEEDED.normal(size=(4, 3)).astype("float32")

Net = Callable[[np.ndarray], np.ndarray]


def check(net: Net, items: Mapping[str, np.ndarray] = ITEMS) -> None:
    def infer(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": net(inputs["x"])}

    batch_axis.check(infer, items, infer(items))


def quantized(x: np.ndarray) -> np.ndarray:
    """One scale for the whole batch, as dynamic quantization of an activation has."""
    scale = np.abs(x).max() / 127
    return np.round(x / scale).astype("int8").astype("float32") * scale @ WEIGHT


@pytest.mark.parametrize(
    "net",
    [
        lambda x: x @ WEIGHT,
        lambda x: (x @ WEIGHT).argmax(-1),
        lambda x: (x.astype("float16") @ WEIGHT.astype("float16")).sum(1),
        lambda x: np.full((len(x), 2), 0.3, "float32"),
        lambda x: np.where(x > 1, np.inf, x),
        quantized,
    ],
    ids=["float", "indices", "half", "constant", "infinite", "quantized by batch"],
)
def test_a_net_that_treats_items_alike_passes(net: Net) -> None:
    check(net)
    check(net, {"x": ITEMS["x"][:1]})


@pytest.mark.parametrize("items", [1, 8])
def test_a_net_gets_arrays_that_torch_takes(items: int) -> None:
    check(lambda x: x @ WEIGHT if min(x.strides) >= 0 else pytest.fail("a negative stride"), {"x": ITEMS["x"][:items]})


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (lambda x: (x @ WEIGHT).mean(0), r"\[5, 3\] for 8 items"),
        (lambda x: (x @ WEIGHT).mean((1, 2)).reshape(1, -1), r"\[1, 8\] for 8 items"),
        (lambda x: np.float32(x.mean()), r"\[\] for 8 items"),
        (lambda x: (x @ WEIGHT).reshape(-1, 3), r"\[40, 3\] for 8 items"),
    ],
    ids=["mean", "transposed", "a number", "flattened"],
)
def test_an_output_of_another_length_is_refused(net: Net, shape: str) -> None:
    with pytest.raises(InputError, match=f"output 'y' is {shape}: axis 0 must be theirs"):
        check(net)


def test_an_output_as_long_as_the_data_says_is_refused_with_what_to_do() -> None:
    x = np.array([[0.0, 1.0, 2.0]])
    with pytest.raises(
        InputError, match=r"'y' is \[2, 1\] for 1 item: axis 0 must be of length 1; .* by TopK or a Pad"
    ):
        batch_axis.check(lambda inputs: {"y": np.argwhere(inputs["x"][0])}, {"x": x}, {"y": np.argwhere(x[0])})


@pytest.mark.parametrize(
    "net",
    [
        lambda x: np.cumsum(x @ WEIGHT, axis=0),
        lambda x: (x.reshape(len(x), -1) @ x.reshape(len(x), -1).T).astype("float32"),
        lambda x: np.concatenate([x[:1], np.tanh(x[:-1] + x[1:])]),
        lambda x: x + np.arange(len(x), dtype="float32")[:, None, None],
    ],
    ids=["a state along time", "each item with each", "a neighbour", "a position"],
)
def test_a_net_whose_items_change_each_other_is_refused(net: Net) -> None:
    with pytest.raises(InputError, match="'y' for an item depends on the other items of the batch"):
        check(net)


def test_random_answers_are_told_as_such() -> None:
    with pytest.raises(InputError, match="'y' changes from run to run"):
        check(lambda x: x * SEEDED.integers(0, 2, x.shape))


def test_items_that_are_all_alike_tell_nothing_and_pass() -> None:
    check(lambda x: np.cumsum(x, axis=1), {"x": np.ones((8, 5, 4), "float32")})
