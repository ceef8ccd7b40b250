"""Whole layers of transformers that go by name or by what they change, and the net that is rebuilt without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.extras.hugging_face import nets
from edgecompress.formats import torch_module
from edgecompress.techniques import drop_layers

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 20}
IDLE = 2  # the layer that does least
LENGTH = 6
BATCH = Dim("batch", 1, 64)


def llama() -> Any:
    net = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, initializer_range=0.3))
    layer = net.model.layers[IDLE]
    for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
        last.weight.data *= 1e-3
    return net


def bert() -> Any:
    config = transformers.BertConfig(**SIZES, initializer_range=0.3, max_position_embeddings=8)
    return transformers.BertForSequenceClassification(config)


def request(tmp_path: Path, net: Any, task: str, **options: Any) -> Request:
    torch.manual_seed(0)
    for name in ("net", "module", "out"):
        (tmp_path / name).mkdir()
    net.eval().save_pretrained(tmp_path / "net")
    given = np.random.default_rng(0).integers(0, 20, (12, LENGTH))
    tensors.write_split(tmp_path / "samples" / "calibrate", {"input_ids": given})
    spec = TensorSpec("input_ids", (BATCH, LENGTH), "int64")
    samples = Artifact(tmp_path / "samples", "samples", (spec,), facts={"splits": {"calibrate": 12}}).write()
    nets.keep(tmp_path / "net", tmp_path / "module")
    reference = torch_module.PRETRAINED + task
    torch_module.write(nets.load(tmp_path / "net", task), tmp_path / "module", reference, [])
    sizes = (BATCH, LENGTH, 20) if task == "causal-lm" else (BATCH, 2)
    model = Artifact(tmp_path / "module", "module", (spec,), (TensorSpec("output", sizes),)).write()
    inputs = {"model": model, "samples": samples, "dense": model}
    return Request(inputs, tmp_path / "out", drop_layers.Options(**options), Context())


def answers(made: Artifact, ids: Any) -> Any:
    with torch.inference_mode():
        return torch_module.rebuild(made)(ids)


@pytest.mark.parametrize(("task", "make"), [("causal-lm", llama), ("text-classification", bert)])
def test_layers_that_are_named_go_and_the_net_is_rebuilt_without_them(tmp_path: Path, task: str, make: Any) -> None:
    torch.manual_seed(1)
    net = make()
    made = drop_layers.apply(request(tmp_path, net, task, layers=("*.1", "*.[3]")))
    stack = net.model.layers if task == "causal-lm" else net.bert.encoder.layer
    assert [name.rpartition(".")[2] for name in made.facts["dropped"]] == ["1", "3"]
    assert made.facts["parameters"]["after"] < made.facts["parameters"]["before"]
    assert made.facts["macs"]["after"] < made.facts["macs"]["source"]
    for i in (3, 1):
        del stack[i]
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    with torch.inference_mode():
        torch.testing.assert_close(answers(made, ids), net(ids).logits, atol=1e-4, rtol=1e-4)


def test_by_number_the_layer_that_does_least_goes_first(tmp_path: Path) -> None:
    torch.manual_seed(1)
    made = drop_layers.apply(request(tmp_path, llama(), "causal-lm", count=2))
    harms = made.facts["harm"]
    assert min(harms, key=harms.get) == next(iter(harms)) == f"net.model.layers.{IDLE}"
    assert {*made.facts["dropped"]} == {*harms}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layers": ("model.layers.9",)}, "no layer 'model.layers.9', did you mean 'net.model.layers"),
        ({"layers": ("layers.*",)}, "no layer of net.model.layers would be left"),
        ({"count": 3}, "at most 2 of the 4 layers go"),
    ],
)
def test_what_cannot_go_is_told(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        drop_layers.apply(request(tmp_path, llama(), "causal-lm", **options))
