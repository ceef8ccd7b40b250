"""One reader under libFuzzer, until its runs or seconds are over: `python -m fuzz.child TARGET FOLDER WORK -runs=1000`.

FOLDER has `corpora`; findings are written to its `findings`, one file for each fault, and the search goes on. In WORK
an input is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["edgecompress"]):  # our modules, not the libraries
    from fuzz import guard


STRUCTURED = 0.6  # of the changes, where a target has such


class Hunt:
    """What is found in one reader, each fault once."""

    def __init__(self, target: Any, place: Path, folder: Path) -> None:
        self.check, self.structured, self.place = target.check, getattr(target, "changed", None), place
        self.faults: set[str] = set()
        self.folder = folder

    def one(self, data: bytes) -> None:
        """Reads one input."""
        finding = guard.judged(self.check, data, guard.emptied(self.folder))
        if finding and finding.what not in self.faults:
            self.faults.add(finding.what)
            self.keep(finding)

    def mutated(self, data: bytes, longest: int, seed: int) -> bytes:
        """Most of the time what a target knows to change of its structure, else libFuzzer's changes of bytes."""
        random = Random(seed)
        if self.structured and random.random() < STRUCTURED:
            with contextlib.suppress(Exception):  # what was changed as bytes before may have no structure any more
                changed: bytes = self.structured(data, random)
                if len(changed) <= longest:
                    return changed
        return bytes(atheris.Mutate(data, longest))

    def keep(self, finding: guard.Finding) -> None:
        """The bytes by their digest, and beside them what is wrong."""
        file = self.place / hashlib.sha256(finding.data).hexdigest()[:16]
        file.write_bytes(finding.data)
        file.with_suffix(".json").write_text(json.dumps({"what": finding.what, "how": finding.how}))


def main() -> None:
    """Never comes back: libFuzzer ends the process."""
    name, folder, work, *flags = sys.argv[1:]
    place = Path(folder)
    with atheris.instrument_imports(include=["edgecompress"]):
        target = importlib.import_module(f"fuzz.targets.{name}")
        hunt = Hunt(target, place / "findings", Path(work) / "input")
        guard.warm(target.check, sorted((place / "corpora").iterdir()), hunt.folder)
    words = place / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.WORDS))
    inputs = [str(place / name) for name in ("corpus", "corpora", "regressions")]  # the first one grows
    own = [f"-dict={words}", f"-artifact_prefix={place}/crash/", *inputs]
    atheris.Setup([sys.argv[0], *flags, *own], hunt.one, custom_mutator=hunt.mutated)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
