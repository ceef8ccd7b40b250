"""Why static int8 of MobileNetV2 stays near 22 dB: the noise of each quantized tensor, and what recipes make of it.

    python benchmarks/ptq_noise.py [--calibrate 40] [--judge 12]

Activations are quantized to 256 levels per tensor, as every runtime here does it, in torch; the weights of this file
lie on an int8 grid per channel, so they add nothing. A tensor's share is the error of the logits where it alone is
quantized. The recipes: ranges by extremes, by a percentile (Wu et al. 2020, arXiv:2004.09602) and by the least squared
error; channels of the residual streams, which are linear, equalized (Nagel et al. 2019, arXiv:1906.04721; behind ReLU6
that is no identity), with weights quantized again; and the noisiest tensors kept in float.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch
from torch.nn import functional as F

from edgecompress.techniques import _activation_ranges as ranges

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "mobilenetv2"))
import net as source

Net, Tensor = source.MobileNetV2, torch.Tensor
Tap = Callable[[str, Tensor], Tensor]  # (name, tensor) -> what goes on instead
Ranges = Mapping[str, ranges.Range]
NOISIEST, LARGEST = 6, 32.0  # tensors; the most that a channel is scaled by


def main() -> None:
    parser = figures.flags(__doc__)
    parser.add_argument("--calibrate", type=int, default=40)
    parser.add_argument("--judge", type=int, default=12)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        compare(source.build(), images("calibrate", asked.calibrate), images("test", asked.judge))


def images(split: str, count: int) -> Tensor:
    rows = [image for _, (image, _) in zip(range(count), source.data(split) or (), strict=False)]
    return torch.from_numpy(np.stack(rows).transpose(0, 3, 1, 2) / np.float32(127.5) - np.float32(1))


def compare(net: Net, seen: Tensor, judged: Tensor) -> None:
    golden = forward(net, judged, lambda _, x: x)

    def sqnr(changed: Net, found: Ranges, chosen: Callable[[str], bool]) -> float:
        made = forward(changed, judged, lambda name, x: rounded(x, found[name]) if chosen(name) else x)
        return float(10 * torch.log10(golden.square().sum() / (golden - made).square().sum()))

    found = calibrated(net, seen)
    alone = {name: sqnr(net, found["minmax"], name.__eq__) for name in found["minmax"]}
    noise = {name: 10 ** (-db / 10) for name, db in alone.items()}
    worst = sorted(noise, key=noise.__getitem__, reverse=True)
    print(f"{len(alone)} tensors; the sum of what each adds alone is {-10 * math.log10(sum(noise.values())):.1f} dB")
    for name in worst:
        print(f"  {name:12} {100 * noise[name] / sum(noise.values()):4.1f} %  {alone[name]:.1f} dB")
    for how, each in found.items():
        whole, rest = (sqnr(net, each, lambda n, left=left: n not in left) for left in ((), worst[:NOISIEST]))
        print(f"{how}: {whole:.1f} dB; the {NOISIEST} noisiest in float: {rest:.1f} dB")
    level = on_grid(equalized(net, seen))
    print(f"streams equalized: only weights {sqnr(level, found['minmax'], lambda _: False):.1f} dB")
    for how, each in calibrated(level, seen).items():
        print(f"streams equalized, {how}: {sqnr(level, each, lambda _: True):.1f} dB")


def forward(net: Net, x: Tensor, tap: Tap) -> Tensor:
    """The logits, every tensor that a runtime quantizes handed through `tap`."""
    x = tap("stem", F.relu6(net.stem(tap("input", x))))
    for i, block in enumerate(net.blocks):
        y = x if block.expand is None else tap(f"{i}.expand", F.relu6(block.expand(x)))
        y = tap(f"{i}.project", block.project(tap(f"{i}.dw", F.relu6(block.dw(y)))))
        x = tap(f"{i}.add", x + y) if block.residual else y
    x = tap("mean", tap("head", F.relu6(net.head(x))).mean(dim=(2, 3)))
    return tap("logits", net.classifier(x))


def rounded(x: Tensor, ends: ranges.Range) -> Tensor:
    low, high = min(ends[0], 0.0), max(ends[1], 0.0)
    step = (high - low) / 255
    zero = round(-low / step)
    return (torch.clamp(torch.round(x / step) + zero, 0, 255) - zero) * step


def calibrated(net: Net, seen: Tensor) -> dict[str, Ranges]:
    """The ranges by the project's own calibrators; the input and the logits keep their extremes."""
    low, high = extremes(net, seen)
    whole = {name: (float(low[name].min()), float(high[name].max())) for name in low}
    counts = dict[str, Any]()

    def count(name: str, x: Tensor) -> Tensor:
        reach = max(map(abs, whole[name]))
        counts[name] = counts.get(name, 0) + torch.histc(x, ranges.BINS, -reach, reach).numpy()
        return x

    for part in seen.split(10):
        forward(net, part, count)
    kept = {name: whole[name] for name in ("input", "logits")}
    cut = {
        how: {n: ranges.calibrated(how, c, whole[n], percentile) for n, c in counts.items()} | kept
        for how, percentile in (("percentile", 99.99), ("mse", 100.0))
    }
    return {"minmax": whole, **cut}


def extremes(net: Net, seen: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The lowest and the highest value of each channel of each tensor."""
    low, high = dict[str, Tensor](), dict[str, Tensor]()

    def see(name: str, x: Tensor) -> Tensor:
        axes = (0, 2, 3) if x.dim() == 4 else (0,)
        low[name] = torch.minimum(low.get(name, x.amin(axes)), x.amin(axes))
        high[name] = torch.maximum(high.get(name, x.amax(axes)), x.amax(axes))
        return x

    for part in seen.split(10):
        forward(net, part, see)
    return low, high


def equalized(net: Net, seen: Tensor) -> Net:
    """The same function, the channels of each residual stream scaled to one range; what reads them takes it back."""
    low, high = extremes(net, seen)
    net = copy.deepcopy(net)
    blocks, first = list(net.blocks), 0
    while first < len(blocks):
        end = next((i for i in range(first + 1, len(blocks)) if not blocks[i].residual), len(blocks))
        own = [n for i in range(first, end) for n in (f"{i}.project", f"{i}.add") if n in low]
        reach = torch.stack([torch.maximum(-low[n], high[n]) for n in own]).amax(0)
        scale = (reach.max() / reach).clamp(max=LARGEST)
        for block in blocks[first:end]:
            block.project.conv.weight.mul_(scale.reshape(-1, 1, 1, 1))
            block.project.conv.bias.mul_(scale)
        for reader in [*(b.expand for b in blocks[first + 1 : end + 1]), *([net.head] if end == len(blocks) else [])]:
            reader.conv.weight.div_(scale.reshape(1, -1, 1, 1))
        first = end
    return net


def on_grid(net: Net) -> Net:
    """The net with its weights rounded to int8 per channel."""
    for layer in net.modules():
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
            largest = layer.weight.flatten(1).abs().amax(1).clamp(min=1e-12)  # a dead channel has no weights
            step = largest.reshape(-1, *[1] * (layer.weight.dim() - 1)) / 127
            layer.weight.copy_(torch.round(layer.weight / step) * step)
    return net


if __name__ == "__main__":
    main()
