"""Arithmetic of low rank: what the layers that replace one cost, and how many ranks it keeps."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Method = Literal["svd", "tucker", "cp", "tt", "ttm"]
Ranks = tuple[int, ...]
Size = tuple[int, int]  # height, width
Spectrum = Sequence[float]  # singular values, the largest first

STEPS = 64  # values that are tried of a rank, where several are weighed against each other
GRID = 256  # noise variances that are tried before the best one is refined
TINY = 1e-14  # of the largest squared singular value: rounding


# --------------------------------------------------------------------------- what replaces a layer, and its cost


@dataclass(frozen=True)
class Shape:
    """A convolution without groups as its cost has it. A Linear is one of kernel 1 x 1 on rows of one place."""

    inputs: int
    outputs: int
    kernel: Size
    calls: tuple[tuple[Size, Size, int], ...]  # the sizes before and after it, and how often, for one item
    bias: bool = False


@dataclass(frozen=True)
class Piece:
    """One convolution of those that replace a layer: `axes` of the kernel (height, width) that it spans."""

    inputs: int
    outputs: int
    axes: tuple[bool, bool]
    depthwise: bool = False
    bias: bool = False
    rows: int = 1  # of one place that it is applied to

    def kernel(self, shape: Shape) -> Size:
        """Its kernel: the layer's along its axes, 1 along the others."""
        height, width = (k if axis else 1 for k, axis in zip(shape.kernel, self.axes, strict=True))
        return height, width


NONE, BOTH, HEIGHT, WIDTH = (False, False), (True, True), (True, False), (False, True)


def dense(shape: Shape) -> tuple[Piece, ...]:
    """The layer itself."""
    return (Piece(shape.inputs, shape.outputs, BOTH, bias=shape.bias),)


def chain(shape: Shape, method: Method, ranks: Ranks) -> tuple[Piece, ...]:
    """The convolutions that replace a layer, in order. The last one has the bias, those with axes stride and padding.

    svd: k x k, 1 x 1, of one rank. tucker: 1 x 1, k x k, 1 x 1, ranks (inputs, outputs) (Kim et al. 2016,
    arXiv:1511.06530). cp: 1 x 1, depthwise k x 1, depthwise 1 x k, 1 x 1, of one rank (Lebedev et al. 2015,
    arXiv:1412.6553). tt: 1 x 1, k x 1, 1 x k, 1 x 1, three ranks: the tensor train (Oseledets 2011,
    doi:10.1137/090752286) of the kernel with its axes in the order inputs, height, width, outputs. ttm, of a Linear
    alone: the two cores of its matrix as a tensor train, see formats.torch_tensor_train.
    """
    if method == "ttm":
        (a, i), (b, o), (rank,) = halves(shape.inputs), halves(shape.outputs), ranks
        return Piece(a, b * rank, NONE, rows=i), Piece(rank * i, o, NONE, bias=shape.bias, rows=b)
    first, last = ranks[0], ranks[-1]
    end = Piece(last, shape.outputs, NONE, bias=shape.bias)
    if method == "svd":
        return Piece(shape.inputs, first, BOTH), end
    start = Piece(shape.inputs, first, NONE)
    if method == "tucker":
        return start, Piece(first, last, BOTH), end
    if method == "cp":
        return start, Piece(first, first, HEIGHT, depthwise=True), Piece(first, first, WIDTH, depthwise=True), end
    return start, Piece(first, ranks[1], HEIGHT), Piece(ranks[1], last, WIDTH), end


def halves(size: int) -> Size:
    """Two factors of a number that are as close to each other as can be, the smaller first."""
    small = next(n for n in range(math.isqrt(size), 0, -1) if size % n == 0)
    return small, size // small


