"""Torch nets for check.py, written down before `edgecompress check` knew arguments: a factory each, by the net's name.

Each takes what an engine may or may not take: an operator of the long tail, or a common one with a rare argument.
`data(name)` are its items. None is trained: what counts is whether an engine builds and runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

ITEMS = 24
VOCABULARY = 50


class Pools(nn.Module):
    """Vision: pools that round up, leave the rim out or are dilated; a frame that wraps around."""

    def __init__(self) -> None:
        super().__init__()
        self.wrap = nn.Conv2d(3, 16, 3, padding=1, padding_mode="circular")
        self.up = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.thin = nn.Conv2d(16, 16, 3, padding=2, dilation=2, groups=16)
        self.rim = nn.AvgPool2d(3, 2, padding=1, ceil_mode=True, count_include_pad=False)
        self.slope, self.end = nn.PReLU(16), nn.Linear(16 * 3 * 2, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = self.slope(self.thin(self.up(F.hardswish(self.wrap(image)))))
        x = F.max_pool2d(self.rim(x), 2, 1, dilation=2)
        return self.end(F.adaptive_avg_pool2d(x, (3, 2)).flatten(1))


class Spectrum(nn.Module):
    """Audio: a short-time Fourier transform in front of a convolutional net."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("mel", torch.rand(33, 20))
        self.body, self.end = nn.Conv1d(20, 24, 5, 2, padding=2, padding_mode="reflect"), nn.Linear(48, 4)

    def forward(self, wave: Tensor) -> Tensor:
        z = torch.stft(wave, 64, 32, window=self.window, return_complex=True)
        mel = torch.log1p(torch.matmul(z.abs().pow(2).transpose(1, 2), self.mel)).transpose(1, 2)
        x = F.glu(self.body(mel).repeat(1, 2, 1), 1)
        return self.end(torch.cat([x.mean(-1), x.std(-1, unbiased=False)], 1))


class Bags(nn.Module):
    """Text: bags of words, positions by cumulated masks, attention with a mask that is a number."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.words = nn.EmbeddingBag(VOCABULARY, 16, mode="mean"), nn.Embedding(VOCABULARY, 16, padding_idx=0)
        self.places, self.end = nn.Embedding(33, 16), nn.Linear(32, 4)

    def forward(self, ids: Tensor) -> Tensor:
        held = ids != 0
        x = self.words(ids) + self.places(torch.cumsum(held.long(), 1) * held.long())
        mask = torch.zeros_like(ids, dtype=x.dtype).masked_fill(~held, -1e4)[:, None]
        x = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        last = (held.long().sum(1) - 1).clamp(min=0)
        x = x.gather(1, last[:, None, None].expand(-1, 1, 16)).squeeze(1)
        return F.log_softmax(self.end(torch.cat([x, self.bag(ids)], 1)), -1)


class Boxes(nn.Module):
    """A detector's tail: boxes decoded, the best chosen and sorted, overlaps of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.SiLU())
        self.head = nn.Conv2d(16, 7, 1)
        y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        self.register_buffer("cells", torch.stack([x, y], -1).reshape(1, 64, 2))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.head(self.body(image)).flatten(2).transpose(1, 2)
        score, kind = x[..., 4:].sigmoid().max(-1)
        score, order = torch.topk(score, 12, dim=1)
        centre, size = self.cells + x[..., :2].tanh(), x[..., 2:4].clamp(-4, 4).exp()
        boxes = torch.cat([centre - size / 2, centre + size / 2], -1)
        boxes = torch.gather(boxes, 1, order[..., None].expand(-1, -1, 4))
        least = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
        most = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
        both = (most - least).clamp(min=0).prod(-1)
        area = (boxes[..., 2:] - boxes[..., :2]).prod(-1)
        overlap = both / (area[:, :, None] + area[:, None] - both)
        beaten = torch.triu(overlap, 1).amax(1) > 0.5
        return boxes, torch.where(beaten, 0.0, score), torch.gather(kind, 1, order).float()


