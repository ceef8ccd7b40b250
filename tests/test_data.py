"""Data from each kind of source: splits, names, preprocessing, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import sys
import tracemalloc
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edgecompress.commands import object_data
from edgecompress.core import catalog
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.core.settings import SPLITS, Pad, Preprocess, Source
from edgecompress.data import preprocess, tensors
from edgecompress.stages import data

Fn = Callable[[str], Any]


def run(
    folder: Path, origin: str, samples: int | None = None, seed: int = 0, inputs: Any = None, **more: Any
) -> Artifact:
    """The data stage on one source, its options as a worker gets them: through JSON."""
    out = folder / "out"
    out.mkdir(parents=True, exist_ok=True)
    source = dataclasses.asdict(Source("nets:build", origin, samples=samples, **more))
    options = json.loads(json.dumps({"source": source}))
    return data.run(Request(inputs or {}, out, options, Context(seed=seed)))


def read(artifact: Artifact, split: str, name: str = "input") -> np.ndarray:
    return np.asarray(tensors.load(artifact, split, name))


@pytest.fixture
def factory(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fn], str]:
    """Makes a function importable; returns its reference."""

    def named(function: Fn) -> str:
        module = types.ModuleType("users_data")
        module.__dict__["items"] = function
        monkeypatch.setitem(sys.modules, "users_data", module)
        return "users_data:items"

    return named


def numbered(count: int) -> Iterator[tuple[np.ndarray, int]]:
    """Items that can be told apart."""
    return ((np.full(3, i, np.float32), i % 10) for i in range(count))


# --------------------------------------------------------------------------- factories


def test_a_factory_with_every_split_keeps_its_order(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    found = run(tmp_path, factory(lambda split: numbered(3 + SPLITS.index(split))))
    assert found.facts["splits"] == {"calibrate": 3, "select": 4, "test": 5}
    assert found.facts["cut"] == []
    assert read(found, "test")[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert read(found, "test", "labels").tolist() == [0, 1, 2, 3, 4]
    assert found.inputs == (TensorSpec("input", (Dim("batch", 1, 5), 3), "float32"),)


def test_items_that_occur_more_than_once_are_counted(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    items = {"calibrate": [1, 2, 3], "select": [4, 5, 4], "test": [6, 7, 7, 7, 1, 4, 8]}
    found = run(tmp_path, factory(lambda split: ((np.full(3, i, np.float32), n) for n, i in enumerate(items[split]))))
    assert found.facts["repeated"] == {"within": 2, "elsewhere": 2}
    cut = run(tmp_path / "cut", factory(lambda split: None if split != "test" else numbered(40)))
    assert cut.facts["repeated"] == {"within": 0, "elsewhere": 0}


def test_samples_limit_each_split(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    found = run(tmp_path, factory(lambda split: numbered(100)), samples=7)
    assert found.facts["splits"] == {"calibrate": 7, "select": 7, "test": 7}


def test_an_endless_factory_is_read_as_far_as_needed(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    def endless(split: str) -> Iterator[np.ndarray]:
        while True:
            yield np.zeros(2, np.float32)

    assert run(tmp_path, factory(endless), samples=70).facts["splits"]["test"] == 70


def test_a_split_that_is_none_is_cut_from_another(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    found = run(tmp_path, factory(lambda split: None if split == "select" else numbered(40)))
    assert found.facts["splits"] == {"calibrate": 20, "select": 20, "test": 40}
    assert found.facts["cut"] == [["calibrate", "calibrate", "select"]]
    assert not set(read(found, "calibrate")[:, 0]) & set(read(found, "select")[:, 0])


def test_dictionaries_tuples_and_missing_labels(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    ids, mask = np.arange(4), np.ones(4, bool)
    by_name = run(tmp_path / "a", factory(lambda split: iter([({"ids": ids, "mask": mask}, 1)])))
    assert [s.name for s in by_name.inputs] == ["ids", "mask"]
    assert [s.dtype for s in by_name.inputs] == ["int64", "bool"]
    by_place = run(tmp_path / "b", factory(lambda split: iter([((ids, mask), None)])))
    assert [s.name for s in by_place.inputs] == ["input_0", "input_1"]
    assert not by_place.facts["labelled"]
    assert not (tmp_path / "b" / "out" / "test" / "labels.npy").exists()


def test_labels_of_several_numbers_may_be_padded_with_negative_ones(
    tmp_path: Path, factory: Callable[[Fn], str]
) -> None:
    found = run(tmp_path, factory(lambda split: ((np.arange(4), np.array([3, 1, -1])) for _ in range(3))))
    assert read(found, "test", "labels").tolist() == [[3, 1, -1]] * 3


def test_sequences_of_unlike_lengths_are_padded_with_their_mask(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    def items(split: str) -> Iterator[Any]:
        return (({"ids": np.arange(1, n + 1), "kind": np.float32(n)}, np.full(n, 7)) for n in (2, 3, 5))

    pads = {"ids": Pad(4, 0, "mask"), "labels": Pad(4, -1)}
    found = run(tmp_path, factory(items), pad=pads)
    assert read(found, "test", "ids").tolist() == [[1, 2, 0, 0], [1, 2, 3, 0], [1, 2, 3, 4]]
    assert read(found, "test", "mask").tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert read(found, "test", "labels").tolist() == [[7, 7, -1, -1], [7, 7, 7, -1], [7, 7, 7, 7]]
    with pytest.raises(InputError, match=r"\[pad.idx\]: the data has no 'idx', did you mean 'ids'"):
        run(tmp_path / "other", factory(items), pad={"idx": Pad(4)})
    with pytest.raises(InputError, match="'kind' is no array of numbers with an axis to fill up"):
        run(tmp_path / "flat", factory(items), pad={"kind": Pad(4)})
    with pytest.raises(InputError, match=r"item 1: 'ids' is int64 \[3\].*sequences: \[pad.ids\] length"):
        run(tmp_path / "bare", factory(items))


def test_a_dataset_that_a_function_returns_ends_at_its_length(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    class Endless:
        """As torch's Dataset: a length, items by number for any number, no iterator."""

        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            return np.full(3, index), index

    found = run(tmp_path, factory(lambda split: Endless()))
    assert read(found, "test", "labels").tolist() == [0, 1, 2, 3, 4]
    object_data.write(lambda split: Endless() if split == "test" else None, tmp_path / "objects")
    assert np.load(tmp_path / "objects" / "test" / "labels.npy").tolist() == [0, 1, 2, 3, 4]