def full(shape: Shape, method: Method) -> Ranks:
    """Ranks that suffice for every kernel: those of its unfoldings; of cp all but the longest axis of the kernel."""
    i, o, (h, w) = shape.inputs, shape.outputs, shape.kernel
    if method == "svd":
        return (min(i * h * w, o),)
    if method == "ttm":
        (a, b), (c, d) = halves(i), halves(o)
        return (min(a * c, b * d),)
    if method == "cp":
        return (i * o * h * w // max(i, o, h, w),)
    ends = min(i, o * h * w), min(o, i * h * w)
    return ends if method == "tucker" else (ends[0], min(i * h, w * o), ends[1])


def clipped(shape: Shape, method: Method, ranks: Ranks) -> Ranks:
    """The ranks without what adds nothing: between two of them lies a kernel, by which one is the other's at most."""
    between = [] if method == "cp" else [math.prod(p.kernel(shape)) for p in chain(shape, method, ranks)[1:-1]]
    limited = [*ranks]
    for i, size in enumerate(between):
        limited[i + 1] = min(limited[i + 1], limited[i] * size)
    for i, size in reversed([*enumerate(between)]):
        limited[i] = min(limited[i], limited[i + 1] * size)
    return tuple(limited)


def macs(shape: Shape, pieces: Sequence[Piece]) -> int:
    """Multiply-accumulates of the pieces one after another, for one item: places x kernel x inputs x outputs."""
    total = 0
    for (height, width), after, times in shape.calls:
        for piece in pieces:
            height, width = after[0] if piece.axes[0] else height, after[1] if piece.axes[1] else width
            total += times * height * width * piece.rows * _weights(shape, piece)
    return total


def _weights(shape: Shape, piece: Piece) -> int:
    return math.prod(piece.kernel(shape)) * piece.outputs * (1 if piece.depthwise else piece.inputs)


def parameters(shape: Shape, pieces: Sequence[Piece]) -> int:
    """Weights and biases of the pieces."""
    return sum(_weights(shape, piece) + piece.rows * piece.outputs * piece.bias for piece in pieces)


# --------------------------------------------------------------------------- ranks by energy, by cost


def energy(spectrum: Spectrum, share: float) -> int:
    """The least rank that keeps this share of the squared singular values, 0 < share <= 1; at least 1."""
    squares = [s * s for s in spectrum]
    missing = sum(squares)
    allowed = missing * (1 - share) + TINY * missing
    for rank, square in enumerate(squares, 1):
        missing -= square
        if missing <= allowed:
            return rank
    return len(squares)


def aligned(rank: int, align: int, limit: int) -> int:
    """The rank rounded up to a multiple of `align`, at most `limit`."""
    return min(-(-rank // align) * align, limit)


def within(spectra: Sequence[Spectrum], cost: Callable[[Ranks], int], budget: float, align: int) -> Ranks | None:
    """Of the ranks that cost at most `budget` those that lose least; None where the least ones cost more.

    One rank for each spectrum, multiples of `align` or all there are. What they lose is the sum of the squared
    singular values left out: the bound on the squared error of a truncated Tucker (De Lathauwer et al. 2000,
    doi:10.1137/S0895479896305696, property 10) or tensor train (Oseledets 2011, theorem 2.2).
    """
    # what is left out by each rank from 0
    tails = [[*itertools.accumulate((s * s for s in reversed(spectrum)), initial=0.0)][::-1] for spectrum in spectra]
    *others, last = ([*range(align, len(spectrum), align), len(spectrum)] for spectrum in spectra)
    candidates: list[tuple[float, Ranks]] = []
    for ranks in itertools.product(*(choices[:: -(-len(choices) // STEPS)] for choices in others)):
        if end := most(last, lambda rank, ranks=ranks: cost((*ranks, rank)) <= budget):  # type: ignore[misc]
            each = (*ranks, end)
            candidates.append((sum(tail[rank] for tail, rank in zip(tails, each, strict=True)), each))
    return min(candidates)[1] if candidates else None


def most(choices: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """The largest of ascending choices that fits, where each that is smaller than a fitting one fits too; or None."""
    fitting = bisect_left(choices, True, key=lambda choice: not fits(choice))
    return choices[fitting - 1] if fitting else None


def first(choices: Sequence[int], enough: Callable[[int], bool]) -> int | None:
    """The least of ascending choices that is enough, or None: in doubling steps, as the large ones take long."""
    low, step = 0, 1
    while low < len(choices):
        probe = min(low + step, len(choices)) - 1
        if enough(choices[probe]):
            return choices[bisect_left(range(probe), True, low, key=lambda i: enough(choices[i]))]
        low, step = probe + 1, 2 * step
    return None


# --------------------------------------------------------------------------- ranks by EVBMF


def evbmf(spectrum: Spectrum, rows: int, columns: int) -> int:
    """The rank of a rows x columns matrix under noise by empirical variational Bayes; 0: it is noise alone.

    `spectrum`: all its singular values. The global analytic solution of Nakajima, Sugiyama, Babacan, Tomioka 2013
    (JMLR 14:1-37), with the exact threshold and the bounds of the noise of Nakajima, Tomioka, Sugiyama, Babacan 2015
    (JMLR 16:3757-3811).
    """
    short, long = sorted((rows, columns))
    limit = long * noise(spectrum, rows, columns) * edge(short / long)
    return sum(s * s > limit for s in spectrum)


def edge(ratio: float) -> float:
    """The least squared singular value of a signal over long side x variance of the noise, for short / long side."""
    tau = _threshold(ratio)
    return (1 + tau) * (1 + ratio / tau)


def _threshold(ratio: float) -> float:
    """The zero of phi(t) + phi(t / ratio), phi(z) = log(z + 1) / z - 1/2, which lies between ratio x 2.51 and 2.52."""
    low, high = 2.51 * ratio, 2.52
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _phi(middle) + _phi(middle / ratio) > 0 else (low, middle)
    return low


def _phi(z: float) -> float:
    return math.log1p(z) / z - 0.5


def noise(spectrum: Spectrum, rows: int, columns: int) -> float:
    """The variance of the noise in each number of the matrix at which the free energy is least."""
    short, long = sorted((rows, columns))
    ratio, squares = short / long, [s * s / long for s in spectrum]
    limit = edge(ratio)
    floor = TINY * max(squares)
    signals = math.ceil(short / (1 + ratio)) - 1  # at most
    rest = squares[signals:]
    low = max(rest[0] / limit, sum(rest) / len(rest), floor)
    high = max(sum(squares) / short, low)
    if not floor:
        return 0.0
    return _least(lambda variance: _free_energy(squares, variance, ratio, limit), low, high)


def _free_energy(squares: Sequence[float], variance: float, ratio: float, limit: float) -> float:
    """Twice the free energy over the long side, as a function of the variance; constants left out."""
    signals = [s / variance for s in squares if s > limit * variance]
    return sum(squares) / variance + len(squares) * math.log(variance) + sum(_gain(x, ratio) for x in signals)


def _gain(x: float, ratio: float) -> float:
    """What a signal of that strength saves over calling it noise."""
    lean = x - (1 + ratio)
    tau = (lean + math.sqrt(lean * lean - 4 * ratio)) / 2
    return math.log1p(tau) + ratio * math.log1p(tau / ratio) - tau


def _least(f: Callable[[float], float], low: float, high: float) -> float:
    """Where f is least between two positive numbers: the best of a grid, refined by golden sections."""
    points = [low * (high / low) ** (i / GRID) for i in range(GRID + 1)]
    best = min(range(GRID + 1), key=lambda i: f(points[i]))
    low, high = points[max(best - 1, 0)], points[min(best + 1, GRID)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if f(left) <= f(right) else (left, high)
    return (low + high) / 2