class Warp(nn.Module):
    """A spatial transformer: an affine grid, sampled by cubics from a reflected frame and by the nearest pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.where, self.end = nn.Linear(3, 6), nn.Conv2d(12, 4, 1)

    def forward(self, image: Tensor) -> Tensor:
        theta = self.where(image.mean((2, 3))).tanh().view(-1, 2, 3)
        grid = F.affine_grid(theta, [image.shape[0], 3, 20, 20], align_corners=False)
        near = F.grid_sample(image, grid, "nearest", "border", align_corners=True)
        smooth = F.grid_sample(image, grid, "bicubic", "reflection", align_corners=False)
        whole = F.interpolate(image, (20, 20), mode="bicubic", align_corners=True, antialias=False)
        turned = torch.rot90(torch.roll(whole, (2, -3), (2, 3)), 1, (2, 3))
        return self.end(torch.cat([near, smooth, whole, turned.flip(3)], 1))


class Volume(nn.Module):
    """3-D: convolutions both ways, pools, a trilinear enlargement and a sampled grid."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm = nn.Conv3d(1, 8, 3, (1, 2, 2), 1), nn.InstanceNorm3d(8, affine=True)
        self.up, self.end = nn.ConvTranspose3d(8, 4, 2, 2), nn.Linear(4, 3)
        shift = torch.tensor([[[1.0, 0, 0, 0.1], [0, 0.9, 0, 0], [0, 0, 1.0, -0.1]]])
        self.register_buffer("grid", F.affine_grid(shift, [1, 1, 4, 8, 8], align_corners=False))

    def forward(self, voxels: Tensor) -> Tensor:
        x = F.max_pool3d(F.elu(self.norm(self.down(voxels))), (1, 2, 2), ceil_mode=True)
        x = F.interpolate(self.up(x), scale_factor=(1.0, 2.0, 2.0), mode="trilinear", align_corners=False)
        x = F.grid_sample(x, self.grid.expand(x.shape[0], -1, -1, -1, -1), align_corners=False)
        return self.end(F.adaptive_avg_pool3d(x, 1).flatten(1))


class Recurrent(nn.Module):
    """Recurrent both ways and of two layers, with a projection, and a plain one with ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTM(12, 16, num_layers=2, bidirectional=True, batch_first=True, proj_size=8)
        self.second = nn.GRU(16, 12, bidirectional=True, batch_first=True)
        self.third, self.end = nn.RNN(24, 10, nonlinearity="relu", batch_first=True), nn.Linear(10, 5)

    def forward(self, series: Tensor) -> Tensor:
        x, _ = self.first(series)
        x, last = self.second(x)
        x, _ = self.third(x * torch.cat([last[0], last[1]], -1).softmax(-1)[:, None])
        return self.end(torch.logsumexp(x, 1))


class Packed(nn.Module):
    """A recurrent net over a packed sequence, whose lengths are fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.end = nn.GRU(12, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, series: Tensor) -> Tensor:
        lengths = torch.full((series.shape[0],), 7, dtype=torch.long)
        packed = nn.utils.rnn.pack_padded_sequence(series, lengths, batch_first=True, enforce_sorted=False)
        x, _ = nn.utils.rnn.pad_packed_sequence(self.body(packed)[0], batch_first=True)
        return self.end(x.amax(1))


class Messages(nn.Module):
    """A graph net: nodes send along fixed edges; sums, the largest, and shares by segment."""

    def __init__(self) -> None:
        super().__init__()
        self.send, self.take, self.end = nn.Linear(8, 12), nn.Linear(20, 12), nn.Linear(24, 3)
        self.weight = nn.Parameter(torch.rand(2, 12, 12))
        edges = torch.from_numpy(np.random.default_rng(0).integers(0, 10, (2, 30)))
        self.register_buffer("source", edges[0])
        self.register_buffer("sink", edges[1])

    def forward(self, nodes: Tensor) -> Tensor:
        sent = F.leaky_relu(self.send(nodes)).index_select(1, self.source)
        zeros = sent.new_zeros(nodes.shape[0], 10, 12)
        total = zeros.index_add(1, self.sink, sent)
        at = self.sink[None, :, None].expand(nodes.shape[0], -1, 12)
        most = zeros.scatter_reduce(1, at, sent, "amax", include_self=False)
        x = self.take(torch.cat([nodes, total], -1))
        x = torch.einsum("bnd,kde,bme->bkn", x, self.weight, F.normalize(most, dim=-1)).flatten(1)
        return self.end(F.pad(x, (0, 4))[:, :24])


