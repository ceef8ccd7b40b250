"""The word language model of Distiller's tutorial: its sizes, its published zeros, and its text."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_examples

from edgecompress.extras.schedules.scheduler import CompressionScheduler

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

EXAMPLE = test_examples.EXAMPLES / "word_language_model"
WEIGHTS = {"small": 7_295_600, "medium": 28_390_700, "large": 85_917_000}  # without biases, the tied matrix once
# of `large`, from the tables of the tutorial; the shares are those of the embedding and of the recurrent layers
PUBLISHED = {
    "agp_70": (25_775_100, 0.70, 0.70),
    "agp_70_embedding": (25_487_550, 0.85, 0.50),
    "agp_80": (16_847_550, 0.85, 0.74),
    "agp_90": (8_591_700, 0.90, 0.90),
    "agp_95": (4_295_850, 0.95, 0.95),
}
THEIRS = {"agp_70": "LARGE_70", "agp_80": "LARGE_80"}


def matrices(made: Any) -> dict[str, Any]:
    return {name: weight for name, weight in made.named_parameters() if weight.ndim > 1}


def drawn(size: str) -> Any:
    """The net with random weights of which no two are equally large: equal ones go together."""
    made = getattr(test_examples.net("word_language_model"), size)()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in matrices(made).values():
            bits = torch.randperm(weight.numel(), generator=generator, dtype=torch.int32) + 0x3A000000
            signs = torch.randint(0, 2, (weight.numel(),), generator=generator) * 2 - 1
            weight.copy_((bits.view(torch.float32) * signs).reshape(weight.shape))
    return made


def kept(file: Path, made: Any) -> int:
    """The weights that are not zero after the last epochs of a schedule's pruners."""
    scheduler = CompressionScheduler(made, torch.optim.SGD(made.parameters(), 1.0), file)
    for epoch in sorted({policy.epochs[-1] for policy in scheduler.schedule.policies}):
        scheduler.on_epoch_begin(epoch)
        scheduler.on_minibatch_begin(epoch, 0, 1)
    return sum(int(weight.count_nonzero()) for weight in matrices(made).values())


@pytest.mark.parametrize(("name", "weights"), WEIGHTS.items())
def test_the_nets_have_the_weights_that_the_tutorial_tells(name: str, weights: int) -> None:
    with torch.device("meta"):
        made = getattr(test_examples.net("word_language_model"), name)()
    assert sum(weight.numel() for weight in matrices(made).values()) == weights


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_schedule_leaves_the_share_that_it_names(name: str) -> None:
    made = drawn("small")
    _, embedding, recurrent = PUBLISHED[name]
    shares = {n: embedding if n == "encoder.weight" else recurrent for n in matrices(made)}
    wanted = sum(w.numel() - int(shares[n] * w.numel()) for n, w in matrices(made).items())
    assert kept(EXAMPLE / f"{name}.yaml", made) == wanted


@pytest.mark.prove
@pytest.mark.shared
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_numbers_of_weights_are_left(name: str, shared_data: Path) -> None:
    assert kept(EXAMPLE / f"{name}.yaml", drawn("large")) == PUBLISHED[name][0]
    if name in THEIRS:
        file = f"agp-pruning/word_lang_model.{THEIRS[name]}.schedule_agp.yaml"
        assert kept(shared_data / "distiller_schedules" / file, drawn("large")) == PUBLISHED[name][0]


# --------------------------------------------------------------------------- text


def text(folder: Path, monkeypatch: pytest.MonkeyPatch, **words: str) -> Any:
    """The example with a text of one's own."""
    example = test_examples.net("word_language_model")
    for name in ("train", "valid", "test"):
        (folder / f"{name}.txt").write_text(words.get(name, "a b\n" * 50), encoding="utf-8")
    monkeypatch.setenv("WIKITEXT2", str(folder))
    return example


def test_the_items_of_a_text_are_its_words_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = text(tmp_path, monkeypatch, train="the cat \n sat \n" * 40)
    items = list(example.wikitext("train"))
    assert len(items) == (40 * 5 - 1) // 35  # "the cat <eos> sat <eos>"
    here, behind = (np.concatenate(part) for part in zip(*items, strict=True))
    assert np.array_equal(here[1:], behind[:-1])
    assert here[:6].tolist() == [0, 1, 2, 3, 2, 0]


@pytest.mark.parametrize(("words", "said"), [("", "0 words"), ("one", "2 words"), ("a " * 34, "35 words")])
def test_a_text_that_is_too_short_is_told(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=rf"valid\.txt: {said}; an item takes 36"):
        text(tmp_path, monkeypatch, valid=words).wikitext("select")


def test_a_text_that_is_not_there_is_told_with_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = text(tmp_path, monkeypatch)
    (tmp_path / "train.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"train\.txt: not there; set WIKITEXT2 to the folder"):
        example.wikitext("train")


@pytest.mark.shared
def test_the_stories_have_the_words_that_the_net_knows(shared_data: Path) -> None:
    example = test_examples.net("word_language_model")
    for split in example.SHARES:
        items = list(example.stories(split))
        assert max(int(part.max()) for item in items for part in item) < example.STORIES
    with gzip.open(shared_data / "data" / "tinystories_2MiB.txt.gz", "rt", encoding="utf-8") as file:
        assert len(example._stories()[0]) > len(file.read().split())
