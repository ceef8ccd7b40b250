"""Weights of few values in TFLite files, for a small download: k-means of each weight, quantized or not."""

from __future__ import annotations

from edgecompress.techniques import _clustering

REQUIRES = ("ai-edge-litert",)
EXTRA = "litert"
READS: tuple[str, ...] = ("tflite",)
WRITES = "tflite"
PROVIDES = "cluster"
NEEDS: tuple[str, ...] = ()

Options = _clustering.Options
apply = _clustering.clustered
