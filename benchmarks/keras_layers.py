"""What becomes of each layer of Keras in each engine: every class of keras.layers, on the planner's roads from a file.

    python benchmarks/keras_layers.py [--engines litert,coreml] [--only "^Conv"] [--work DIR] [-v] [--json FILE]

A sample is a net of one layer with random weights, saved as a .keras file: the layer with what it requires, and up to
two configurations of further arguments, each kept under which Keras itself still runs; of Activation, all that there
are. Outcomes, tables and flags are those of `operators.py`. The judge is Keras in float64, or in float32.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import operators

from edgecompress.core.errors import first_line
from edgecompress.engines.tensorflow import savedmodel

savedmodel.tensorflow()  # quiet, and the backend of Keras, which is imported after it
import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers as kl  # noqa: E402

ENGINES = ("litert", "coreml")
ITEMS = 3
LEFT = {
    "augmentation: it changes its input in training alone": "Random.*|AugMix|CutMix|MixUp|RandAugment",
    "code of another library or of the author's, which is not loaded": "Lambda|(Jax|Flax|TFSM)Layer|TorchModuleWrapper",
    "no layer of a graph": "Layer|Wrapper|InputLayer|InputSpec",
    "a cell, tried inside RNN": ".*Cells?",
    "it takes text": "StringLookup|TextVectorization",
    "it takes boxes with labels": "MaxNumBoundingBoxes",
}
REQUIRED: Mapping[str, Any] = {
    **dict.fromkeys(("rate", "scale", "stddev"), 0.5),
    **dict.fromkeys(("output_size", "pool_size", "num_heads", "num_key_value_heads"), 2),
    **dict.fromkeys(("kernel_size", "head_dim", "key_dim", "n"), 3),
    **dict.fromkeys(("filters", "num_query_heads"), 4),
    **dict.fromkeys(("height", "units"), 5),
    **dict.fromkeys(("input_dim", "output_dim", "num_bins", "width"), 7),
    "axes": 1,
    "dims": (2, 1),
    "target_shape": (-1, 2),
    "layer": lambda: kl.Dense(3),
    "layers": lambda: [kl.Rescaling(2.0), kl.Dense(3)],
}
OWN: Mapping[str, Mapping[str, Any]] = {  # arguments of one layer, where a default is none or does not run
    "Bidirectional": {"layer": lambda: kl.LSTM(3, return_sequences=True)},
    "RNN": {"cell": lambda: kl.LSTMCell(3)},
    "EinsumDense": {"equation": "abc,cd->abd", "output_shape": (None, 5)},
    "CategoryEncoding": {"num_tokens": 6},
    "Discretization": {"bin_boundaries": [-1.0, 0.0, 0.5]},
    "GroupNormalization": {"groups": 2},
    "IntegerLookup": {"vocabulary": [1, 3, 5]},
    "MelSpectrogram": {"fft_length": 64, "sequence_length": 64, "sequence_stride": 32, "num_mel_bins": 8},
    "STFTSpectrogram": {"frame_length": 16, "frame_step": 8, "fft_length": 32},
}
# Further arguments: the first that runs is taken, the last in the second round
TRUE = (
    "antialias crop_to_aspect_ratio expand_dims go_backwards invert keepdims mask_zero normalize pad_to_aspect_ratio "
    "reverse return_attention_scores return_sequences return_state unroll use_causal_mask use_gate use_scale"
)
HALF = "alpha epsilon logit_soft_cap max_value mean negative_slope offset threshold variance"
CHANGES: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(TRUE.split(), (True,)),
    **dict.fromkeys(HALF.split(), (0.5,)),
    **dict.fromkeys(["center", "reset_after", "scale", "tie_weights", "use_bias"], (False,)),
    **dict.fromkeys(["depth_multiplier", "dilation_rate", "strides"], (2,)),
    **dict.fromkeys(["attention_axes", "axis", "output_padding"], (1,)),
    "activation": ("gelu", "silu"),
    "bias_axes": ("d",),
    "cell": (lambda: kl.GRUCell(3), lambda: kl.StackedRNNCells([kl.LSTMCell(3), kl.SimpleRNNCell(4)])),
    "cropping": ((1, 2), ((1, 0), (2, 1)), 2),
    "data_format": ("channels_first",),
    "groups": (2, -1),
    "interpolation": ("nearest", "bicubic"),
    "layer": (lambda: kl.GRU(3), lambda: kl.Conv1D(4, 3)),
    "merge_mode": ("sum", None),
    "mode": ("magnitude", "real"),
    "output_mode": ("one_hot", "count", "multi_hot"),
    "padding": ("same", "causal", (1, 2), ((1, 0), (2, 1)), 2),
    "pool_size": (3,),
    "recurrent_activation": ("hard_sigmoid",),
    "score_mode": ("concat",),
    "shared_axes": ([1],),
    "size": (3, (3, 1), (1, 2, 3)),
    "value_dim": (4,),
    "window": ("hamming", None),
}
CALLED = ("use_causal_mask", "return_attention_scores", "reverse")  # of those, what a layer is called with
ACTIVATIONS = sorted(
    {f.__name__ for f in vars(keras.activations).values() if inspect.isfunction(f)}
    - {"get", "serialize", "deserialize"}
)
WHOLE = "Embedding|ReversibleEmbedding|CategoryEncoding|Hashing|HashedCrossing|IntegerLookup"
SHAPES = ((6,), (8, 4), (8, 8, 4), (6, 6, 6, 4), (3, 4, 4, 4, 4))
ODD = ((8, 8, 3), (1,), (96,), (96, 1))  # where none of those runs


class Sample(NamedTuple):
    """One layer with its arguments: those of its class, those that it is called with, and the shapes of its inputs."""

    word: str
    built: Mapping[str, Any]
    called: Mapping[str, Any]
    shape: tuple[int, ...]
    inputs: int
    listed: bool

    def net(self) -> Any:
        """The net, its weights random."""
        keras.utils.set_random_seed(0)
        made = {name: value() if callable(value) else value for name, value in self.built.items()}
        kind = "int32" if re.fullmatch(WHOLE, self.word) and not self.called.get("reverse") else None
        ends = [keras.Input(self.shape, name=f"x{i}", dtype=kind) for i in range(self.inputs)]
        answer = getattr(kl, self.word)(**made)(*([ends] if self.listed else ends), **self.called)
        net = keras.Model(ends, {f"y{i}": each for i, each in enumerate(keras.tree.flatten(answer))})
        drawn = np.random.default_rng(1)
        for weight in net.weights:
            if weight.dtype.startswith("float"):
                value = weight.numpy() + drawn.normal(size=weight.shape, scale=0.3)
                weight.assign(np.abs(value) + 0.2 if "variance" in weight.name else value)
        for layer in net.layers:  # one that keeps what it computes of its weights
            getattr(layer, "finalize_state", lambda: None)()
        return net

    def items(self) -> dict[str, Any]:
        """Its inputs."""
        drawn = np.random.default_rng(2)
        whole = re.fullmatch(WHOLE, self.word) and not self.called.get("reverse")
        shape = (ITEMS, *self.shape)
        given = [drawn.integers(0, 6, shape) if whole else drawn.normal(size=shape) for _ in range(self.inputs)]
        return {f"x{i}": x.astype(np.int32 if whole else np.float32) for i, x in enumerate(given)}

    def answers(self, dtype: str) -> dict[str, Any]:
        """What Keras answers. Raises ValueError where an item has no number of its own."""
        keras.config.set_floatx(dtype)
        try:
            net = self.net()
            given = {n: x.astype(dtype) if x.dtype == np.float32 else x for n, x in self.items().items()}
            first = {n: np.asarray(y) for n, y in net([*given.values()], training=False).items()}
            fewer = net([x[1:] for x in given.values()], training=False)
        finally:
            keras.config.set_floatx("float32")
        for name, value in first.items():
            alike = fewer[name].shape == value[1:].shape and np.allclose(fewer[name], value[1:], 1e-3, 1e-4)
            if not value.size or not np.isfinite(value).all() or not alike:
                raise ValueError(f"{self.word}: its answers are empty, infinite, random, or of all items together")
        return first

    def runs(self) -> bool:
        """Whether Keras itself does."""
        with contextlib.suppress(Exception):
            return bool(self.answers("float32"))
        return False


@cache
def layers() -> dict[str, str]:
    """The classes of keras.layers, each by its own name, with the reason why it is left out, or ""."""
    classes = {value: name for name, value in vars(kl).items() if inspect.isclass(value)}
    classes |= {value: name for name, value in vars(kl).items() if inspect.isclass(value) and value.__name__ == name}
    reasons = [(name, why) for name in classes.values() for why, names in LEFT.items() if re.fullmatch(names, name)]
    return dict.fromkeys(sorted(classes.values()), "") | dict(reasons)


@cache
def samples(word: str) -> dict[str, Sample]:
    """A layer's configurations, by the names of the samples."""
    if layers()[word]:
        return {f"{word}_0": Sample(word, {}, {}, (), 0, False)}
    parameters = inspect.signature(getattr(kl, word).__init__).parameters
    needed = {n: REQUIRED[n] for n, p in parameters.items() if p.default is p.empty and n in REQUIRED}
    built = {**needed, **OWN.get(word, {})}
    if word == "Activation":
        chosen = [Sample(word, {"activation": name}, {}, (8, 4), 1, False) for name in ACTIVATIONS]
    elif first := next(filter(None, (_running(word, built, shapes) for shapes in (SHAPES, ODD))), None):
        changes = [n for n in (*inspect.signature(getattr(kl, word).call).parameters, *parameters) if n in CHANGES]
        chosen = [first[0], *(_changed(first[turn % len(first)], changes, turn) for turn in (1, 2))]
    else:
        chosen = [Sample(word, built, {}, (), 0, False)]
    kept = [each for i, each in enumerate(chosen) if each not in chosen[:i]]
    return {f"{word}_{i}": each for i, each in enumerate(kept)}


