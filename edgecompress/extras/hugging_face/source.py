"""What the core asks of a source that is a Hugging Face folder, by its files alone: no library is imported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgecompress.core.errors import InputError
from edgecompress.core.settings import SPLITS, TRAIN, Source
from edgecompress.extras.hugging_face import pretrained_folder

LENGTH = "length"  # the dimension of texts of several lengths


def resolved(source: Source) -> Source:
    """The source with what its folder says of pictures and of texts of several lengths.

    Raises InputError where its net is for no task that is known.
    """
    folder = Path(source.model)
    pretrained_folder.task(folder, source.task)
    if source.preprocess is None and _pictures(Path(source.data)):
        source = replace(source, preprocess=pretrained_folder.preprocess(folder))
    if len(source.lengths) > 1:
        axes = {"1": f"{LENGTH}:{source.lengths[0]}..{source.lengths[-1]}"}
        own = dict.fromkeys(pretrained_folder.text_inputs(folder), axes)
        source = replace(source, dynamic={**own, **source.dynamic})
    return source


def _pictures(data: Path) -> bool:
    """Whether data is a folder, and not one of arrays, which are as the model takes them."""
    places = (data, *(data / split for split in (*SPLITS, TRAIN)))
    return data.is_dir() and not any(file for place in places for file in place.glob("*.npy"))


def check(source: Source, texts: bool) -> None:
    """Raises InputError for weights that are not there, and for a tokenizer that is not, where the data is `texts`."""
    folder = Path(source.model)
    if texts and not pretrained_folder.has_tokenizer(folder):
        raise InputError(
            f"{source.model}: has no tokenizer for texts; save it there with tokenizer.save_pretrained, or give a "
            "function pkg.mod:fn as data"
        )
    pretrained_folder.check_weights(folder)
