"""Ops that move elements and change none."""

from __future__ import annotations

from collections.abc import Sequence

from edgecompress.engines.coreml.mil.lazy import functional, torch
from edgecompress.engines.coreml.mil.signature import Bools, Float, Ints, Result, Tensor, Tensors, Whole


def identity(x: Tensor) -> Result:
    return x


def shape(x: Tensor) -> Result:
    return torch.tensor(x.shape, dtype=torch.int32)


def reshape(x: Tensor, shape: Ints) -> Result:
    """0 keeps the size of the input, counted from the last axis (1 where it has none); -1 is what remains."""
    sizes = [1] * max(0, len(shape) - x.ndim) + list(x.shape[max(0, x.ndim - len(shape)) :])
    return x.reshape([kept if size == 0 else size for size, kept in zip(shape, sizes, strict=True)])


def reshape_like(x: Tensor, ref_tensors: Tensors, begins: Tensors, ends: Tensors, end_masks: Tensors) -> Result:
    sizes: list[int] = []
    for other, begin, end, open_end in zip(ref_tensors, begins, ends, end_masks, strict=True):
        sizes += other.shape[int(begin) : None if open_end else int(end)]
    return x.reshape(sizes)


def expand_dims(x: Tensor, axes: Ints) -> Result:
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def squeeze(x: Tensor, axes: Ints | None = None) -> Result:
    """Axes whose size is not 1 stay."""
    return x.squeeze() if axes is None else x.squeeze(axes)


def flatten2d(x: Tensor, axis: int = 1) -> Result:
    rows = 1
    for size in x.shape[:axis]:
        rows *= size
    return x.reshape(rows, -1)


def transpose(x: Tensor, perm: Ints) -> Result:
    return x.permute(perm)


def concat(values: Tensors, axis: int, interleave: bool = False) -> Result:
    if values[0].ndim == 0:
        return torch.stack(values)
    if interleave:
        axis %= values[0].ndim
        return torch.stack(values, axis + 1).flatten(axis, axis + 1)
    return torch.cat(values, axis)


def stack(values: Tensors, axis: int) -> Result:
    return torch.stack(values, axis)


def split(x: Tensor, axis: int, num_splits: int | None = None, split_sizes: Ints | None = None) -> Result:
    if split_sizes is None and (num_splits is None or x.shape[axis] % num_splits):
        raise ValueError(f"{x.shape[axis]} elements cannot be split into {num_splits} equal parts")
    parts = split_sizes or [x.shape[axis] // (num_splits or 1)] * (num_splits or 1)
    return tuple(torch.split(x, list(parts), axis))


def tile(x: Tensor, reps: Ints) -> Result:
    return x.repeat(reps)


def reverse(x: Tensor, axes: Ints | None = None) -> Result:
    return torch.flip(x, tuple(range(x.ndim)) if axes is None else axes)


def reverse_sequence(x: Tensor, lengths: Whole, seq_axis: int = 0, batch_axis: int = 0) -> Result:
    """The first `lengths[i]` elements of item i backwards."""
    rows = x.movedim((batch_axis, seq_axis), (0, 1)).clone()
    for row, length in zip(rows, lengths.tolist(), strict=True):
        row[:length] = row[:length].flip(0)
    return rows.movedim((0, 1), (batch_axis, seq_axis))


def slice_by_index(
    x: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Bools | None = None,
    end_mask: Bools | None = None,
    squeeze_mask: Bools | None = None,
) -> Result:
    """As Python slices; a masked begin or end is open; a squeezed axis is an index, and goes."""
    for axis, index in enumerate(_slices(x, begin, end, stride, begin_mask, end_mask, squeeze_mask)):
        x = x.index_select(axis, torch.tensor(index, dtype=torch.int64))
    gone = tuple(axis for axis, squeezed in enumerate(squeeze_mask or ()) if squeezed)
    return x.squeeze(gone) if gone else x


def slice_update(
    x: Tensor,
    update: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Bools | None = None,
    end_mask: Bools | None = None,
    squeeze_mask: Bools | None = None,
) -> Result:
    places = _slices(x, begin, end, stride, begin_mask, end_mask, squeeze_mask)
    result = x.clone()
    grid = torch.meshgrid(*[torch.tensor(p, dtype=torch.int64) for p in places], indexing="ij")
    result[grid] = update.reshape(grid[0].shape)
    return result


def slice_by_size(x: Tensor, begin: Ints, size: Ints) -> Result:
    """A size of -1 is all that remains."""
    for axis, (first, length) in enumerate(zip(begin, size, strict=True)):
        first += x.shape[axis] if first < 0 else 0
        x = x.narrow(axis, first, x.shape[axis] - first if length == -1 else length)
    return x


def sliding_windows(x: Tensor, axis: int, size: int, stride: int = 1) -> Result:
    axis %= x.ndim
    return x.unfold(axis, size, stride).movedim(-1, axis + 1)


def pixel_shuffle(x: Float, upscale_factor: int) -> Result:
    return functional.pixel_shuffle(x, upscale_factor)


def pixel_unshuffle(x: Float, downscale_factor: int) -> Result:
    return functional.pixel_unshuffle(x, downscale_factor)


def depth_to_space(x: Float, block_size: int) -> Result:
    """The channels of a block are the outer part of the channel axis, as in TensorFlow."""
    n, c, h, w = x.shape
    b = block_size
    return x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)


def space_to_depth(x: Float, block_size: int) -> Result:
    n, c, h, w = x.shape
    b = block_size
    return x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(n, c * b**2, h // b, w // b)


def space_to_batch(x: Float, block_shape: Ints, paddings: Ints) -> Result:
    (top, bottom, left, right), (bh, bw) = paddings, block_shape
    padded = functional.pad(x, (left, right, top, bottom))
    n, c, h, w = padded.shape
    blocks = padded.reshape(n, c, h // bh, bh, w // bw, bw).permute(3, 5, 0, 1, 2, 4)
    return blocks.reshape(n * bh * bw, c, h // bh, w // bw)


def batch_to_space(x: Float, block_shape: Ints, crops: Ints) -> Result:
    (top, bottom, left, right), (bh, bw) = crops, block_shape
    n, c, h, w = x.shape
    whole = x.reshape(bh, bw, n // (bh * bw), c, h, w).permute(2, 3, 4, 0, 5, 1)
    return whole.reshape(n // (bh * bw), c, h * bh, w * bw)[:, :, top : h * bh - bottom, left : w * bw - right]


def crop(x: Float, crop_height: Ints, crop_width: Ints) -> Result:
    (top, bottom), (left, right) = crop_height, crop_width
    return x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right]


def _slices(
    x: torch.Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None,
    begin_mask: Bools | None,
    end_mask: Bools | None,
    squeeze_mask: Bools | None,
) -> list[Sequence[int]]:
    """The indices that are taken of each axis."""
    masks = [mask or (False,) * x.ndim for mask in (begin_mask, end_mask, squeeze_mask)]
    picked: list[Sequence[int]] = []
    for size, first, last, step, open_begin, open_end, squeezed in zip(
        x.shape, begin, end, stride or (1,) * x.ndim, *masks, strict=True
    ):
        if squeezed:
            picked.append([range(size)[0 if open_begin else first]])
        else:
            picked.append(range(size)[None if open_begin else first : None if open_end else last : step])
    return picked
