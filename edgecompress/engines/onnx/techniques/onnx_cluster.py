"""Weights of few values in ONNX files, for a small download: k-means of each weight, quantized or not."""

from __future__ import annotations

from edgecompress.techniques import _clustering

REQUIRES = ("onnx",)
EXTRA = "onnx"
READS: tuple[str, ...] = ("onnx",)
WRITES = "onnx"
PROVIDES = "cluster"
NEEDS: tuple[str, ...] = ()

Options = _clustering.Options
apply = _clustering.clustered