class Norms(nn.Module):
    """Norms of one's own: over groups, neighbours, squares and weights; a third power; cumulated ones."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 12, 3, padding=1, padding_mode="replicate"))
        self.groups, self.squares = nn.GroupNorm(3, 12), nn.RMSNorm(30)
        self.near, self.end = nn.LocalResponseNorm(3), nn.Linear(12, 4)

    def forward(self, series: Tensor) -> Tensor:
        x = self.near(self.squares(self.groups(self.body(series))))
        variance, mean = torch.var_mean(x, dim=2, keepdim=True, correction=1)
        x = (x - mean) * torch.rsqrt(variance + 1e-5)
        x = x / torch.linalg.vector_norm(x, ord=3, dim=1, keepdim=True).clamp(min=1e-3)
        rising = torch.cummax(x, 2).values + torch.logcumsumexp(x, 2)
        return self.end(F.softplus(rising, beta=2.0, threshold=10.0).mean(2))


class Codes(nn.Module):
    """Numbers that are not floats: bits of an integer, buckets, remainders, float64 in between."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("edges", torch.linspace(-2, 2, 9))
        self.kinds, self.end = nn.Embedding(16, 6), nn.Linear(14, 4)

    def forward(self, code: Tensor, value: Tensor) -> Tensor:
        low = torch.bitwise_and(code, 15)
        high = torch.remainder(torch.div(code, 16, rounding_mode="floor"), 16)
        bucket = torch.bucketize(value, self.edges)
        x = torch.cat([self.kinds(low).sum(1), self.kinds(bucket).mean(1)], -1)
        fine = (value.double() * 1e3).round() / 1e3
        own = torch.stack([fine.float().std(1), (high > 7).any(1).float() + (low.int() << 1).float().sum(1)], 1)
        return self.end(torch.cat([x, own], 1))


