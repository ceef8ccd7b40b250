"""24 nets as strangers bring them, with their data, made the same each time: a function each, by the net's name.

They were chosen before any of them was deployed, to be unlike what the project had tried.
Each trains for some steps where its outputs would otherwise tell nothing, and writes its file as its exporter does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

Array = Any  # numpy's
Tensor = torch.Tensor

SEEN, HIDDEN = 300, 64  # items that a deploy gets, and those that judge it
ITEMS = SEEN + HIDDEN


@dataclass(frozen=True)
class Made:
    """A model as the command line takes it. `items`: by input, no batch axis; `axes`: where that is, if not 0."""

    model: str
    items: Mapping[str, Array]
    labels: Array | None = None
    axes: Mapping[str, int | None] = field(default_factory=dict)


# --------------------------------------------------------------------------- data, training, export


def pictures(size: int, channels: int, classes: int = 6) -> tuple[Array, Array]:
    """Gratings of a direction per class under noise, [n, channels, size, size] about -2..2, and the classes."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, classes, ITEMS)
    angle, phase = labels * math.pi / classes, rng.uniform(0, 6.3, (ITEMS, channels, 1, 1))
    y, x = np.mgrid[:size, :size] / size
    waves = (np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y)[:, None] * rng.uniform(18, 24)
    x = np.sin(waves + phase) * rng.uniform(0.5, 1, (ITEMS, 1, 1, 1)) + rng.normal(0, 0.4, waves.shape)
    return x.astype(np.float32), labels


