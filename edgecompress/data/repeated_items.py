"""Items that occur more than once: they tell less than their number, and a test item seen before judges too well."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from edgecompress.data import tensors

if TYPE_CHECKING:
    import numpy as np

DIGEST_BYTES = 16  # two of a billion items are alike by chance with a probability below 1e-20


class RepeatedItems(TypedDict):
    """Of the test items: how many are copies of an earlier one, and how many are in another split too."""

    within: int
    elsewhere: int


class ItemWriter(tensors.Appender):
    """Writes a split and remembers a digest of each item's inputs; labels are left out."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.digests: list[bytes] = []

    def append(self, arrays: Mapping[str, np.ndarray]) -> None:
        """One chunk, as `tensors.Appender.append`."""
        import numpy as np

        super().append(arrays)
        inputs = [arrays[name] for name in sorted(arrays) if name != tensors.LABELS]
        for item in zip(*inputs, strict=True):
            digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
            for value in item:
                digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
            self.digests.append(digest.digest())


def counted(writers: Mapping[str, ItemWriter]) -> RepeatedItems:
    """What the splits "test" and the others have in common."""
    test = writers["test"].digests
    others = {digest for split, writer in writers.items() if split != "test" for digest in writer.digests}
    return {"within": len(test) - len({*test}), "elsewhere": sum(digest in others for digest in test)}
