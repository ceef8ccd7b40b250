"""Arithmetic of low rank: costs by hand, ranks that are the least and the best, EVBMF against its definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgecompress.techniques._low_rank import rank as _rank
from edgecompress.techniques._low_rank.rank import Shape

LAYER = Shape(64, 32, (3, 5), (((20, 30), (10, 15), 1),), bias=True)  # stride 2
spectra = st.lists(st.floats(0, 100), min_size=1, max_size=20).map(lambda s: sorted(s, reverse=True))


# --------------------------------------------------------------------------- costs


@pytest.mark.parametrize(
    ("method", "ranks", "macs", "parameters"),
    [
        ("svd", (7,), 150 * 7 * (64 * 15 + 32), 7 * (64 * 15 + 32) + 32),
        ("tucker", (8, 6), 600 * 64 * 8 + 150 * 15 * 8 * 6 + 150 * 6 * 32, 64 * 8 + 15 * 8 * 6 + 6 * 32 + 32),
        ("cp", (9,), 9 * (600 * 64 + 300 * 3 + 150 * 5 + 150 * 32), 9 * (64 + 3 + 5 + 32) + 32),
        (
            "tt",
            (8, 7, 6),
            600 * 64 * 8 + 300 * 3 * 8 * 7 + 150 * 5 * 7 * 6 + 150 * 6 * 32,
            64 * 8 + 3 * 8 * 7 + 5 * 7 * 6 + 6 * 32 + 32,
        ),
    ],
)
def test_the_cost_of_each_chain_is_that_counted_by_hand(
    method: _rank.Method, ranks: _rank.Ranks, macs: int, parameters: int
) -> None:
    pieces = _rank.chain(LAYER, method, ranks)
    assert (_rank.macs(LAYER, pieces), _rank.parameters(LAYER, pieces)) == (macs, parameters)


def test_a_layer_costs_its_kernel_at_every_place_of_every_call() -> None:
    often = Shape(3, 8, (3, 3), (((8, 8), (8, 8), 1), ((4, 4), (4, 4), 3)))
    assert _rank.macs(often, _rank.dense(often)) == (64 + 3 * 16) * 9 * 3 * 8
    assert _rank.parameters(LAYER, _rank.dense(LAYER)) == 64 * 32 * 15 + 32


def test_full_ranks_are_those_of_the_unfoldings() -> None:
    wide = Shape(2, 40, (3, 3), (((8, 8), (8, 8), 1),))
    assert _rank.full(wide, "svd") == (18,)
    assert _rank.full(wide, "tucker") == (2, 18)
    assert _rank.full(wide, "tt") == (2, 6, 18)
    assert _rank.full(wide, "cp") == (2 * 9,)


# --------------------------------------------------------------------------- energy and cost


@given(spectra, st.floats(0.01, 1))
def test_energy_is_the_least_rank_that_keeps_its_share(spectrum: list[float], share: float) -> None:
    rank = _rank.energy(spectrum, share)
    kept = [sum(s * s for s in spectrum[:r]) for r in range(len(spectrum) + 1)]
    assert kept[rank] >= share * kept[-1] - 1e-9 * kept[-1]
    assert rank == 1 or kept[rank - 1] <= share * kept[-1] + 1e-9 * kept[-1]


def test_energy_of_published_figures() -> None:
    spectrum = [math.sqrt(share) for share in (0.5, 0.3, 0.15, 0.05)]
    assert [_rank.energy(spectrum, share) for share in (0.5, 0.8, 0.81, 0.95, 0.96, 1)] == [1, 2, 3, 3, 4, 4]


@given(st.integers(1, 100), st.integers(1, 32), st.integers(1, 100))
def test_alignment_rounds_up_as_far_as_there_are_ranks(rank: int, align: int, limit: int) -> None:
    found = _rank.aligned(min(rank, limit), align, limit)
    assert min(rank, limit) <= found < rank + align
    assert found == limit or found % align == 0


@given(st.lists(spectra, min_size=1, max_size=3), st.integers(1, 60), st.integers(1, 5))
def test_within_a_budget_the_ranks_are_those_that_lose_least(layer: list[list[float]], budget: int, align: int) -> None:
    def cost(ranks: _rank.Ranks) -> int:
        return sum(ranks) + math.prod(ranks)

    def lost(ranks: _rank.Ranks) -> float:
        return sum(s * s for spectrum, rank in zip(layer, ranks, strict=True) for s in spectrum[rank:])

    every = itertools.product(*([*range(align, len(s), align), len(s)] for s in layer))
    fitting = [ranks for ranks in every if cost(ranks) <= budget]
    found = _rank.within(layer, cost, budget, align)
    assert (found in fitting) if fitting else found is None
    if found:
        assert lost(found) == pytest.approx(min(map(lost, fitting)), abs=1e-6)


@given(st.lists(st.integers(1, 300), unique=True, max_size=40).map(sorted), st.integers(0, 310))
def test_the_first_that_is_enough_and_the_most_that_fits_are_neighbours(choices: list[int], limit: int) -> None:
    asked: list[int] = []
    first = _rank.first(choices, lambda choice: asked.append(choice) or choice > limit)
    assert first == next((c for c in choices if c > limit), None)
    assert _rank.most(choices, lambda choice: choice <= limit) == max((c for c in choices if c <= limit), default=None)
    if first is not None:  # nothing far beyond it is tried
        assert max(map(choices.index, asked)) <= 2 * choices.index(first) + 1


# --------------------------------------------------------------------------- EVBMF


def planted(rows: int, columns: int, rank: int, deviation: float, seed: int = 0) -> list[float]:
    """Singular values of a random matrix of that rank, whose numbers have variance 1, under normal noise."""
    seeded = np.random.default_rng(seed)
    signal = seeded.normal(size=(rows, rank)) @ seeded.normal(size=(rank, columns)) / math.sqrt(max(rank, 1))
    return np.linalg.svd(signal + deviation * seeded.normal(size=(rows, columns)), compute_uv=False).tolist()


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (64, 576), (576, 64), (16, 400)])
@pytest.mark.parametrize("rank", [0, 1, 5])
@pytest.mark.parametrize("deviation", [0.05, 0.3])
def test_evbmf_finds_the_planted_rank_and_the_noise(rows: int, columns: int, rank: int, deviation: float) -> None:
    spectrum = planted(rows, columns, rank, deviation)
    assert _rank.evbmf(spectrum, rows, columns) == rank
    assert math.sqrt(_rank.noise(spectrum, rows, columns)) == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("rank", [1, 5])
def test_evbmf_finds_the_rank_without_noise(rank: int) -> None:
    assert _rank.evbmf(planted(32, 48, rank, 0.0), 32, 48) == rank
    assert _rank.evbmf([0.0, 0.0], 2, 3) == 0


@given(st.integers(0, 1000), st.floats(1e-3, 1e3))
@settings(max_examples=20, deadline=None)
def test_evbmf_does_not_depend_on_the_unit(seed: int, scale: float) -> None:
    spectrum = planted(12, 30, 3, 0.5, seed)
    assert _rank.evbmf([s * scale for s in spectrum], 12, 30) == _rank.evbmf(spectrum, 30, 12)


def test_the_threshold_is_the_published_one() -> None:
    """Nakajima et al. 2015: 2.5129 for a square matrix, about 2.5129 sqrt(ratio) else; above the edge of the noise."""
    assert _rank._threshold(1.0) == pytest.approx(2.5129, abs=1e-4)
    for ratio in (0.01, 0.1, 0.5, 0.9):
        assert _rank._threshold(ratio) == pytest.approx(2.5129 * math.sqrt(ratio), rel=0.13)
        assert _rank.edge(ratio) > (1 + math.sqrt(ratio)) ** 2  # Marchenko and Pastur 1967