def tones(length: int, classes: int = 6) -> tuple[Array, Array]:
    """Tones of a pitch per class under noise, [n, length], and the classes."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, classes, ITEMS)
    pitch = 0.05 * 1.4**labels * rng.uniform(0.97, 1.03, ITEMS)
    x = np.sin(np.arange(length) * pitch[:, None] + rng.uniform(0, 6.3, (ITEMS, 1))) * rng.uniform(0.2, 1, (ITEMS, 1))
    return (x + rng.normal(0, 0.1, x.shape)).astype(np.float32), labels


def words(vocabulary: int, length: int, classes: int = 5) -> tuple[Array, Array]:
    """Ids from 1 on that a class favours, [n, length] int64, and the classes."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, classes, ITEMS)
    liked = 1 + (labels[:, None] + classes * rng.integers(0, vocabulary // classes - 1, (ITEMS, length)))
    return np.where(rng.random(liked.shape) < 0.5, liked, rng.integers(1, vocabulary, liked.shape)), labels


def trained(net: nn.Module, inputs: Sequence[Array], loss: Callable[[Any, Tensor], Tensor], steps: int = 60) -> Any:
    """The net in eval mode after some steps of Adam; `loss` gets its answer and the indices of the items."""
    rng, optimizer = np.random.default_rng(4), torch.optim.Adam(net.parameters(), 4e-3)
    tensors = [torch.from_numpy(x) for x in inputs]
    for _ in range(steps):
        chosen = torch.from_numpy(rng.integers(0, ITEMS, 48))
        optimizer.zero_grad()
        loss(net(*(t[chosen] for t in tensors)), chosen).backward()
        optimizer.step()
    return net.eval()


def onnx(
    net: Any, args: Sequence[Array], path: Path, names: tuple[str, str], opset: int, axes: Any = None, new: bool = False
) -> str:
    """Exported by TorchScript or, `new`, by dynamo; names of inputs and outputs parted by blanks."""
    dynamic: dict[str, Any] = {"dynamic_shapes": axes} if new else {"dynamic_axes": axes}
    tensors = tuple(torch.from_numpy(np.array(a, order="C")) for a in args)
    ends = {"input_names": names[0].split(), "output_names": names[1].split()}
    torch.onnx.export(net, tensors, str(path), **ends, opset_version=opset, dynamo=new, **dynamic)
    return str(path)


def pt2(net: nn.Module, args: Sequence[Array], path: Path, shapes: Any = None) -> str:
    program = torch.export.export(net, tuple(map(torch.from_numpy, args)), dynamic_shapes=shapes)
    torch.export.save(program, path)
    return str(path)


def entropy(labels: Array) -> Callable[[Any, Tensor], Tensor]:
    truth = torch.from_numpy(labels)
    return lambda out, i: F.cross_entropy(out[0] if isinstance(out, tuple) else out, truth[i])


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


# --------------------------------------------------------------------------- torch


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = conv(3, 12, 2), conv(12, 24, 2)
        self.kinds, self.quality = nn.Linear(24, 6), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.interpolate(F.pad(self.stem(x), (1, 0, 0, 1)), scale_factor=2.0, mode="nearest")
        x = self.body(x).mean(dim=(2, 3))
        return self.kinds(x), torch.sigmoid(self.quality(x)).squeeze(1)


def heads_opset9(folder: Path) -> Made:
    x, labels = pictures(24, 3)
    net = trained(Heads(), [x], entropy(labels))
    model = onnx(net, [x[:1]], folder / "heads.onnx", ("image", "logits quality"), 9)
    return Made(model, {"image": x}, labels)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([self.part(a, b) for a, b in ((1, 12), (12, 24), (24, 32), (56, 24), (36, 12))])
        self.end = nn.Conv2d(12, 1, 1)

    @staticmethod
    def part(a: int, b: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        one = self.parts[0](x)
        two = self.parts[1](F.max_pool2d(one, 2))
        x = self.parts[2](F.max_pool2d(two, 2))
        for skip, part in ((two, self.parts[3]), (one, self.parts[4])):
            x = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
            x = part(torch.cat([x, skip], 1))
        return self.end(x)


def unet_dynamic(folder: Path) -> Made:
    rng = np.random.default_rng(5)
    y, x = np.mgrid[:32, :32]
    where, wide = rng.uniform(8, 24, (2, ITEMS, 1, 1)), rng.uniform(4, 9, (ITEMS, 1, 1))
    mask = ((y - where[0]) ** 2 + (x - where[1]) ** 2 < wide**2)[:, None].astype(np.float32)
    image = (mask * rng.uniform(0.5, 1.5, (ITEMS, 1, 1, 1)) + rng.normal(0, 0.4, mask.shape)).astype(np.float32)
    net = trained(UNet(), [image], lambda out, i: F.binary_cross_entropy_with_logits(out, torch.from_numpy(mask)[i]))
    dim = torch.export.Dim
    axes = ({0: dim("batch"), 2: dim("height", min=8, max=512), 3: dim("width", min=8, max=512)},)
    return Made(onnx(net, [image[:2]], folder / "unet.onnx", ("image", "mask"), 18, axes, new=True), {"image": image})


class Snake(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(1, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(self.a * x).square() / (self.a + 1e-6)


class Tcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.stem = nn.Conv1d(1, 16, 16, 8)
        self.layers = nn.ModuleList([norm(nn.Conv1d(16, 16, 3, dilation=2**i)) for i in range(4)])
        self.acts = nn.ModuleList([Snake(16) if i % 2 else nn.GELU() for i in range(4)])
        self.end = nn.Linear(32, 6)

    def forward(self, audio: Tensor) -> Tensor:
        x = self.stem(audio)
        for i, (layer, act) in enumerate(zip(self.layers, self.acts, strict=True)):
            x = x + act(layer(F.pad(x, (2 ** (i + 1), 0))))
        return self.end(torch.cat([torch.sqrt(x.square().mean(2) + 1e-5), F.softplus(x).mean(2)], 1))


def tcn_snake(folder: Path) -> Made:
    x, labels = tones(2048)
    net = trained(Tcn(), [x[:, None]], entropy(labels), 100)
    return Made(pt2(net, [x[:1, None]], folder / "tcn.pt2"), {"audio": x[:, None]}, labels)


class Stream(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gru, self.end = nn.Conv1d(32, 48, 5), nn.GRU(48, 48, 2, batch_first=True), nn.Linear(48, 32)

    def forward(self, frame: Tensor, cache: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.cat([cache, frame.transpose(1, 2)], 2)
        y, state = self.gru(F.relu(self.conv(x)).transpose(1, 2), state)
        return torch.sigmoid(self.end(y)) * frame, x[:, :, 1:], state


def stream_gru(folder: Path) -> Made:
    rng, net = np.random.default_rng(6), Stream()
    loud = rng.uniform(-1, 1, (ITEMS, 12, 32)).cumsum(1).astype(np.float32)  # each band wanders
    noisy, slow = torch.from_numpy(loud), torch.from_numpy(loud * (loud.cumsum(1) > 0))

    def rolled(frames: Tensor, steps: int = 12) -> tuple[list[Tensor], list[Tensor]]:
        now, out = [torch.zeros(len(frames), 32, 4), torch.zeros(2, len(frames), 48)], []
        for t in range(steps):
            y, *now = net(frames[:, t : t + 1], *now)
            out.append(y)
        return out, now

    optimizer = torch.optim.Adam(net.parameters(), 4e-3)
    for _ in range(40):
        optimizer.zero_grad()
        F.mse_loss(torch.cat(rolled(noisy)[0], 1), slow).backward()
        optimizer.step()
    with torch.no_grad():
        cache, state = (t.numpy() for t in rolled(noisy, 11)[1])
    frame = noisy[:, 11:].numpy()
    names = ("frame cache state", "enhanced cache_out state_out")
    model = onnx(net.eval(), [frame[:1], cache[:1], state[:, :1]], folder / "stream.onnx", names, 13)
    return Made(model, {"frame": frame, "cache": cache, "state": state.swapaxes(0, 1)}, axes={"state": 1})


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.end = nn.LSTM(24, 40, batch_first=True), nn.Linear(40, 6)

    def forward(self, frames: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, state = self.lstm(frames, (h, c))
        return self.end(y), state


def lstm_nested(folder: Path) -> Made:
    x, labels = tones(240)
    frames, net, truth = x.reshape(ITEMS, 10, 24), Lstm(), torch.from_numpy(labels)
    h, c = np.random.default_rng(7).uniform(-0.7, 0.7, (2, ITEMS, 1, 40)).astype(np.float32)

    class Turned(nn.Module):  # items first, as `trained` draws them
        def forward(self, frames: Tensor, h: Tensor, c: Tensor) -> Tensor:
            return net(frames, h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous())[0]

    turned = Turned()
    turned.net = net
    trained(turned, [frames, h, c], lambda out, i: F.cross_entropy(out[:, -1], truth[i]))
    batch = torch.export.Dim("batch")
    args = [frames[:2], *(np.ascontiguousarray(s[:2].swapaxes(0, 1)) for s in (h, c))]
    model = pt2(net, args, folder / "lstm.pt2", ({0: batch}, {1: batch}, {1: batch}))
    return Made(model, {"frames": frames, "h": h, "c": c}, axes={"h": 1, "c": 1})


class Attention(nn.Module):
    """A block of a transformer; `past`: keys and values that are there already, [batch, heads, steps, 16]."""

    def __init__(self, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, bias: Tensor, past: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor, Tensor]:
        parts = self.qkv(self.one(x)).unflatten(2, (3, self.heads, 16)).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        if past:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        seen = torch.softmax(q @ k.transpose(2, 3) / 4 + bias, -1) @ v
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.two(x)), approximate="tanh")), k, v


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(60, 32), nn.Embedding(64, 32)
        self.layers, self.end = nn.ModuleList([Attention(), Attention()]), nn.Linear(32, 5)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        bias = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, bias)[0]
        kept = mask[:, :, None].float()
        return self.end((x * kept).sum(1) / kept.sum(1).clamp(min=1e-9)), x


def encoder_mask(folder: Path) -> Made:
    ids, labels = words(60, 16)
    mask = (np.arange(16) < np.random.default_rng(8).integers(5, 17, (ITEMS, 1))).astype(np.int64)
    ids = ids * mask
    net = trained(Encoder(), [ids, mask], entropy(labels), 100)
    batch, steps = torch.export.Dim("batch"), torch.export.Dim("steps", min=2, max=64)
    names = ("input_ids attention_mask", "pooled last_hidden_state")
    axes = ({0: batch, 1: steps}, {0: batch, 1: steps})
    model = onnx(net, [ids[:2], mask[:2]], folder / "encoder.onnx", names, 17, axes, new=True)
    return Made(model, {"input_ids": ids, "attention_mask": mask}, labels)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.end = nn.Embedding(40, 32), nn.Embedding(64, 32), nn.Linear(32, 40)
        self.layers = nn.ModuleList([Attention(), Attention()])

    def forward(self, ids: Tensor, mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        before = mask.shape[1] - ids.shape[1]
        later = torch.arange(mask.shape[1])[None, :] > torch.arange(ids.shape[1])[:, None] + before
        bias = torch.where(later[None, None] | (mask[:, None, None, :] == 0), -1e4, 0.0)
        x, present = self.words(ids) + self.places(torch.arange(ids.shape[1]) + before), list[Tensor]()
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, bias, past[2 * i : 2 * i + 2])
            present += [k, v]
        return self.end(x), *present


def kv_decoder(folder: Path) -> Made:
    rng = np.random.default_rng(9)
    ids = (rng.integers(0, 40, (ITEMS, 1)) + rng.integers(1, 4, (ITEMS, 1)) * np.arange(13)) % 40
    ids = np.where(rng.random(ids.shape) < 0.2, rng.integers(0, 40, ids.shape), ids)  # hardly two alike
    mask, net = np.ones_like(ids), Decoder()
    truth = torch.from_numpy(ids)
    trained(net, [ids, mask], lambda out, i: F.cross_entropy(out[0][:, 2:-1].flatten(0, 1), truth[i, 3:].flatten()))
    with torch.no_grad():
        past = [p.numpy() for p in net(truth[:, :12], torch.from_numpy(mask[:, :12]))[1:]]
    kinds = [f"{i}.{what}" for i in (0, 1) for what in ("key", "value")]
    items = {"input_ids": ids[:, 12:], "attention_mask": mask}
    items |= {f"past_key_values.{kind}": p for kind, p in zip(kinds, past, strict=True)}
    present = ["logits", *(f"present.{kind}" for kind in kinds)]
    axes = {name: {0: "batch_size"} for name in ("input_ids", "logits")}
    axes["attention_mask"] = {0: "batch_size", 1: "total_sequence_length"}
    axes |= {name: {0: "batch_size", 2: "past_sequence_length"} for name in items if "past" in name}
    axes |= {name: {0: "batch_size", 2: "total_sequence_length"} for name in present[1:]}
    args, names = [a[:2] for a in items.values()], (" ".join(items), " ".join(present))
    return Made(onnx(net, args, folder / "decoder_with_past_model.onnx", names, 14, axes), items)


LLAMA = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def build():
    torch.manual_seed(0)
    sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    config = LlamaConfig(**sizes, num_key_value_heads=2, initializer_range=0.15, max_position_embeddings=64)
    return LlamaForCausalLM(config).eval()
"""


def llama_cache(folder: Path) -> Made:
    (folder / "llama_net.py").write_text(LLAMA, encoding="utf-8")
    ids, _ = words(64, 12)
    return Made("llama_net:build", {"input_ids": ids, "attention_mask": np.ones_like(ids)})


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start, self.up = nn.Linear(32, 32 * 16), nn.ConvTranspose2d(32, 24, 3, 2, 1, output_padding=1)
        self.mid, self.end = nn.ConvTranspose2d(24, 16, 4, 2, 1), nn.Conv2d(16, 12, 3, 1, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(24), nn.BatchNorm2d(16)])

    def forward(self, z: Tensor) -> Tensor:
        x = F.mish(self.norms[0](self.up(F.leaky_relu(self.start(z), 0.2).view(-1, 32, 4, 4))))
        return torch.tanh(F.pixel_shuffle(self.end(F.mish(self.norms[1](self.mid(x)))), 2))


def generator(folder: Path) -> Made:
    z = np.random.default_rng(10).normal(size=(ITEMS, 32)).astype(np.float32)
    bases = torch.from_numpy(pictures(32, 3)[0])[:32] * 0.3
    truth = torch.tanh(torch.einsum("nk,kchw->nchw", torch.from_numpy(z), bases))
    net = trained(Generator(), [z], lambda out, i: F.mse_loss(out, truth[i]), 80)
    axes = {"z": {0: "N"}, "picture": {0: "N"}}
    return Made(onnx(net, [z[:2]], folder / "generator.onnx", ("z", "picture"), 11, axes), {"z": z})


class Embed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.end = nn.Sequential(conv(3, 16, 2), conv(16, 32, 2), conv(32, 48)), nn.Linear(48, 32)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(image).clamp(min=1e-6).pow(3).mean(dim=(2, 3)).pow(1 / 3)
        x = self.end(x)
        return F.normalize(x, dim=1), x.norm(dim=1, keepdim=True)


def embed_normalize(folder: Path) -> Made:
    x, labels = pictures(32, 3)
    truth, centres = torch.from_numpy(labels), F.normalize(torch.randn(6, 32), dim=1)
    net = trained(Embed(), [x], lambda out, i: F.cross_entropy(8 * out[0] @ centres.T, truth[i]))
    return Made(pt2(net, [x[:2]], folder / "embed.pt2", ({0: torch.export.Dim("batch")},)), {"image": x})


class Three(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.facts = nn.Sequential(conv(3, 12, 2), conv(12, 24, 2)), nn.Linear(7, 16)
        self.words, self.mix = nn.Embedding(30, 8), nn.Linear(24 + 16 + 8, 32)
        self.kind, self.price = nn.Linear(32, 6), nn.Linear(32, 1)

    def forward(self, photo: Tensor, facts: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.body(photo.permute(0, 3, 1, 2).float() / 127.5 - 1).mean(dim=(2, 3))
        parts = [seen, F.hardswish(self.facts(facts)), self.words(ids).mean(1)]
        x = F.relu(self.mix(torch.cat(parts, 1)))
        return torch.softmax(self.kind(x), 1), self.price(x)


def three_inputs(folder: Path) -> Made:
    x, labels = pictures(24, 3)
    photo = np.clip(x.transpose(0, 2, 3, 1) * 60 + 128, 0, 255).astype(np.uint8)
    facts = np.random.default_rng(11).normal(size=(ITEMS, 7)).astype(np.float32) * np.float32(3)
    ids, truth = words(30, 5)[0], torch.from_numpy(labels)
    price = torch.from_numpy(facts[:, :1] + facts[:, 1:2].clip(0) + ids[:, :1].astype(np.float32) / 10)

    def loss(out: Any, i: Tensor) -> Tensor:
        return F.nll_loss(torch.log(out[0] + 1e-6), truth[i]) + 0.1 * F.mse_loss(out[1], price[i])

    net, items = trained(Three(), [photo, facts, ids], loss, 100), {"photo": photo, "facts": facts, "ids": ids}
    axes = {name: {0: "batch"} for name in ("photo", "facts", "ids", "kind", "price")}
    names = ("photo facts ids", "kind price")
    return Made(onnx(net, [a[:2] for a in items.values()], folder / "three.onnx", names, 16, axes), items)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start, self.mid, self.end = (nn.Conv2d(a, b, 3, padding=1) for a, b in ((4, 24), (24, 24), (24, 4)))
        self.time, self.norm = nn.Linear(16, 24), nn.GroupNorm(4, 24)

    def forward(self, latent: Tensor, timestep: Tensor, guidance: Tensor) -> Tensor:
        waves = timestep.float() * torch.exp(-torch.arange(8).float())
        time = self.time(torch.cat([torch.sin(waves), torch.cos(waves)]))
        x = F.silu(self.norm(self.start(latent) + time[None, :, None, None]))
        return self.end(F.silu(self.mid(x))) * guidance


def denoiser_scalar(folder: Path) -> Made:
    rng, net = np.random.default_rng(12), Denoiser()
    noise, time = rng.normal(size=(ITEMS, 4, 8, 8)).astype(np.float32), rng.integers(0, 50, ITEMS)
    share = (time / 50)[:, None, None, None].astype(np.float32)
    latent = (np.float32(2) * pictures(8, 4)[0] * (1 - share) + noise * share).astype(np.float32)
    guidance, optimizer = np.full(ITEMS, 1.5, np.float32), torch.optim.Adam(net.parameters(), 4e-3)
    arrays = [torch.from_numpy(a) for a in (latent, time, guidance, noise)]
    for step in range(240):  # an item at a time, as the step has no axis
        optimizer.zero_grad()
        one = [a[step] for a in arrays]
        F.mse_loss(net(one[0][None], *one[1:3]), one[3][None]).backward()
        optimizer.step()
    args = [latent[:1], np.array(time[0]), np.array(guidance[0])]
    names = ("latent timestep guidance", "noise")
    model = onnx(net.eval(), args, folder / "denoiser.onnx", names, 18, new=True)
    items = {"latent": latent, "timestep": time, "guidance": guidance}
    return Made(model, items, axes={"timestep": None, "guidance": None})


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(1, 16, 9, 4), nn.Conv1d(16, 24, 5, 4)
        self.inner, self.outer, self.end = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 6)

    def forward(self, audio: Tensor) -> Tensor:
        if bool(audio.abs().mean() > 0.35):  # noqa: SIM108 - an If of the script
            audio = audio / audio.abs().max()
        else:
            audio = audio * 2.0
        x = torch.relu(self.two(torch.relu(self.one(audio))))
        state = torch.zeros(x.size(0), 24)
        for step in range(x.size(2)):
            state = torch.tanh(self.inner(state) + self.outer(x[:, :, step]))
        return self.end(state)


def script_if_loop(folder: Path) -> Made:
    x, labels = tones(320)
    net = trained(Scripted(), [x[:, None]], entropy(labels), 250)
    model = onnx(torch.jit.script(net), [x[:1, None]], folder / "scripted.onnx", ("audio", "scores"), 15)
    return Made(model, {"audio": x[:, None]}, labels)


# --------------------------------------------------------------------------- onnx.helper, in the manner of skl2onnx


def sklearn_file(path: Path, nodes: list[Any], outputs: list[Any]) -> str:
    import onnx as proto

    helper = proto.helper
    x = helper.make_tensor_value_info("X", proto.TensorProto.FLOAT, [None, 8])
    graph = helper.make_graph(nodes, "5f2a", [x], outputs)
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 15)]
    made = helper.make_model(graph, producer_name="skl2onnx", opset_imports=opsets, ir_version=8)
    proto.checker.check_model(made)
    proto.save(made, str(path))
    return str(path)


def table() -> tuple[Array, Array]:
    rng = np.random.default_rng(13)
    x = rng.normal(size=(ITEMS, 8)) * [1, 5, 0.2, 1, 30, 1, 2, 1] + [0, 20, 0, 3, 100, 0, 0, 1]
    return x.astype(np.float32), (x[:, 0] > 0) + 2 * (x[:, 4] + 6 * x[:, 1] > 220).astype(np.int64)


def forest_label(folder: Path) -> Made:
    from onnx import TensorProto, helper
    from sklearn.ensemble import RandomForestClassifier

    x, labels = table()
    mean, scale = x.mean(0), 1 / x.std(0)
    forest = RandomForestClassifier(12, max_depth=5, random_state=0).fit((x - mean) * scale, labels)
    columns = "treeids nodeids featureids values modes truenodeids falsenodeids missing_value_tracks_true hitrates"
    nodes: dict[str, list[Any]] = {name: [] for name in columns.split()}
    ends: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number, tree in enumerate(t.tree_ for t in forest.estimators_):
        for i in range(tree.node_count):
            leaf = tree.children_left[i] < 0
            kids = (0, 0) if leaf else (int(tree.children_left[i]), int(tree.children_right[i]))
            split = (0, 0.0, "LEAF") if leaf else (int(tree.feature[i]), float(tree.threshold[i]), "BRANCH_LEQ")
            for name, value in zip(nodes, (number, i, *split, *kids, 0, 1.0), strict=True):
                nodes[name].append(value)
            for kind in range(4) if leaf else ():
                share = float(tree.value[i, 0, kind] / tree.value[i, 0].sum() / len(forest.estimators_))
                for name, value in zip(ends, (number, i, kind, share), strict=True):
                    ends[name].append(value)
    attributes: dict[str, Any] = {f"nodes_{k}": v for k, v in nodes.items()}
    attributes |= {f"class_{k}": v for k, v in ends.items()}
    attributes |= {"classlabels_int64s": list(range(4)), "post_transform": "NONE"}
    names, domain = ["output_label", "output_probability"], "ai.onnx.ml"
    steps = [
        helper.make_node("Scaler", ["X"], ["variable"], name="Scaler", domain=domain, offset=mean, scale=scale),
        helper.make_node("TreeEnsembleClassifier", ["variable"], names, name="Trees", domain=domain, **attributes),
    ]
    kinds = ((TensorProto.INT64, [None]), (TensorProto.FLOAT, [None, 4]))
    outputs = [helper.make_tensor_value_info(n, *kind) for n, kind in zip(names, kinds, strict=True)]
    return Made(sklearn_file(folder / "forest.onnx", steps, outputs), {"X": x}, labels)


def logistic_zipmap(folder: Path) -> Made:
    from onnx import TensorProto, helper
    from sklearn.linear_model import LogisticRegression

    x, labels = table()
    net = LogisticRegression(max_iter=2000).fit(x, labels)
    kinds, domain = [f"kind-{i}" for i in range(4)], "ai.onnx.ml"
    weights = {"coefficients": net.coef_.ravel(), "intercepts": net.intercept_, "classlabels_strings": kinds}
    steps = [
        helper.make_node("LinearClassifier", ["X"], ["label", "p"], domain=domain, post_transform="SOFTMAX", **weights),
        helper.make_node("Normalizer", ["p"], ["probabilities"], domain=domain, norm="L1"),
        helper.make_node("Identity", ["label"], ["output_label"]),
        helper.make_node("ZipMap", ["probabilities"], ["output_probability"], domain=domain, classlabels_strings=kinds),
    ]
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.STRING, number))
    outputs = [helper.make_tensor_value_info("output_label", TensorProto.STRING, [None])]
    outputs += [helper.make_value_info("output_probability", maps)]
    return Made(sklearn_file(folder / "logistic.onnx", steps, outputs), {"X": x}, labels)


def qdq_source(folder: Path) -> Made:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    x, labels = pictures(24, 3)
    net = nn.Sequential(conv(3, 16, 2), conv(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 6))
    axes = {"image": {0: "batch"}, "scores": {0: "batch"}}
    onnx(trained(net, [x], entropy(labels)), [x[:2]], folder / "float.onnx", ("image", "scores"), 13, axes)
    quant_pre_process(folder / "float.onnx", folder / "ready.onnx")

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        items = iter(x[:100, None])

        def get_next(self) -> dict[str, Array] | None:
            item = next(self.items, None)
            return None if item is None else {"image": item}

    quantize_static(folder / "ready.onnx", folder / "qdq.onnx", Reader(), QuantFormat.QDQ, per_channel=True)
    return Made(str(folder / "qdq.onnx"), {"image": x}, labels)


# --------------------------------------------------------------------------- TensorFlow and Keras


def fitted(net: Any, x: Any, y: Any, loss: Any = "sparse_categorical_crossentropy") -> Any:
    import keras

    net.compile(keras.optimizers.Adam(0.01), loss)
    net.fit(x, y, epochs=10, batch_size=32, verbose=0)
    return net


def keras_pictures(end: str | None) -> tuple[Any, Array, Array]:
    """A small net for gratings NHWC, untrained."""
    from keras import layers, models

    x, labels = pictures(24, 3)
    first = layers.Conv2D(12, 3, 2, "same", activation="relu")
    body = [first, layers.DepthwiseConv2D(3, 1, "same"), layers.BatchNormalization(), layers.ReLU(6.0)]
    ends = [layers.GlobalAveragePooling2D(), layers.Dense(6, end)]
    return models.Sequential([layers.Input((24, 24, 3), name="picture"), *body, *ends]), x.transpose(0, 2, 3, 1), labels


def tf2onnx_nhwc(folder: Path) -> Made:
    import tensorflow as tf
    import tf2onnx
    from keras import layers, models

    x, labels = pictures(24, 3)
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    start = layers.Input((24, 24, 3))
    y = layers.Activation("swish")(layers.SeparableConv2D(24, 3, strides=2, padding="same")(start))
    y = layers.GlobalAveragePooling2D()(layers.BatchNormalization()(layers.Conv2D(24, 3, activation="relu")(y)))
    net = models.Model(start, [layers.Dense(6, "softmax")(y), layers.Dense(4, "tanh")(y)])
    other = np.tanh(np.random.default_rng(14).normal(size=(6, 4)))[labels]
    fitted(net, x, [labels, other], ["sparse_categorical_crossentropy", "mse"])
    spec = [tf.TensorSpec([None, 24, 24, 3], tf.float32, name="input_image")]
    run = tf.function(lambda input_image: net(input_image, training=False), input_signature=spec)
    tf2onnx.convert.from_function(run, spec, opset=13, output_path=str(folder / "net.onnx"))
    return Made(str(folder / "net.onnx"), {"input_image": x}, labels)


def keras2_h5(folder: Path) -> Made:
    net, x, labels = keras_pictures("softmax")
    fitted(net, x, labels).save(folder / "net.h5")
    return Made(str(folder / "net.h5"), {"picture": x}, labels)


def tf1_graph(x: Array, labels: Array, between: Callable[[Any], Any]) -> tuple[Any, dict[str, Any]]:
    """A session of TF 1 with a trained net and its ends by name; `between` goes after each layer."""
    import tensorflow as tf

    v1, rng = tf.compat.v1, np.random.default_rng(15)
    graph = tf.Graph()
    with graph.as_default():
        image, truth = v1.placeholder(tf.float32, [None, 24, 24, 3], "input"), v1.placeholder(tf.int64, [None])

        def weight(name: str, *shape: int) -> Any:
            start = rng.normal(0, (2 / np.prod(shape[:-1])) ** 0.5, shape).astype(np.float32)
            return v1.get_variable(name, initializer=start)

        y = image
        for i, (a, b) in enumerate(((3, 12), (12, 24))):
            with v1.name_scope(f"MobileNet/Conv2d_{i}"):
                y = tf.nn.conv2d(between(y), between(weight(f"w{i}", 3, 3, a, b)), 2, "SAME")
                y = tf.nn.relu6(y + v1.get_variable(f"b{i}", initializer=np.zeros(b, np.float32)))
        y = between(tf.reduce_mean(between(y), [1, 2]))
        logits = between(tf.matmul(y, between(weight("w", 24, 6)), name="MobileNet/Logits"))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(truth, logits))
        ends = {"image": image, "logits": logits, "classes": tf.argmax(logits, 1, name="classes")}
        ends |= {"scores": tf.nn.softmax(logits), "embedding": tf.nn.l2_normalize(tf.matmul(y, weight("e", 24, 8)), 1)}
        step, session = v1.train.AdamOptimizer(0.01).minimize(loss), v1.Session(graph=graph)
        session.run(v1.global_variables_initializer())
        for _ in range(60):
            chosen = rng.integers(0, ITEMS, 48)
            session.run(step, {image: x[chosen], truth: labels[chosen]})
    return session, ends


def tf1_savedmodel(folder: Path) -> Made:
    import tensorflow as tf

    x, labels = keras_pictures(None)[1:]
    session, ends = tf1_graph(x, labels, lambda y: y)
    outputs = {"logits": ends["logits"], "classes": ends["classes"]}
    with session.graph.as_default():
        save = tf.compat.v1.saved_model.simple_save
        save(session, str(folder / "saved"), {"image": ends["image"]}, outputs)
    return Made(str(folder / "saved"), {"image": x}, labels)


def keras3_multi(folder: Path) -> Made:
    from keras import layers, models

    x, labels = pictures(40, 3)
    x, facts = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), table()[0][:, :6]
    picture, row = layers.Input((40, 40, 3), name="picture"), layers.Input((6,), name="facts")
    y = layers.Conv2D(12, 3, 2, activation="gelu")(layers.Resizing(24, 24)(picture))
    y = layers.LayerNormalization()(layers.SeparableConv2D(24, 3, 2, activation="gelu")(y))
    z = layers.Dense(16, "relu")(layers.Normalization(mean=facts.mean(0), variance=facts.var(0))(row))
    y = layers.concatenate([layers.GlobalAveragePooling2D()(y), z])
    net = models.Model([picture, row], {"kind": layers.Dense(6, "softmax")(y), "size": layers.Dense(1)(y)})
    losses = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
    fitted(net, {"picture": x, "facts": facts}, {"kind": labels, "size": facts[:, :1]}, losses)
    net.save(folder / "net.keras")
    return Made(str(folder / "net.keras"), {"picture": x, "facts": facts})


def keras3_bigru(folder: Path) -> Made:
    from keras import layers, models

    ids = words(50, 14)[0].astype(np.int32)
    ids[np.arange(14) >= np.random.default_rng(16).integers(6, 15, (ITEMS, 1))] = 0
    start, table = layers.Input((None,), dtype="int32", name="ids"), layers.Embedding(50, 16, mask_zero=True)
    steps = layers.Bidirectional(layers.GRU(20, return_sequences=True))
    each = layers.TimeDistributed(layers.Dense(16, "relu"))
    net = models.Sequential([start, table, steps, each, layers.Dense(5, "softmax")])
    fitted(net, ids, ids % 5).save(folder / "tagger.keras")
    return Made(str(folder / "tagger.keras"), {"ids": ids})


def tflite_plain(folder: Path) -> Made:
    import tensorflow as tf

    x, labels = keras_pictures(None)[1:]
    session, ends = tf1_graph(x, labels, lambda y: y)
    converter = tf.compat.v1.lite.TFLiteConverter
    made = converter.from_session(session, [ends["image"]], [ends["scores"], ends["embedding"]]).convert()
    (folder / "plain.tflite").write_bytes(made)
    return Made(str(folder / "plain.tflite"), {"input": x}, labels)


def tflite_int8(folder: Path) -> Made:
    import tensorflow as tf
    from keras import layers, losses, models

    x, labels = pictures(24, 3)
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    start = layers.Input((24, 24, 3), name="picture")
    y = layers.DepthwiseConv2D(3, 1, "same")(layers.Conv2D(12, 3, 2, "same", activation="relu")(start))
    grown = layers.Conv2DTranspose(3, 4, 2, "same", name="shown")(layers.ReLU(6.0)(y))
    net = models.Model(start, [layers.Dense(6, name="kind")(layers.GlobalAveragePooling2D()(y)), grown])
    fitted(net, x, [labels, x], [losses.SparseCategoricalCrossentropy(from_logits=True), "mse"])
    converter = tf.lite.TFLiteConverter.from_keras_model(net)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([item[None]] for item in x[:100])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    (folder / "int8.tflite").write_bytes(converter.convert())
    return Made(*quantized(folder / "int8.tflite", x), labels)


def tflite_uint8(folder: Path) -> Made:
    import tensorflow as tf

    x, labels = keras_pictures(None)[1:]

    def fake(y: Any) -> Any:
        weight = y.shape[0] is not None
        low, high = ((-1.0, 1.0) if weight else (-4.0, 4.0)) if y.op.type != "Relu6" else (0.0, 6.0)
        return tf.quantization.fake_quant_with_min_max_args(y, low, high)

    session, ends = tf1_graph(x, labels, fake)
    converter = tf.compat.v1.lite.TFLiteConverter.from_session(session, [ends["image"]], [ends["logits"]])
    converter.inference_type, converter.quantized_input_stats = tf.uint8, {"input": (128, 32)}
    (folder / "uint8.tflite").write_bytes(converter.convert())
    return Made(*quantized(folder / "uint8.tflite", x), labels)


def quantized(path: Path, x: Array) -> tuple[str, dict[str, Array]]:
    """A file and its items as whole numbers, as its input takes them."""
    from ai_edge_litert.interpreter import Interpreter

    (end,) = Interpreter(str(path)).get_input_details()
    scale, zero = end["quantization"]
    info = np.iinfo(end["dtype"])
    return str(path), {end["name"]: np.clip(np.round(x / scale + zero), info.min, info.max).astype(end["dtype"])}


NETS = [name for name, made in globals().items() if getattr(made, "__annotations__", {}).get("return") == "Made"]


def build(name: str, folder: Path) -> Made:
    """A net by its name, in a folder."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if name.startswith(("tf", "keras")):  # the others do without TensorFlow
        import keras

        keras.utils.set_random_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    made: Made = globals()[name](folder)
    return made
