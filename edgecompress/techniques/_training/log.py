"""A log for TensorBoard, by its own writer of records: its writer of summaries would import TensorFlow."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from tensorboard.compat.proto import summary_pb2

FOLDER = "log"  # of what is kept, this part stays for good
FILE = "events.out.tfevents.0"  # TensorBoard knows it by the middle word
VERSION = "brain.Event:2"  # of the format: the first record says it
BINS = 64  # of a histogram


def available() -> bool:
    """Whether a log can be written."""
    return importlib.util.find_spec("tensorboard") is not None


def write(
    folder: Path, step: int, values: Mapping[str, float], tensors: Mapping[str, torch.Tensor] | None = None
) -> None:
    """Adds numbers, and histograms of tensors, under their tags to the log in `folder`, which it makes.

    `step`: the epochs that are done.
    """
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = folder / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    parts = [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    parts += [summary_pb2.Summary.Value(tag=tag, histo=_histogram(each)) for tag, each in (tensors or {}).items()]
    events = [event_pb2.Event(wall_time=time.time(), step=step, summary=summary_pb2.Summary(value=parts))]
    if not file.exists():
        events.insert(0, event_pb2.Event(wall_time=time.time(), file_version=VERSION))
    with file.open("ab") as stream:  # in one write: a process killed meanwhile leaves whole records
        for event in events:
            RecordWriter(stream).write(event.SerializeToString())


def _histogram(tensor: torch.Tensor) -> summary_pb2.HistogramProto:
    """Of what is finite in it."""
    import numpy as np
    from tensorboard.compat.proto import summary_pb2

    numbers = tensor.detach().double().flatten().cpu().numpy()
    numbers = numbers[np.isfinite(numbers)]
    counts, edges = np.histogram(numbers, BINS)
    return summary_pb2.HistogramProto(
        min=numbers.min(initial=0.0),
        max=numbers.max(initial=0.0),
        num=numbers.size,
        sum=numbers.sum(),
        sum_squares=np.square(numbers).sum(),
        bucket_limit=edges[1:],
        bucket=counts,
    )