class Tails(nn.Module):
    """The mathematics of densities: error functions, gammas, logits, angles, numbers that are not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.end = nn.Linear(10, 16), nn.Linear(16, 3)

    def forward(self, row: Tensor) -> Tensor:
        x = self.body(row)
        rate = F.softplus(x) + 0.1
        x = torch.lgamma(rate) - torch.xlogy(rate - 1, rate) + torch.erf(x) * torch.special.ndtri(torch.sigmoid(x))
        x = torch.nan_to_num(x / (x - x.round()), 0.0, 10.0, -10.0).clamp(-5, 5)
        x = torch.atan2(x, rate) + torch.hypot(x, rate) + torch.special.expit(torch.sinc(x))
        return self.end(torch.copysign(torch.expm1(-x.abs()), x))


# --------------------------------------------------------------------------- written after, tried once


class Shuffled(nn.Module):
    """Vision of a mobile kind: groups shuffled, a gate by channels, windows of attention in six axes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.mix = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 16, 1, groups=4)
        self.gate, self.end = nn.Conv1d(1, 1, 3, padding=1, bias=False), nn.Linear(16, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = F.channel_shuffle(self.mix(F.mish(self.stem(image))), 4)
        x = x * self.gate(x.mean((2, 3))[:, None]).sigmoid().transpose(1, 2)[..., None]
        n, c, h, w = x.shape
        x = x.view(n, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
        x = x + torch.softmax(x @ x.mT / c**0.5, -1) @ x
        return self.end(x.reshape(n, -1, c).quantile(0.75, dim=1))


class Mixture(nn.Module):
    """Text: experts chosen by the two best scores, rotary places, a causal mask, RMS norms."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.route = nn.Embedding(VOCABULARY, 16), nn.RMSNorm(16), nn.Linear(16, 4)
        self.experts, self.end = nn.Parameter(torch.randn(4, 16, 16) * 0.2), nn.Linear(16, VOCABULARY)
        angle = torch.outer(torch.arange(10.0), 100.0 ** -(torch.arange(8) / 8))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.words(ids))
        a, b = x.chunk(2, -1)
        q = torch.cat([a * self.cos - b * self.sin, a * self.sin + b * self.cos], -1)[:, None]
        x = x + F.scaled_dot_product_attention(q, q, x[:, None], is_causal=True).squeeze(1)
        score, kind = self.route(x).topk(2, -1)
        share = torch.zeros_like(self.route(x)).scatter(-1, kind, score.softmax(-1))
        x = torch.einsum("bte,btd,edf->btf", share, x, self.experts)
        return self.end(F.gelu(x, approximate="tanh")[:, -1])


class Echo(nn.Module):
    """Audio: a filter by real and imaginary parts, a sliding norm, a transposed convolution, a long pad."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv1d(1, 8, 8, 4, 2), nn.ConvTranspose1d(8, 1, 8, 4, 2, output_padding=1)
        self.register_buffer("response", torch.exp(-torch.arange(65) / 9))

    def forward(self, wave: Tensor) -> Tensor:
        z = torch.fft.rfft(wave.unfold(-1, 128, 64), dim=-1) * self.response
        x = torch.fft.irfft(z, 128).flatten(1)
        x = F.local_response_norm(self.down(x[:, None]), 3)
        return self.up(F.pad(x, (3, 3), mode="replicate")).squeeze(1).cumsum(-1)


class Regions(nn.Module):
    """A detector's pools: regions of fixed places, a bilinear lookup, non-zero counts, an argsort, dropped rows."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.score, self.end = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 1, 1), nn.Linear(8, 4)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu6(self.body(image))
        score = self.score(x).flatten(1)
        order = torch.argsort(score, 1, descending=True)[:, :6]
        at = torch.stack([order % 16, order // 16], -1).float() / 7.5 - 1
        taken = F.grid_sample(x, at[:, None], mode="bilinear", padding_mode="zeros", align_corners=True)
        most, count = F.max_pool2d(x, 2, return_indices=True)[0], torch.count_nonzero(x > 1, (1, 2, 3))
        best = F.interpolate(most, scale_factor=1.5, mode="nearest").amax((2, 3))
        return self.end(taken.squeeze(2).transpose(1, 2) + best[:, None]), count[:, None]


class States(nn.Module):
    """A model of states: a scan over time by hand, products that cumulate, a triangular solve, a trace."""

    def __init__(self) -> None:
        super().__init__()
        self.take, self.end = nn.Linear(6, 8), nn.Linear(9, 3)
        self.mix = nn.Parameter(torch.eye(8) + 0.1 * torch.randn(8, 8).tril())

    def forward(self, series: Tensor) -> Tensor:
        x = self.take(series)
        state, keep = x[:, 0], torch.cumprod(torch.sigmoid(x), 1)
        for step in range(1, 7):
            state = torch.addcmul(x[:, step], state, keep[:, step], value=0.5)
        state = torch.linalg.solve_triangular(self.mix, state[..., None], upper=False).squeeze(-1)
        square = torch.matmul(x.mT, x)
        return self.end(torch.cat([state, square.diagonal(dim1=1, dim2=2).sum(-1, keepdim=True)], 1))


class Frames(nn.Module):
    """Video: volumes pooled over time, differences of frames, a median, a half-precision product, a fold."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = nn.Conv3d(3, 8, (3, 3, 3), (1, 2, 2), (1, 1, 1)), nn.BatchNorm3d(8)
        self.end = nn.Linear(8 * 4, 3)

    def forward(self, frames: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm(self.body(torch.diff(frames, dim=2))))
        x = F.avg_pool3d(x, (2, 2, 2), (2, 2, 2), ceil_mode=True).median(2).values
        x = F.fold(F.unfold(x, 2, stride=2), (4, 4), 2, stride=2)
        return self.end(F.adaptive_max_pool2d(x, 2).flatten(1))


class Squeeze(nn.Module):
    """Ordinary. Vision: inverted residuals with squeeze and excitation, hard swishes and hard sigmoids."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish())
        self.wide = nn.Sequential(nn.Conv2d(16, 48, 1, bias=False), nn.BatchNorm2d(48), nn.Hardswish())
        self.deep = nn.Sequential(nn.Conv2d(48, 48, 5, 1, 2, groups=48, bias=False), nn.BatchNorm2d(48), nn.Hardswish())
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(48, 12, 1), nn.ReLU(), nn.Conv2d(12, 48, 1), nn.Hardsigmoid()
        )
        self.thin = nn.Sequential(nn.Conv2d(48, 16, 1, bias=False), nn.BatchNorm2d(16))
        self.drop, self.end = nn.Dropout(0.2), nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        y = self.deep(self.wide(x))
        x = x + self.thin(y * self.gate(y))
        return self.end(self.drop(F.adaptive_avg_pool2d(x, 1).flatten(1)))


class Enlarge(nn.Module):
    """Ordinary. Super-resolution: residual convolutions, pixels shuffled, a bilinear enlargement added."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 12, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))

    def forward(self, image: Tensor) -> Tensor:
        x = F.relu(self.first(image))
        x = F.pixel_shuffle(self.last(x + self.body(x)), 2)
        return x + F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)


class Spotter(nn.Module):
    """Ordinary. Keywords: causal separable convolutions over time, dilated, with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(20, 24, 1)
        self.deep = nn.ModuleList(nn.Conv1d(24, 24, 3, dilation=d, groups=24) for d in (1, 2, 4))
        self.wide = nn.ModuleList(nn.Sequential(nn.Conv1d(24, 24, 1), nn.BatchNorm1d(24)) for _ in range(3))
        self.end = nn.Linear(24, 6)

    def forward(self, mel: Tensor) -> Tensor:
        x = F.relu(self.stem(mel))
        for step, (deep, wide) in enumerate(zip(self.deep, self.wide, strict=True)):
            x = F.relu(x + wide(deep(F.pad(x, (2 * 2**step, 0)))))
        return self.end(x.mean(-1)).softmax(-1)


class Segment(nn.Module):
    """Ordinary. Segmentation: a net down and up again, with pools, transposed convolutions and skips."""

    def __init__(self) -> None:
        super().__init__()

        def block(given: int, made: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU())

        self.one, self.two, self.three = block(3, 8), block(8, 16), block(16, 24)
        self.up, self.over = nn.ConvTranspose2d(24, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.four, self.five, self.end = block(32, 16), block(16, 8), nn.Conv2d(8, 4, 1)

    def forward(self, image: Tensor) -> Tensor:
        one = self.one(image)
        two = self.two(F.max_pool2d(one, 2))
        x = self.three(F.max_pool2d(two, 2))
        x = self.four(torch.cat([self.up(x), two], 1))
        return self.end(self.five(torch.cat([self.over(x), one], 1))).softmax(1)


class Patches(nn.Module):
    """Ordinary. A vision transformer: patches, a class token, two layers of attention with four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.places = nn.Conv2d(3, 32, 8, 8), nn.Parameter(torch.randn(1, 17, 32) * 0.02)
        self.token, self.last = nn.Parameter(torch.randn(1, 1, 32) * 0.02), nn.LayerNorm(32)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))
        self.triples = nn.ModuleList(nn.Linear(32, 96) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.feeds = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))
        self.end = nn.Linear(32, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image).flatten(2).transpose(1, 2)
        n = x.shape[0]
        x = torch.cat([self.token.expand(n, -1, -1), x], 1) + self.places
        for layer in range(2):
            q, k, v = self.triples[layer](self.norms[2 * layer](x)).chunk(3, -1)
            q, k, v = (y.reshape(n, 17, 4, 8).transpose(1, 2) for y in (q, k, v))
            y = torch.softmax(q @ k.transpose(-2, -1) * 8**-0.5, -1) @ v
            x = x + self.outs[layer](y.transpose(1, 2).reshape(n, 17, 32))
            x = x + self.feeds[layer](self.norms[2 * layer + 1](x))
        return self.end(self.last(x)[:, 0])


