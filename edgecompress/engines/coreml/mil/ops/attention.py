"""Attention."""

from __future__ import annotations

import math

from edgecompress.engines.coreml.mil.lazy import torch
from edgecompress.engines.coreml.mil.signature import Float, Result, Tensor


def scaled_dot_product_attention(query: Float, key: Float, value: Float, attn_mask: Tensor | None = None) -> Result:
    """A mask of booleans says who takes part; one of floats is added."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.softmax(scores, -1) @ value
