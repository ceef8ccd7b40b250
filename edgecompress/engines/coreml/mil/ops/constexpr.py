"""Compressed weights, unpacked."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgecompress.engines.coreml.mil.lazy import numpy, torch
from edgecompress.engines.coreml.mil.ops.quantization import _along
from edgecompress.engines.coreml.mil.signature import Float, Ints, Number, Result, Whole


def constexpr_cast(source_val: Float, output_dtype: str) -> Result:
    return source_val


def constexpr_affine_dequantize(quantized_data: Whole, zero_point: Number, scale: Float, axis: int) -> Result:
    """scale × (data - zero point), both a single value or one per index of `axis`."""
    steps = quantized_data.to(torch.float32) - _along(zero_point, quantized_data, axis)
    return steps * _along(scale, quantized_data, axis)


def constexpr_blockwise_shift_scale(data: Number, scale: Float, offset: Number | None = None) -> Result:
    """scale × (data - offset), one of each for a block of the data."""
    steps = data.to(torch.float32)
    if offset is not None:
        steps = steps - _spread(offset, data.shape)
    return steps * _spread(scale, data.shape)


def constexpr_lut_to_dense(
    indices: Whole, lut: Number, shape: Ints | None = None, vector_axis: int | None = None
) -> Result:
    """Before iOS 18 packed indices, the shape apart and one table; since then a table of vectors for each block."""
    if shape is not None:
        bits = int(math.log2(lut.shape[0]))
        return lut[_unpacked(indices, bits, math.prod(shape))].reshape(shape)
    return _looked_up(indices, lut, vector_axis)


def constexpr_sparse_to_dense(nonzero_data: Number, mask: Whole, shape: Ints | None = None) -> Result:
    """Before iOS 18 the mask is packed and the shape apart."""
    chosen = mask if shape is None else _unpacked(mask, 1, math.prod(shape)).reshape(shape)
    return _dense(nonzero_data, chosen)


def constexpr_lut_to_sparse(
    indices_mask: Whole, indices_nonzero_data: Whole, lut: Number, vector_axis: int | None = None
) -> Result:
    """The mask and the data of the sparse tensor."""
    dense = _looked_up(_dense(indices_nonzero_data, indices_mask), lut, vector_axis)
    wide = lut.shape[-1]
    mask = indices_mask if vector_axis is None else indices_mask.repeat_interleave(wide, vector_axis)
    return mask, dense[mask != 0]


def constexpr_sparse_blockwise_shift_scale(
    data_mask: Whole, nonzero_data: Number, scale: Float, offset: Number | None = None
) -> Result:
    """The mask and the data of the sparse tensor."""
    dense = constexpr_blockwise_shift_scale(_dense(nonzero_data, data_mask), scale, offset)
    return data_mask, dense[data_mask != 0]


def _looked_up(indices: torch.Tensor, lut: torch.Tensor, vector_axis: int | None) -> torch.Tensor:
    """Each index by its vector in the table of its block."""
    *blocks, palettes, wide = lut.shape
    if indices.numel() and int(indices.max()) >= palettes:
        raise IndexError(f"index {int(indices.max())} is out of range for tables of {palettes} entries")
    table = torch.zeros((), dtype=torch.int64)
    for size, count in zip(indices.shape, blocks, strict=True):
        table = table.unsqueeze(-1) * count + torch.arange(size) // (size // count)
    vectors = lut.reshape(-1, wide)[table * palettes + indices]
    if wide == 1:
        return vectors.squeeze(-1)
    if vector_axis is None:
        raise ValueError("a lookup table of vectors needs vector_axis")
    axis = vector_axis % indices.ndim
    return vectors.movedim(-1, axis + 1).flatten(axis, axis + 1)


def _dense(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The values where the mask is not 0, row by row."""
    result = torch.zeros(mask.shape, dtype=values.dtype)
    if int((mask != 0).sum()) != values.numel():
        raise ValueError(f"{values.numel()} values, but the mask has {int((mask != 0).sum())} nonzero positions")
    result[mask != 0] = values.reshape(-1)
    return result


def _spread(values: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """One value per block, repeated over the block along each axis."""
    for axis, (size, count) in enumerate(zip(shape, values.shape, strict=True)):
        if size % count:
            raise ValueError(f"an axis of size {size} cannot be divided into {count} equal blocks")
        values = values.repeat_interleave(size // count, axis)
    return values


def _unpacked(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """Whole numbers of some bits each, the lowest bits first."""
    flat = numpy.unpackbits(packed.numpy(), bitorder="little")[: count * bits].reshape(count, bits)
    return torch.from_numpy((flat.astype("int64") << numpy.arange(bits)).sum(axis=1))
