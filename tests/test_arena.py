"""The planned arena: the planner, what XNNPACK makes of a graph, and the plan of a real file."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgecompress.core import registry
from edgecompress.device.agent import session
from edgecompress.engines.litert import arena
from edgecompress.engines.litert.memory_plan import Lifetime, aligned, greedy_by_size, peak
from edgecompress.testing.conformance.nets import net


def held(tensors: list[Lifetime]) -> int:
    """The most bytes that are held at once: no plan has less."""
    steps = {t.first for t in tensors}
    return max((sum(aligned(t.size, 16) for t in tensors if t.first <= s <= t.last) for s in steps), default=0)


def test_a_chain_needs_its_two_largest_neighbours() -> None:
    sizes = [32, 64, 16, 48]
    chain = [Lifetime(str(i), i, i + 1, size) for i, size in enumerate(sizes)]
    assert greedy_by_size(chain, 16) == 96 == held(chain)
    assert greedy_by_size([], 16) == 0 and greedy_by_size([Lifetime("one", 0, 0, 5)], 16) == 16


def test_the_smallest_gap_that_has_room_is_taken() -> None:
    wide, narrow = Lifetime("wide", 0, 2, 64), Lifetime("narrow", 0, 2, 32)
    later = [Lifetime("a", 3, 4, 64), Lifetime("b", 3, 4, 32), Lifetime("c", 2, 3, 16)]
    assert greedy_by_size([wide, narrow, *later], 16) == 112


def test_no_plan_is_below_what_is_held_at_once_and_few_are_far_above() -> None:
    rng = random.Random(0)
    for _ in range(200):
        tensors = []
        for i in range(rng.randrange(1, 30)):
            first = rng.randrange(20)
            tensors.append(Lifetime(str(i), first, first + rng.randrange(6), rng.randrange(1, 4096)))
        least = held(tensors)
        assert least <= greedy_by_size(tensors, 16) <= 2 * least


def test_the_peak_names_the_largest_tensor_where_most_is_held() -> None:
    tensors = [Lifetime("a", 0, 1, 10), Lifetime("b", 1, 2, 30), Lifetime("c", 2, 2, 20)]
    assert peak(tensors) == (2, tensors[1])
    assert peak([]) == (0, None)


# --------------------------------------------------------------------------- graphs


class Interpreter:
    """What LiteRT tells of a graph: operators as (name, inputs, outputs); tensors as [bytes] of float32, or int8."""

    def __init__(self, sizes: dict[int, int], ops: list[tuple[str, list[int], list[int]]], **more: Any) -> None:
        packed = more.get("packed", ())
        self._tensors = [
            {
                "index": i,
                "name": f"module/t{i}",
                "dtype": np.int8 if i in packed else np.float32,
                "shape": np.array([size if i in packed else size // 4]),
            }
            for i, size in sizes.items()
        ]
        self._ops = [
            {"index": i, "op_name": n, "inputs": np.array(a), "outputs": np.array(b)} for i, (n, a, b) in enumerate(ops)
        ]
        self.ends = more["inputs"], more["outputs"]

    def get_tensor_details(self) -> list[dict[str, Any]]:
        return self._tensors

    def _get_ops_details(self) -> list[dict[str, Any]]:
        return self._ops

    def get_input_details(self) -> list[dict[str, Any]]:
        return [t for t in self._tensors if t["index"] in self.ends[0]]

    def get_output_details(self) -> list[dict[str, Any]]:
        return [t for t in self._tensors if t["index"] in self.ends[1]]


ENDS = 64 + 64 + 64  # an input and an output of 64 bytes, and the arena's own alignment


@pytest.mark.parametrize(
    ("ops", "inner"),
    [
        ([("CONV_2D", [0, 9], [1]), ("CONV_2D", [1, 9], [2]), ("MEAN", [2], [8])], 1024 + 1024),
        ([("CONV_2D", [0, 9], [1]), ("RELU", [1], [2]), ("MEAN", [2], [8])], 1024),  # in place
        ([("CONV_2D", [0, 9], [1]), ("ADD", [1, 1], [2]), ("MEAN", [2], [8])], 1024),
        ([("CONV_2D", [0, 9], [1]), ("RELU", [1], [2]), ("ADD", [1, 2], [3]), ("MEAN", [3], [8])], 2048),  # 1 is read
        ([("CONV_2D", [0, 9], [1]), ("PAD", [1, 9], [2]), ("CONV_2D", [2, 9], [3]), ("MEAN", [3], [8])], 2048),  # fused
        ([("DEQUANTIZE", [9], [7]), ("CONV_2D", [0, 7], [1]), ("MEAN", [1], [8])], 1024),  # a constant
        ([("MEAN", [0], [8])], -arena.WORKSPACE_SLACK),  # nothing between the ends
    ],
)
def test_xnnpack_fuses_padding_and_writes_in_place(ops: list[Any], inner: int) -> None:
    sizes = {0: 64, 1: 1024, 2: 1024, 3: 1024, 7: 4096, 8: 64, 9: 256}
    told = arena.arena(Interpreter(sizes, ops, inputs=[0], outputs=[8]), [])
    assert told["arena_reason"] == ""
    assert told["arena_bytes"] == ENDS + inner + arena.WORKSPACE_SLACK


def test_what_is_planned_elsewhere_is_not_known_and_the_reason_names_the_operator() -> None:
    ops = [("FULLY_CONNECTED", [0, 9], [1]), ("SOFTMAX", [1], [8])]
    graph = Interpreter({0: 64, 1: 64, 8: 64, 9: 256}, ops, inputs=[0], outputs=[8], packed=[9])
    hybrid, outside = arena.arena(graph, []), arena.arena(graph, ["SOFTMAX:1"])
    assert hybrid["arena_bytes"] is None and hybrid["arena_reason"].startswith("FULLY_CONNECTED:0 quantizes")
    assert outside["arena_bytes"] is None and outside["arena_reason"].startswith("SOFTMAX:1 runs outside of XNNPACK")


@pytest.mark.slow
def test_a_real_file_has_a_plan_and_its_largest_tensor(tmp_path: Path) -> None:
    module = registry.load("runtimes", "litert")
    artifact = net("tflite", tmp_path)
    opened = module.open(artifact, 1)
    told = session.arena(opened, module)
    opened.close()
    assert told["arena_bytes"] == 768 + 64 + 64 + 2 * 4096 + 32  # image, scores; two activations of 16 x 8 x 8
    assert "(4,096 bytes) at CONV_2D:" in told["arena_peak"]


def test_a_plan_that_breaks_or_is_not_told_is_a_reason() -> None:
    assert session.arena(SimpleNamespace(), SimpleNamespace(NO_ARENA="no")) == {
        "arena_bytes": None,
        "arena_reason": "no",
        "arena_peak": "",
    }
    broken = session.arena(SimpleNamespace(arena=lambda: 1 / 0), SimpleNamespace())
    assert (broken["arena_bytes"], broken["arena_reason"]) == (None, "ZeroDivisionError: division by zero")