def test_labels_may_be_rows(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    found = run(tmp_path, factory(lambda split: ((np.arange(4), np.arange(1, 5)) for _ in range(3))))
    assert read(found, "test", "labels").shape == (3, 4)


def test_labels_beside_the_inputs_of_a_dictionary_are_labels(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    found = run(tmp_path, factory(lambda split: ({"image": np.full(3, i), "labels": i} for i in range(3))))
    assert [spec.name for spec in found.inputs] == ["image"]
    assert read(found, "test", "labels").tolist() == [0, 1, 2]


def test_names_of_classes_are_their_numbers_in_the_declared_order(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    named = factory(lambda split: ((np.full(2, i), name) for i, name in enumerate(["dog", np.str_("cat"), "dog"])))
    assert read(run(tmp_path, named, labels=("dog", "cat")), "test", "labels").tolist() == [0, 1, 0]
    with pytest.raises(InputError, match="split 'calibrate', item 1: the source's labels have no 'cat', did you mean"):
        run(tmp_path / "other", named, labels=("dog", "cart"))


@pytest.mark.parametrize(
    "form",
    [
        np.float32,
        lambda label: np.array([label]),
        lambda label: np.array([label], np.float32),
        lambda label: np.eye(5)[label],
        lambda label: np.eye(5, dtype=np.uint8)[label],
    ],
)
def test_classes_in_another_form_are_numbers_for_top_k_alone(
    tmp_path: Path, factory: Callable[[Fn], str], form: Callable[[int], Any]
) -> None:
    origin = factory(lambda split: ((np.ones(2), form(i % 5)) for i in range(7)))
    for metric in ("top1", "top5"):
        found = run(tmp_path / metric, origin, metric=metric)
        for split in SPLITS:
            assert read(found, split, "labels").tolist() == [0, 1, 2, 3, 4, 0, 1]
        assert read(found, "test", "labels").dtype == np.int64
    kept = np.stack([np.asarray(form(i % 5)) for i in range(7)])
    assert (read(run(tmp_path / "mse", origin, metric="mse"), "test", "labels") == kept).all()


@pytest.mark.parametrize("other", [np.float32(0.5), np.array([0.0, 0.5]), np.array([1, 1]), np.array([[0], [1]])])
def test_labels_that_are_no_classes_stay_as_they_are_in_all_splits(
    tmp_path: Path, factory: Callable[[Fn], str], other: Any
) -> None:
    whole = np.ones_like(other) * (np.arange(other.size) == 0).reshape(other.shape)
    items = {"calibrate": [whole, whole], "select": [whole], "test": [whole, other]}
    found = run(tmp_path, factory(lambda split: ((np.ones(2), label) for label in items[split])))
    assert read(found, "test", "labels").tolist() == [whole.tolist(), other.tolist()]
    assert read(found, "calibrate", "labels").tolist() == [whole.tolist()] * 2


def test_how_many_items_are_read_is_told_meanwhile(
    tmp_path: Path, factory: Callable[[Fn], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "TOLD_S", 0.0)
    told = list[tuple[float, str]]()
    options = json.loads(json.dumps({"source": dataclasses.asdict(Source("nets:build", "", samples=4))}))
    options["source"]["data"] = factory(lambda split: [*numbered(3)] if split == "test" else numbered(100))
    data.run(Request({}, tmp_path, options, Context(seed=0), progress=lambda done, what: told.append((done, what))))
    assert [what.partition(",")[0] for _, what in told if "items" in what][:4] == [
        f"calibrate: {n} of 4 items read" for n in (1, 2, 3, 4)
    ]
    assert any(what.startswith("test: 3 of 3 items read") for _, what in told)
    assert [done for done, _ in told] == sorted(done for done, _ in told) and told[-1][0] <= 1
    assert all(what.endswith(" per second") for _, what in told if "items" in what)


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (lambda: iter([]), r"split 'calibrate' is empty; give it at least one item"),
        (lambda: iter([(np.ones(2), -1)]), r"split 'calibrate', item 0: label -1 is out of range"),
        (lambda: iter([np.ones(2), np.array([1, np.nan])]), r"split 'calibrate', item 1: 'input' holds NaN"),
        (lambda: iter([np.ones(2), np.ones(3)]), r"item 1: 'input' is float64 \[3\], in those before it float64 \[2\]"),
        (lambda: iter([np.array([{}])]), r"item 0: 'input' is object, not numbers"),
        (lambda: iter([({"x\0": np.ones(1)}, 0)]), r"an input cannot be called 'x\\x00'"),
        (lambda: iter([({"labels": np.ones(1)}, 0)]), r"an input cannot be called 'labels'"),
        (
            lambda: iter([[np.ones(2), 1]]),
            r"item 0: 'input' is a list of parts of unlike shapes; .* tuple \(inputs, label",
        ),
        (lambda: iter([None]), r"item 0: 'input' is None, not numbers"),
        (lambda: iter([(np.ones(2), "cat")]), r"item 0: the label 'cat' is a name; .*source.labels="),
        (lambda: iter([(np.ones(2), b"cat")]), r"item 0: the label is a bytes, not numbers"),
        (lambda: iter([(np.ones(2), 1), np.ones(2)]), r"item 1 has input, those before it have input, lab"),
        (lambda: iter([(np.ones(2), float("inf"))]), r"item 0: 'labels' holds NaN or infinite"),
        (lambda: (1 / 0 for _ in range(1)), r"users_data:items\('calibrate'\) raised ZeroDivisionError.*debug it"),
    ],
)
def test_bad_items_are_named(tmp_path: Path, factory: Callable[[Fn], str], items: Callable[[], Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(tmp_path, factory(lambda split: items()))


@pytest.mark.parametrize("name", ["serving/image:0", "../x", "a b", "50%2F", "größe", "."])
def test_an_input_may_be_called_what_exporters_call_it(tmp_path: Path, factory: Callable[[Fn], str], name: str) -> None:
    found = run(tmp_path, factory(lambda split: (({name: np.full(2, i)}, i) for i in range(3))))
    assert read(found, "test", name).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert {path.parent.parent for path in found.path.rglob("*.npy")} == {found.path}


def test_a_bad_item_far_into_the_data_has_its_number(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    bad = [np.float32(i) if i != 150 else np.float32("nan") for i in range(200)]
    with pytest.raises(InputError, match="split 'calibrate', item 150:"):
        run(tmp_path, factory(lambda split: iter(bad)))


def test_a_bad_item_of_data_without_splits_has_its_number_only(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.array([1.0, np.nan]))
    with pytest.raises(InputError, match=r"^item 1: 'x' holds NaN"):
        run(tmp_path, str(tmp_path / "set.npz"))


def test_splits_of_different_shapes_are_refused(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    shapes = dict(zip(SPLITS, (2, 2, 3), strict=True))
    with pytest.raises(
        InputError, match=r"split 'calibrate' has input float64 \[2\], split 'test' input float64 \[3\]"
    ):
        run(tmp_path, factory(lambda split: iter([np.ones(shapes[split])])))


def test_a_factory_without_any_split_says_so(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    with pytest.raises(InputError, match="no items for any of calibrate, select, test"):
        run(tmp_path, factory(lambda split: None))


def test_data_to_train_on_is_a_split_of_its_own_that_nothing_else_reads(
    tmp_path: Path, factory: Callable[[Fn], str]
) -> None:
    asked: list[str] = []

    def items(split: str) -> Any:
        asked.append(split)
        return iter([(np.full(3, i, np.float32), i) for i in range(100 if split == "train" else 4)])

    reference = factory(items)
    run(tmp_path / "data", reference)
    assert "train" not in asked
    source = dataclasses.asdict(Source("m", reference, augment=("flip",), samples=2))
    (tmp_path / "out").mkdir()
    made = data.training(Request({}, tmp_path / "out", {"source": source}))
    assert made.facts == {"splits": {"train": 100}, "labelled": True, "augment": ["flip"], "metric": "top1"}
    assert tensors.load(made, "train", "input").shape == (100, 3)


def test_data_without_a_split_to_train_on_says_none(tmp_path: Path, factory: Callable[[Fn], str]) -> None:
    source = dataclasses.asdict(Source("m", factory(lambda split: None if split == "train" else iter([np.ones(1)]))))
    made = data.training(Request({}, tmp_path, {"source": source}))
    assert made.facts["splits"] == {"train": 0}


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("no_such_module:items", "no module 'no_such_module' in .*; run the command in the folder that contains it"),
        ("json:loadd", "json has no function 'loadd', did you mean 'load"),
        ("nowhere", r"data must be pkg\.mod:fn, an \.npz, a folder"),
    ],
)
def test_a_source_that_is_not_there(tmp_path: Path, reference: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(tmp_path, reference)


# --------------------------------------------------------------------------- splits by seed


@given(count=st.integers(3, 60), seed=st.integers(0, 5), limit=st.none() | st.integers(1, 20))
def test_one_set_is_cut_into_disjoint_splits(
    tmp_path_factory: pytest.TempPathFactory, count: int, seed: int, limit: int | None
) -> None:
    folder = tmp_path_factory.mktemp("one")
    np.savez(folder / "set.npz", x=np.arange(count), labels=np.zeros(count, int))
    found = run(folder, str(folder / "set.npz"), samples=limit, seed=seed)
    parts = [read(found, split, "x").tolist() for split in SPLITS]
    every = [x for part in parts for x in part]
    assert len(every) == len(set(every))
    assert all(parts)
    if limit is None:
        assert sorted(every) == list(range(count))
    else:
        assert max(map(len, parts)) <= limit


def test_the_seed_decides_the_split(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.arange(40))
    parts = [read(run(tmp_path / str(i), str(tmp_path / "set.npz"), seed=i // 2), "test", "x") for i in range(4)]
    assert parts[0].tolist() == parts[1].tolist() != parts[2].tolist() == parts[3].tolist()
    assert len(parts[0]) == 20


def test_two_items_cannot_be_three_splits(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.arange(2))
    with pytest.raises(InputError, match="2 items cannot be split into calibrate, select, test"):
        run(tmp_path, str(tmp_path / "set.npz"))


# --------------------------------------------------------------------------- arrays


def test_an_npz_with_splits(tmp_path: Path) -> None:
    arrays = {f"{s}.image": np.full((70 + i, 2), i, np.uint8) for i, s in enumerate(SPLITS)}
    arrays["test.labels"] = np.arange(72)
    np.savez_compressed(tmp_path / "set.npz", allow_pickle=False, **arrays)
    found = run(tmp_path, str(tmp_path / "set.npz"))
    assert found.facts["splits"] == {"calibrate": 70, "select": 71, "test": 72}
    assert np.array_equal(read(found, "select", "image"), arrays["select.image"])
    assert np.array_equal(read(found, "test", "labels"), np.arange(72))


def test_a_folder_of_npy_with_splits(tmp_path: Path) -> None:
    for i, split in enumerate(SPLITS):
        tensors.write_split(tmp_path / "set" / split, {"x": np.full((3, 2), i), "labels": np.arange(3)})
    found = run(tmp_path, str(tmp_path / "set"))
    assert read(found, "test", "x").tolist() == [[2, 2]] * 3


def test_a_sample_of_sorted_data_shows_each_class(tmp_path: Path) -> None:
    arrays = {f"{s}.{n}": np.repeat(np.arange(5), 100) for s in SPLITS for n in ("x", "labels")}
    np.savez(tmp_path / "set.npz", allow_pickle=False, **arrays)
    found = run(tmp_path, str(tmp_path / "set.npz"), samples=50)
    assert set(read(found, "test", "labels").tolist()) == {0, 1, 2, 3, 4}
    assert read(found, "test", "labels").tolist() == read(found, "test", "x").tolist()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.ones((3, 2)), "labels": np.ones(2, int)}, "inputs and labels must have as many items each; it has"),
        ({"labels": np.ones(2, int)}, "inputs and labels must have as many items each"),
        ({"x": np.ones(3), "test.x": np.ones(3)}, r"'x' has no split in its name"),
        ({}, "contains no array"),
        ({"x": np.asfortranarray(np.ones((3, 2)))}, "plain numbers in C order"),
        ({"x": np.float32(1)}, "items on axis 0"),
    ],
)
def test_an_npz_that_is_not_as_agreed(tmp_path: Path, arrays: dict[str, np.ndarray], says: str) -> None:
    np.savez(tmp_path / "set.npz", allow_pickle=False, **arrays)
    with pytest.raises(InputError, match=says):
        run(tmp_path, str(tmp_path / "set.npz"))


def test_pickles_are_refused(tmp_path: Path) -> None:
    objects = np.array([{}, {}, {}], object)
    np.savez(tmp_path / "set.npz", x=objects)
    with pytest.raises(InputError, match=r"must be plain numbers; it is object .* make it an array of numbers of one"):
        run(tmp_path, str(tmp_path / "set.npz"))
    (tmp_path / "set").mkdir()
    np.save(tmp_path / "set" / "x.npy", objects, allow_pickle=True)
    with pytest.raises(InputError, match=r"x\.npy: must be plain numbers"):
        run(tmp_path, str(tmp_path / "set"))


def test_a_truncated_npz_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", x=np.arange(3000.0), labels=np.arange(3000))
    whole = (tmp_path / "whole.npz").read_bytes()
    for keep in range(0, len(whole), len(whole) // 23):
        (tmp_path / "part.npz").write_bytes(whole[:keep])
        with pytest.raises(InputError, match=r"part\.npz"):
            run(tmp_path, str(tmp_path / "part.npz"))


def test_damaged_bytes_of_an_npz_never_pass(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "whole.npz", x=np.random.default_rng(0).random((400, 3)))
    whole = bytearray((tmp_path / "whole.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "whole.npz") as archive:
        begin = archive.infolist()[0].header_offset + 100  # beyond the header
    for at in range(begin, begin + 4000, 400):
        whole[at] ^= 0x40
        (tmp_path / "bad.npz").write_bytes(whole)
        with pytest.raises(InputError, match=r"bad\.npz"):
            run(tmp_path, str(tmp_path / "bad.npz"))
        whole[at] ^= 0x40


def test_memory_does_not_grow_with_the_number_of_items(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        np.savez(tmp_path / "set.npz", x=np.zeros((count, 1000), np.float32))
        tracemalloc.start()
        run(tmp_path / str(count), str(tmp_path / "set.npz"), preprocess=Preprocess(scale=2.0))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(100)
    assert peak(4000) < peak(400) + 2**20  # the data itself is 16 MB


# --------------------------------------------------------------------------- images and preprocessing


def picture(file: Path, value: int, size: tuple[int, int] = (6, 4)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size[1], size[0], 3), value, np.uint8)).save(file)


def test_an_image_folder_by_class(tmp_path: Path) -> None:
    for i in range(4):
        picture(tmp_path / "set" / "cat" / f"{i}.png", i)
        picture(tmp_path / "set" / "ant" / f"{i}.png", 100 + i)
    found = run(tmp_path, str(tmp_path / "set"))
    assert found.facts["label_names"] == ["ant", "cat"]
    assert found.facts["splits"] == {"calibrate": 2, "select": 2, "test": 4}
    values, labels = read(found, "test"), read(found, "test", "labels")
    assert [(v < 100) == bool(label) for v, label in zip(values[:, 0, 0, 0], labels, strict=True)] == [True] * 4


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (("train", "val", "test"), {"calibrate": 2, "select": 2, "test": 4}),  # val chooses, and lends to calibrate
        (("train", "val"), {"calibrate": 1, "select": 1, "test": 2}),
        (("validation",), {"calibrate": 1, "select": 1, "test": 2}),
        (("train", "valid", "select"), {"calibrate": 2, "select": 2, "test": 4}),
    ],
)
def test_splits_may_be_called_as_torchvision_calls_them(
    folders: tuple[str, ...], splits: dict[str, int], tmp_path: Path
) -> None:
    for name in folders:
        for i in range(4):
            picture(tmp_path / "images" / name / "cat" / f"{i}.png", i)
        tensors.write_split(tmp_path / "arrays" / name, {"x": np.zeros((4, 2), np.uint8)})
    np.savez(tmp_path / "set.npz", allow_pickle=False, **{f"{name}.x": np.zeros((4, 2)) for name in folders})
    for place in ("images", "arrays", "set.npz"):
        assert run(tmp_path / "run" / place, str(tmp_path / place)).facts["splits"] == splits, place


def test_two_sets_for_one_split_are_refused(tmp_path: Path) -> None:
    for name in ("val", "select", "test"):
        picture(tmp_path / "set" / name / "cat" / "0.png", 1)
    with pytest.raises(InputError, match=r"has val and select; splits are called .*: rename or remove one"):
        run(tmp_path, str(tmp_path / "set"))


def test_a_class_may_be_called_like_a_split_of_others(tmp_path: Path) -> None:
    for name in ("dev", "ops"):
        for i in range(4):
            picture(tmp_path / "set" / name / f"{i}.png", i)
    assert run(tmp_path, str(tmp_path / "set")).facts["label_names"] == ["dev", "ops"]


def test_class_numbers_follow_the_declared_labels(tmp_path: Path) -> None:
    for split in SPLITS:
        picture(tmp_path / "set" / split / "cat" / "0.png", 1)
    found = run(tmp_path, str(tmp_path / "set"), labels=("dog", "cat"))
    assert read(found, "test", "labels").tolist() == [1]
    with pytest.raises(InputError, match="the source's labels have no 'cat', did you mean 'cats'"):
        run(tmp_path, str(tmp_path / "set"), labels=("cats",))


def test_a_corrupt_image_is_named(tmp_path: Path) -> None:
    for i in range(4):
        picture(tmp_path / "set" / "cat" / f"{i}.png", i)
    (tmp_path / "set" / "cat" / "2.png").write_bytes(b"\x89PNG nonsense")
    with pytest.raises(InputError, match=r"item 2: .*2\.png: not a readable image"):
        run(tmp_path, str(tmp_path / "set"))


def test_an_image_with_too_many_pixels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(3):
        picture(tmp_path / "set" / "cat" / f"{i}.png", i, (40, 40))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(InputError, match=r"too many pixels"):
        run(tmp_path, str(tmp_path / "set"))


def test_images_of_different_sizes_need_preprocessing(tmp_path: Path) -> None:
    for i in range(4):
        picture(tmp_path / "set" / "cat" / f"{i}.png", i, (8 + i, 6))
    with pytest.raises(InputError, match=r"make them the same \(images: \[preprocess\] resize, crop; "):
        run(tmp_path / "a", str(tmp_path / "set"))
    declared = Preprocess(resize=4, crop=4, scale=1 / 255, mean=(0.5,), std=(0.25,), layout="NCHW")
    found = run(tmp_path / "b", str(tmp_path / "set"), preprocess=declared)
    assert found.inputs[0].shape[1:] == (3, 4, 4)
    assert found.inputs[0].layout == "NCHW"
    assert found.facts["preprocess"]["resize"] == 4


RAW = Preprocess(resize=4, crop=4, scale=1 / 255, layout="NCHW")


def agrees(found: Artifact) -> bool:
    """Whether the raw item, preprocessed, is the first test item."""
    raw = np.load(found.path / "raw" / "input.npy")
    made = preprocess.numbers(preprocess.geometry(raw, RAW)[None], RAW)
    return raw.dtype == np.uint8 and bool((made == read(found, "test", "input")[:1]).all())


@pytest.mark.parametrize("splits", [("",), ("calibrate", "select", "test"), ("calibrate",), ("calibrate", "test")])
def test_the_first_test_item_is_kept_as_it_came(tmp_path: Path, splits: tuple[str, ...]) -> None:
    for split in splits:
        for i in range(9):
            picture(tmp_path / "set" / split / "cat" / f"{i}.png", i + 10 * len(split), (8 + i, 6))
    for name, limit in (("all", None), ("some", 2)):
        found = run(tmp_path / name, str(tmp_path / "set"), preprocess=RAW, samples=limit, seed=3)
        assert agrees(found), name


def test_nothing_is_kept_where_nothing_is_preprocessed(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.arange(40))
    assert not (run(tmp_path, str(tmp_path / "set.npz")).path / "raw").exists()


def test_data_that_gives_another_item_when_it_is_read_again_keeps_none(
    tmp_path: Path, factory: Callable[[Fn], str]
) -> None:
    drawn = np.random.default_rng(0)
    noise = factory(lambda split: (drawn.integers(0, 256, (6, 6, 3)).astype(np.uint8) for _ in range(4)))
    assert not (run(tmp_path, noise, preprocess=RAW).path / "raw").exists()
    steady = factory(lambda split: iter([np.full((6, 6, 3), i, np.uint8) for i in range(4)]))
    assert agrees(run(tmp_path / "steady", steady, preprocess=RAW))


def test_preprocessing_applies_in_its_stated_order() -> None:
    raw = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 3)
    declared = Preprocess(colour="BGR", scale=2.0, mean=(1.0, 2.0, 3.0), std=(4.0, 5.0, 6.0), layout="NCHW")
    found = preprocess.numbers(preprocess.geometry(raw, declared)[None], declared)[0]
    for y, x, c in np.ndindex(2, 2, 3):
        expected = (float(raw[y, x, 2 - c]) * 2 - declared.mean[c]) / declared.std[c]
        assert found[c, y, x] == pytest.approx(expected, rel=1e-6)


@given(st.integers(4, 40), st.integers(4, 40), st.integers(4, 20))
def test_resize_and_crop_are_pillows(height: int, width: int, size: int) -> None:
    raw = np.random.default_rng(height * width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    found = preprocess.geometry(raw, Preprocess(resize=size, crop=size))
    short = min(height, width)
    shape = (int(size * width / short), int(size * height / short))
    rows = Image.fromarray(raw).resize((shape[0], height), Image.Resampling.BILINEAR)
    whole = np.asarray(rows.resize(shape, Image.Resampling.BILINEAR)) if short != size else raw
    top, left = round((shape[1] - size) / 2), round((shape[0] - size) / 2)
    assert np.array_equal(found, whole[top : top + size, left : left + size])


def test_grey_is_pillows_grey() -> None:
    raw = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    found = preprocess.geometry(raw, Preprocess(colour="GRAY"))
    assert np.array_equal(found[:, :, 0], np.asarray(Image.fromarray(raw).convert("L")))


def test_a_grey_array_gets_its_channel() -> None:
    declared = Preprocess(colour="GRAY", layout="NCHW")
    assert preprocess.numbers(preprocess.geometry(np.ones((8, 8), np.uint8), declared)[None], declared).shape == (
        1,
        1,
        8,
        8,
    )


def test_arithmetic_alone_takes_any_array() -> None:
    declared = Preprocess(scale=0.5)
    found = preprocess.numbers(preprocess.geometry(np.array([2, 4], np.int16), declared)[None], declared)
    assert found.tolist() == [[1.0, 2.0]]
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("declared", "raw", "says"),
    [
        (Preprocess(layout="NCHW"), np.ones((8, 8), np.uint8), 'the images are grayscale.*set colour = "GRAY"'),
        (Preprocess(layout="NCHW"), np.ones((8, 8, 4), np.uint8), r"leave its alpha out: image\[:, :, :3\]"),
        (Preprocess(layout="NCHW"), np.ones(8, np.uint8), r"an image must be \[height, width\]"),
        (Preprocess(crop=9), np.ones((8, 8, 3), np.uint8), "crop 9 of an image of 8 x 8"),
        (Preprocess(resize=4), np.ones((8, 8, 3), np.float32), "resize takes uint8 images, not float32"),
        (Preprocess(mean=(1.0, 2.0)), np.ones((8, 8, 3), np.uint8), "mean has 2 values, the data has 3 channels"),
        (Preprocess(input="image"), np.ones(3), "the data has no 'image'"),
    ],
)
def test_preprocessing_that_does_not_fit(
    tmp_path: Path, factory: Callable[[Fn], str], declared: Preprocess, raw: np.ndarray, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        run(tmp_path, factory(lambda split: iter([raw])), preprocess=declared)


# --------------------------------------------------------------------------- random


def test_random_data_follows_the_models_inputs(tmp_path: Path) -> None:
    batch = Dim("batch", 1, 9)
    inputs = (TensorSpec("x", (batch, 3, 4)), TensorSpec("ids", (batch, Dim("seq", 5, 9)), "int64"))
    found = run(tmp_path, "random", inputs={"source": Artifact(tmp_path, "onnx", inputs)})
    assert found.facts["random"]
    assert found.facts["splits"] == {"calibrate": 64, "select": 64, "test": 64}
    assert read(found, "test", "x").shape == (64, 3, 4)
    assert set(np.unique(read(found, "test", "ids"))) == {0, 1}
    assert not np.array_equal(read(found, "test", "x"), read(found, "calibrate", "x"))


def test_random_data_needs_a_model_that_states_its_inputs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="random data needs a model file that declares its inputs"):
        run(tmp_path, "random")


def photographs(folder: Path) -> Path:
    """Four classes of two images."""
    for number, name in enumerate("abcd"):
        (folder / name).mkdir(parents=True)
        for each in range(2):
            Image.new("RGB", (4, 4), (60 * number, each, 0)).save(folder / name / f"{each}.png")
    return folder


@pytest.mark.parametrize("name", ["__MACOSX", ".ipynb_checkpoints", ".cache"])
def test_a_folder_that_is_no_class_moves_no_label(name: str, tmp_path: Path) -> None:
    images = photographs(tmp_path / "images")
    before = tensors.labels(run(tmp_path / "before", str(images)), "test")
    (images / name).mkdir()
    (images / name / "0.png").write_bytes(b"")
    after = tensors.labels(run(tmp_path / "after", str(images)), "test")
    assert before is not None and after is not None and np.array_equal(before, after) and set(before) <= {0, 1, 2, 3}


def test_a_class_without_images_is_refused_unless_the_classes_are_named(tmp_path: Path) -> None:
    images = photographs(tmp_path / "images")
    (images / "bb").mkdir()
    with pytest.raises(InputError, match="the folder 'bb' has no image; remove it, or name the classes as `labels`"):
        run(tmp_path, str(images))
    assert run(tmp_path, str(images), labels=["a", "b", "bb", "c", "d"]).path


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("2024/cat/0.png", "it has 2024/cat/0.png, which must be CLASS/IMAGE or SPLIT/CLASS/IMAGE"),
        ("train/2024/cat/0.png", None),
        ("training/x.npy", r"it has training/x.npy, which must be INPUT.npy or SPLIT/INPUT.npy \(splits: calibrate, "),
        ("test/cat/notes.txt", r"no images in one folder per class$"),
    ],
)
def test_data_that_lies_elsewhere_is_named_with_its_place(file: str, says: str | None, tmp_path: Path) -> None:
    place = tmp_path / "data" / file
    place.parent.mkdir(parents=True)
    place.write_bytes(b"")
    with pytest.raises(InputError, match=says or "has items to train on alone"):
        run(tmp_path, str(tmp_path / "data"))


def test_an_image_of_a_kind_that_is_not_read_is_named(tmp_path: Path) -> None:
    images = photographs(tmp_path / "images")
    (images / "b" / "1.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(InputError, match=r"1\.HEIC: images of this kind are not read, only \.bmp, .*convert it"):
        run(tmp_path, str(images))
    (images / "b" / "1.HEIC").rename(images / "b" / "notes.txt")
    assert run(tmp_path, str(images)).path


@pytest.mark.parametrize("name", ["net.onnx", "data.npz"])
def test_a_link_has_its_own_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "blobs" / "571b").write_bytes(b"x")
    (tmp_path / "snapshot" / name).symlink_to("../blobs/571b")
    monkeypatch.chdir(tmp_path)
    key = "model" if name.endswith("onnx") else "data"
    found = catalog.source("nets:build", {key: f"snapshot/{name}"}).value
    assert getattr(found, key) == str(tmp_path / "snapshot" / name)