# --------------------------------------------------------------------------- rare


class Depth(nn.Module):
    """Depth: standardised weights, group norms, aligned corners, bicubics of a free size, a scale by the range."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.skip = nn.Parameter(torch.randn(16, 3, 5, 5) * 0.1), nn.Conv2d(48, 16, 1)
        self.down, self.deep = nn.Parameter(torch.randn(24, 16, 3, 3) * 0.1), nn.Conv2d(24, 16, 3, padding=1)
        self.one, self.two, self.end = nn.GroupNorm(4, 16), nn.GroupNorm(6, 24), nn.Conv2d(16, 1, 3)

    @staticmethod
    def standard(weight: Tensor) -> Tensor:
        variance, mean = torch.var_mean(weight, (1, 2, 3), keepdim=True, unbiased=False)
        return (weight - mean) * torch.rsqrt(variance * weight[0].numel() + 1e-6)

    def forward(self, image: Tensor) -> Tensor:
        x = F.elu(self.one(F.conv2d(image, self.standard(self.stem), stride=2, padding=2)))
        y = F.elu(self.two(F.conv2d(x, self.standard(self.down), stride=2, padding=1)))
        y = F.interpolate(self.deep(y), size=x.shape[2:], mode="bilinear", align_corners=True)
        x = x + y + F.interpolate(self.skip(F.pixel_unshuffle(image, 4)), scale_factor=2.0, mode="nearest-exact")
        x = F.interpolate(self.end(F.pad(x, (1, 1, 1, 1), mode="reflect")), (50, 70), mode="bicubic")
        x = torch.reciprocal(F.softplus(x) + 0.05)
        least, most = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
        return ((x - least) / (most - least + 1e-6)).squeeze(1)


class Windows(nn.Module):
    """Vision: shifted windows of attention by cosines, biases looked up by relative places, patches merged."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.triple, self.out = nn.Conv2d(3, 16, 4, 4), nn.Linear(16, 48), nn.Linear(16, 16)
        self.scale, self.bias = nn.Parameter(torch.full((2, 1, 1), 2.3)), nn.Parameter(torch.randn(49, 2) * 0.1)
        self.norm, self.merge = nn.LayerNorm(16), nn.Linear(64, 24, bias=False)
        self.wide, self.end = nn.LayerNorm(64), nn.Linear(24, 5)
        at = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None] + 3
        self.register_buffer("apart", apart[0] * 7 + apart[1])
        part = torch.bucketize(torch.arange(8), torch.tensor([4, 6]), right=True)
        part = self.cut((part[:, None] * 3 + part)[None, :, :, None]).squeeze(-1)
        self.register_buffer("mask", (part[:, None] != part[:, :, None]).float() * -100)

    @staticmethod
    def cut(x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        return x.view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image).permute(0, 2, 3, 1)
        n, h, w, c = x.shape
        y = self.cut(torch.roll(x, shifts=(-2, -2), dims=(1, 2)))
        q, k, v = self.triple(y).reshape(-1, 16, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.scale.clamp(max=4.6).exp()
        y = y + self.bias[self.apart].permute(2, 0, 1)
        y = (y.view(n, 4, 2, 16, 16) + self.mask[None, :, None]).view(-1, 2, 16, 16)
        y = self.out((y.softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c))
        y = y.view(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        x = x + self.norm(torch.roll(y, shifts=(2, 2), dims=(1, 2)))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.end(self.merge(self.wide(x)).mean((1, 2)))


class Decoder(nn.Module):
    """Text: a language model's layer; interleaved rotary places, shared keys, a mask of infinities, capped scores."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.scale = nn.Embedding(VOCABULARY, 32), nn.Parameter(torch.ones(3, 32))
        self.query, self.pair = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
        self.out, self.feed = nn.Linear(32, 32, bias=False), nn.Linear(32, 128, bias=False)
        self.back = nn.Linear(64, 32, bias=False)
        self.register_buffer("turn", 10000.0 ** -(torch.arange(0, 8, 2) / 8), persistent=False)

    def norm(self, x: Tensor, which: int) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale[which]

    def rotate(self, x: Tensor) -> Tensor:
        angle = torch.outer(torch.arange(x.shape[2], device=x.device, dtype=x.dtype), self.turn)
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1).flatten(-2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) * 32**0.5
        n, t = ids.shape
        y = self.norm(x, 0)
        q = self.rotate(self.query(y).view(n, t, 4, 8).transpose(1, 2))
        k, v = self.pair(y).view(n, t, 2, 2, 8).permute(3, 0, 2, 1, 4).unbind(0)
        k, v = self.rotate(k).repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        mask = torch.full((t, t), float("-inf"), device=x.device).triu(1)
        score = 20 * torch.tanh(q @ k.mT * 8**-0.5 / 20)
        y = torch.softmax(score.masked_fill((ids == 0)[:, None, None], -1e9) + mask, -1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(n, t, 32))
        gate, up = self.feed(self.norm(x, 1)).split(64, -1)
        x = self.norm(x + self.back(F.silu(gate) * up), 2)
        return F.linear(x, self.words.weight)


class Pose(nn.Module):
    """Pose: joints where the map's mass lies and where it peaks, offsets gathered there, angles of the bones."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.SELU(), nn.Conv2d(16, 24, 3, 1, 1), nn.SELU())
        self.maps, self.shifts = nn.Conv2d(24, 6, 1), nn.Conv2d(24, 12, 1)
        self.sharp = nn.Parameter(torch.tensor(4.0))
        self.register_buffer("line", torch.linspace(0, 1, 16))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.body(image)
        maps = self.maps(x)
        n, joints, h, w = maps.shape
        share = torch.softmax(maps.flatten(2) * self.sharp, -1).view(n, joints, h, w)
        soft = torch.stack([share.sum(2) @ self.line, torch.einsum("njhw,h->nj", share, self.line)], -1)
        best, at = maps.flatten(2).max(-1)
        hard = torch.stack([torch.fmod(at, w), torch.div(at, w, rounding_mode="trunc")], -1).to(x.dtype)
        shifts = self.shifts(x).view(n, joints, 2, h * w)
        shift = torch.take_along_dim(shifts, at[..., None, None], -1).squeeze(-1)
        points = torch.where(best.sigmoid()[..., None] > 0.4, (hard + shift) / (w - 1), soft)
        bones = F.normalize(soft[:, 1:] - soft[:, :-1], dim=-1, eps=1e-6)
        bend = F.cosine_similarity(bones[:, 1:], bones[:, :-1], dim=-1).clamp(-0.999, 0.999).acos()
        return points, soft, bend


class Codec(nn.Module):
    """Audio: a codec; weights normalised, snakes for activations, residual codes by the nearest of a book."""

    def __init__(self) -> None:
        super().__init__()
        weight_norm = nn.utils.parametrizations.weight_norm
        self.first, self.down = weight_norm(nn.Conv1d(1, 8, 7)), weight_norm(nn.Conv1d(8, 16, 8, 4, 2))
        self.up = weight_norm(nn.ConvTranspose1d(16, 8, 8, 4, 2))
        self.last = weight_norm(nn.Conv1d(8, 1, 7, padding="same", dilation=3))
        self.one, self.two = nn.Parameter(torch.rand(1, 8, 1) + 0.5), nn.Parameter(torch.rand(1, 8, 1) + 0.5)
        self.books = nn.ParameterList(torch.randn(32, 16) * 0.3 for _ in range(2))

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        x = self.first(F.pad(wave[:, None], (6, 0), mode="reflect"))
        x = self.down(x + torch.sin(self.one * x).square() / (self.one + 1e-9)).transpose(1, 2)
        total, codes = torch.zeros_like(x), []
        for book in self.books:
            code = torch.cdist(x - total, book[None]).argmin(-1)
            total = total + F.embedding(code, book)
            codes.append(code)
        x = self.up(total.transpose(1, 2))
        x = self.last(x + torch.sin(self.two * x).square() / (self.two + 1e-9))
        return torch.tanh(x).squeeze(1), torch.stack(codes, 1)


class Streaming(nn.Module):
    """Speech: a recogniser's step, whose states come in and go out; energies normalised by powers, cells in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.cell, self.gated = nn.Conv1d(20, 24, 3, 2), nn.LSTMCell(24, 24), nn.GRUCell(24, 24)
        self.root, self.norm, self.end = nn.Parameter(torch.full((20, 1), 0.5)), nn.LayerNorm(24), nn.Linear(24, 12)

    def forward(
        self, chunk: Tensor, past: Tensor, hidden: Tensor, cell: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        energy = torch.exp2(torch.cat([past, chunk], -1))
        smooth = [energy[..., 0]]
        for step in range(1, energy.shape[-1]):
            smooth.append(torch.lerp(smooth[-1], energy[..., step], 0.25))
        gain = torch.pow(torch.stack(smooth, -1) + 1e-6, -0.98)
        x = torch.pow(energy * gain + 2.0, self.root) - torch.pow(torch.tensor(2.0), self.root)
        x, rows = F.hardtanh(self.body(x), 0.0, 6.0), []
        for step in x.unbind(-1):
            hidden, cell = self.cell(step, (hidden, cell))
            other = self.gated(hidden, other)
            rows.append(self.norm(other))
        scores = F.log_softmax(self.end(torch.stack(rows, 1)), -1)
        return scores, chunk[..., -3:], hidden, cell, other


class Flow(nn.Module):
    """Optical flow: two frames compared at shifts, one warped to the other, a flow enlarged by shares of neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.eye = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3, padding_mode="reflect"), nn.InstanceNorm2d(16), nn.LeakyReLU(0.1),
            nn.Conv2d(16, 16, 3, 2, 1), nn.InstanceNorm2d(16),
        )  # fmt: skip
        self.move, self.better, self.share = nn.Conv2d(25, 2, 1), nn.Conv2d(34, 2, 3, padding=1), nn.Conv2d(34, 144, 1)
        y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        self.register_buffer("cells", torch.stack([x, y])[None])

    def forward(self, before: Tensor, after: Tensor) -> Tensor:
        one, two = self.eye(torch.cat([before, after])).tensor_split(2)
        n, c, h, w = one.shape
        around = F.pad(two, (2, 2, 2, 2)).unfold(2, h, 1).unfold(3, w, 1)
        cost = torch.einsum("nchw,ncyxhw->nyxhw", one, around).reshape(n, 25, h, w) / c
        flow = self.move(F.leaky_relu(cost, 0.1))
        at = (self.cells + flow).permute(0, 2, 3, 1) * (2 / 7) - 1
        held = ((at > -1) & (at < 1)).all(-1, keepdim=True).permute(0, 3, 1, 2)
        warped = F.grid_sample(two, at, mode="bilinear", padding_mode="zeros", align_corners=True)
        x = torch.cat([one, warped.masked_fill(~held, 0.0), flow], 1)
        flow = flow + self.better(x)
        share = self.share(x).view(n, 1, 9, 4, 4, h, w).softmax(2)
        near = F.unfold(4 * flow, (3, 3), padding=1).view(n, 2, 9, 1, 1, h, w)
        return (share * near).sum(2).permute(0, 1, 4, 2, 5, 3).reshape(n, 2, 4 * h, 4 * w)