def _running(word: str, built: Mapping[str, Any], shapes: Sequence[tuple[int, ...]]) -> list[Sample]:
    """A layer on the shapes that it takes: of one input, else of two in a list, else of two."""
    for inputs, listed in ((1, False), (2, True), (2, False)):
        if found := [s for shape in shapes if (s := Sample(word, built, {}, shape, inputs, listed)).runs()]:
            return found
    return []


def _changed(sample: Sample, changes: Sequence[str], turn: int) -> Sample:
    """The sample with every second argument changed, where it still runs."""
    for name in changes[turn % 2 :: 2]:
        field = "called" if name in CALLED else "built"
        tried = (
            sample._replace(**{field: {**getattr(sample, field), name: v}}) for v in CHANGES[name][:: (1, -1)[turn % 2]]
        )
        sample = next((each for each in tried if each.runs()), sample)
    return sample


def prepare(name: str, work: Path) -> dict[str, Any]:
    """One sample's file as a source, and the truth: Keras in float64."""
    word = name.rpartition("_")[0]
    sample = samples(word)[name]
    told = json.dumps({**sample.built, **sample.called, "input": sample.shape}, default=lambda value: str(value()))
    facts = {"word": word, "operator": word, "class": told, "left": "", "atens": [f"keras.{word.lower()}"]}
    if not sample.inputs or not sample.runs():
        return facts | {"left": layers()[word] or "Keras runs it with none of our inputs"}
    folder = work / "nets" / name
    shutil.rmtree(folder, ignore_errors=True)
    data = operators.kept_items(sample.items(), folder / "samples")
    answers = truth = sample.answers("float32")
    with contextlib.suppress(Exception):
        truth = sample.answers("float64")
    for who, values in (("truth", truth), ("torch", answers)):
        for n, value in values.items():
            np.save(folder / f"{who}-{n}.npy", value)
    sample.net().save(folder / "net.keras")
    try:
        path = {"path": str(folder / "net.keras")}
        source = operators.stage("runtimes.tensorflow:read", {"samples": data}, folder / "module", path)
        asked = {"splits": ["test"], "metric": "none"}
        operators.stage("stages.golden:run", {"model": source, "samples": data}, folder / "golden", asked)
    except Exception as error:
        says = first_line(error)
        says = says.replace(str(folder), "")  # which has the name of the layer
        outcome = "refused" if operators.named(error, says, facts) else "raw"
        return facts | {"outcome": outcome, "says": f"{type(error).__name__}: {says}"}
    return facts


if __name__ == "__main__":
    sys.exit(operators.main(operators.Nets(__doc__ or "", __file__, ENGINES, layers, samples, prepare)))
