"""The peak float32 operations and bytes per second of the device, and the time of each operator.

Compute: the best matrix product of numpy's BLAS on the threads asked for. Bandwidth: the best of copy and triad
(STREAM, J. McCalpin) over arrays larger than the caches, a part for each thread. Both are what numpy reaches: the
device's own peak is no lower. numpy has no int8 product: there is no int8 roof, and operators in int8 may lie above
the float32 one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.json import Json
from edgecompress.core.protocols import Subject
from edgecompress.plugins.profilers import _machine

if TYPE_CHECKING:
    import numpy as np

REQUIRES = ("numpy",)
MEBIBYTE = 1 << 20
SMALLEST, LARGEST = 64 * MEBIBYTE, 256 * MEBIBYTE  # of each of the three arrays
OVER_CACHE = 4  # an array is so many times the largest cache, as STREAM asks for
OF_MEMORY = 8  # an array takes at most one part in so many of the memory that is left
COPY_MOVES, TRIAD_MOVES = 2, 5  # arrays read or written: a = b; and a = s * c, a = a + b, as numpy does it
RUNS = 3  # of a benchmark, at least


@dataclass(frozen=True)
class Options:
    """How long each of the benchmarks runs, the size of the matrices, and how many inferences time the operators."""

    seconds: float = 1.0
    size: int = 1024
    runs: int = 20

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.size < 16 or self.runs < 1:
            raise ValueError("seconds must be above 0, size at least 16, runs at least 1")


def estimate_s(options: Options) -> float:
    """Three benchmarks, a load and the operators."""
    return 3 * options.seconds + 5.0


def measure(subject: Subject, options: Options) -> dict[str, Json]:
    """Both roofs, then the operators."""
    compute, bandwidth = peak(subject.threads, options), memory(subject.threads, options, subject.root)
    session = subject.open(profile=True)
    ops = session.ops(subject.inputs()[0], options.runs)
    session.close()
    return {
        "threads": subject.threads,
        "compute": compute,
        "int8": {"gops": None, "reason": "numpy has no int8 matrix product"},
        "bandwidth": bandwidth,
        "ridge_flops_per_byte": compute["gflops"] / bandwidth["gb_per_s"],
        "ops": list(ops["ops"]),
        "why": ops["why"],
        "fallback": list(ops["fallback"] or ()),
    }


def peak(threads: int, options: Options) -> dict[str, Json]:
    """The most float32 operations per second of a matrix product."""
    import numpy as np

    n = options.size
    a, b = (np.random.default_rng(seed).random((n, n), dtype=np.float32) for seed in (0, 1))
    c = np.empty_like(a)
    best_s, runs = _best(lambda: np.matmul(a, b, out=c), options.seconds)
    method = (
        f"the fastest of {runs} products of {n} x {n} float32 matrices by numpy {np.__version__}, {threads} threads"
    )
    return {"gflops": 2 * n**3 / best_s / 1e9, "dtype": "float32", "runs": runs, "method": method, "reason": ""}


def memory(threads: int, options: Options, root: Path) -> dict[str, Any]:
    """The most bytes per second between memory and processor."""
    import numpy as np

    cache = _machine.cache_bytes(root)
    size = _array_bytes(cache, _machine.memory_bytes(root))

    def arrays(_: int) -> list[np.ndarray]:  # touched by the thread that will use them
        return [np.full(size // threads // 8, value) for value in (0.0, 1.0, 2.0)]

    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(arrays, range(threads)))
        copy_s, _ = _best(lambda: list(pool.map(lambda part: np.copyto(part[0], part[1]), parts)), options.seconds)
        triad_s, _ = _best(lambda: list(pool.map(_triad, parts)), options.seconds)
    copy, triad = COPY_MOVES * size / copy_s / 1e9, TRIAD_MOVES * size / triad_s / 1e9
    known = cache is not None and size >= OVER_CACHE * cache
    doubt = (
        f"the arrays are not {OVER_CACHE} times the largest cache ({cache} bytes), so the figure may include cache "
        "bandwidth"
    )
    return {
        "gb_per_s": max(copy, triad),
        "copy_gb_per_s": copy,
        "triad_gb_per_s": triad,
        "array_bytes": size,
        "cache_bytes": cache,
        "method": f"the best of copy and triad in numpy over arrays of {size // MEBIBYTE} MiB, {threads} threads",
        "reason": "" if known else doubt if cache else "the size of the caches is not known",
    }


def _array_bytes(cache: int | None, free: int | None) -> int:
    size = min(max(OVER_CACHE * (cache or 0), SMALLEST), LARGEST)
    return size if free is None else max(MEBIBYTE, min(size, free // OF_MEMORY))


def _triad(arrays: Sequence[np.ndarray]) -> None:
    import numpy as np

    a, b, c = arrays
    np.multiply(c, 3.0, out=a)
    np.add(a, b, out=a)


def _best(act: Callable[[], object], seconds: float) -> tuple[float, int]:
    """Seconds of the fastest run, after one that is not counted; and how many there were."""
    act()
    times = list[float]()
    end = time.perf_counter() + seconds
    while len(times) < RUNS or time.perf_counter() < end:
        begin = time.perf_counter()
        act()
        times.append(time.perf_counter() - begin)
    return min(times), len(times)


def lines(answer: Mapping[str, Any]) -> list[str]:
    """The two roofs and where they meet."""
    compute, bandwidth = answer["compute"], answer["bandwidth"]
    doubt = f" ({bandwidth['reason']})" if bandwidth["reason"] else ""
    where = f"{len(answer['ops'])} operators timed" if answer["ops"] else f"no operator times: {answer['why']}"
    return [
        f"float32 {compute['gflops']:.4g} GFLOP/s, memory {bandwidth['gb_per_s']:.4g} GB/s{doubt}, on "
        f"{answer['threads']} threads; memory-bound below {answer['ridge_flops_per_byte']:.3g} FLOP per byte; {where}",
    ]