def picture(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.normal(size=(ITEMS, *shape)).astype(np.float32)


def numbers(most: int, kind: str, *shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.integers(0, most, (ITEMS, *shape)).astype(kind)


NETS: Mapping[str, tuple[type[nn.Module], Mapping[str, Callable[[Any], Any]]]] = {
    "pools": (Pools, {"image": picture(3, 37, 33)}),
    "spectrum": (Spectrum, {"wave": picture(640)}),
    "bags": (Bags, {"ids": numbers(VOCABULARY, "int64", 14)}),
    "boxes": (Boxes, {"image": picture(3, 32, 32)}),
    "warp": (Warp, {"image": picture(3, 24, 28)}),
    "volume": (Volume, {"voxels": picture(1, 8, 16, 16)}),
    "recurrent": (Recurrent, {"series": picture(9, 12)}),
    "packed": (Packed, {"series": picture(9, 12)}),
    "messages": (Messages, {"nodes": picture(10, 8)}),
    "norms": (Norms, {"series": picture(8, 30)}),
    "codes": (Codes, {"code": numbers(256, "int32", 5), "value": picture(12)}),
    "tails": (Tails, {"row": picture(10)}),
    "shuffled": (Shuffled, {"image": picture(3, 32, 32)}),
    "mixture": (Mixture, {"ids": numbers(VOCABULARY, "int64", 10)}),
    "echo": (Echo, {"wave": picture(512)}),
    "regions": (Regions, {"image": picture(3, 32, 32)}),
    "states": (States, {"series": picture(7, 6)}),
    "frames": (Frames, {"frames": picture(3, 5, 16, 16)}),
    "squeeze": (Squeeze, {"image": picture(3, 32, 32)}),
    "enlarge": (Enlarge, {"image": picture(3, 24, 24)}),
    "spotter": (Spotter, {"mel": picture(20, 40)}),
    "segment": (Segment, {"image": picture(3, 32, 32)}),
    "patches": (Patches, {"image": picture(3, 32, 32)}),
    "depth": (Depth, {"image": picture(3, 40, 56)}),
    "windows": (Windows, {"image": picture(3, 32, 32)}),
    "decoder": (Decoder, {"ids": numbers(VOCABULARY, "int64", 12)}),
    "pose": (Pose, {"image": picture(3, 32, 32)}),
    "codec": (Codec, {"wave": picture(320)}),
    "streaming": (
        Streaming,
        {"chunk": picture(20, 8), "past": picture(20, 3)} | {each: picture(24) for each in ("hidden", "cell", "other")},
    ),
    "flow": (Flow, {"before": picture(3, 32, 32), "after": picture(3, 32, 32)}),
}


def data(name: str) -> Mapping[str, Any]:
    """The items of a net, by input."""
    rng = np.random.default_rng(5)
    return {given: draw(rng) for given, draw in NETS[name][1].items()}


def __getattr__(name: str) -> Callable[[], nn.Module]:
    if name not in NETS:
        raise AttributeError(name)

    def build() -> nn.Module:
        torch.manual_seed(0)
        return NETS[name][0]().eval()

    return build
