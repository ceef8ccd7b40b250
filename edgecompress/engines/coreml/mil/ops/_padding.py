"""Padding of convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence


def padding(
    pad_type: str, pad: Sequence[int], sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Elements before and after, for each spatial axis. An odd one goes after for `same`, before for `same_lower`."""
    if pad_type == "valid":
        return [(0, 0)] * len(sizes)
    if pad_type == "custom":
        return list(zip(pad[::2], pad[1::2], strict=True))
    totals = [max(0, -(-n // s) * s - n + k - s) for n, k, s in zip(sizes, kernel, strides, strict=True)]
    less = [(t // 2, t - t // 2) for t in totals]
    return less if pad_type == "same" else [(after, before) for before, after in less]
