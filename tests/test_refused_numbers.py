"""Whole numbers that a source does not take are bad data: one line with the input, the number and what is taken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.stages import golden, refused_numbers

SIZES = {"ids": 50, "types": 2}


def lookup(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Sums of the rows of two tables, as torch looks them up: nothing below 0."""
    for name, size in SIZES.items():
        if inputs[name].min() < 0 or inputs[name].max() >= size:
            raise IndexError("index out of range in self")
    return {"y": inputs["ids"].sum(axis=1, keepdims=True) + inputs["types"].sum(axis=1, keepdims=True) + 0.5}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ids", 99, "'ids' holds 99 in item 21 of split 'test', but the source takes 0 to 49 (a table of 50)"),
        ("ids", 50, "'ids' holds 50 in item 21 of split 'test', but the source takes 0 to 49 (a table of 50)"),
        ("ids", 2**40, f"'ids' holds {2**40} in item 21 of split 'test', but the source takes 0 to 49 (a table of 50)"),
        ("types", 2, "'types' holds 2 in item 21 of split 'test', but the source takes 0 to 1 (a table of 2)"),
        ("ids", -1, "'ids' holds -1 in item 21 of split 'test', but the source takes none below 0"),
    ],
)
def test_the_input_the_number_and_the_table_are_found_by_trying(name: str, value: int, says: str) -> None:
    inputs = {"ids": np.full((8, 6), 49), "types": np.ones((8, 6), np.int64), "mask": np.ones((8, 6), np.float32)}
    inputs[name][5, 2] = value
    assert refused_numbers.refused(lookup, inputs, "test", 16) == f"the data's {says}"


def test_an_error_that_no_number_causes_stays_what_it_is() -> None:
    def broken(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        refused_numbers.WatchedRun(broken).run({"ids": np.ones((2, 3), np.int64)}, "test", 0)


@pytest.mark.parametrize("split", ["test", "calibrate"])
def test_a_number_beyond_the_table_is_bad_input_in_every_split(
    tmp_path: Path, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golden, "opened", lambda model, threads: lookup)
    specs = tuple(TensorSpec(name, (Dim("batch", 1, 64), 6), "int64") for name in SIZES)
    random = np.random.default_rng(0)
    for each in ("test", "calibrate"):
        arrays = {name: random.integers(0, size, (20, 6)) for name, size in SIZES.items()}
        if each == split:
            arrays["ids"][13, 0] = 77
        tensors.write_split(tmp_path / "samples" / each, arrays)
    facts = {"splits": {"test": 20, "calibrate": 20}, "labelled": False}
    samples = Artifact(tmp_path / "samples", "samples", specs, facts=facts).write()
    source = Artifact(tmp_path, "null", specs, (TensorSpec("y", (Dim("batch", 1, 64), 1)),))
    (tmp_path / "out").mkdir()
    asked = Request({"model": source, "samples": samples}, tmp_path / "out", {"splits": ["test"]}, Context(batch=1))
    with pytest.raises(InputError, match=f"'ids' holds 77 in item 13 of split '{split}', but the source takes 0 to 49"):
        golden.run(asked)
