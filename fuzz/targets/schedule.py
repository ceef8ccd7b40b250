"""A stranger's schedule: Distiller's YAML."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from random import Random

from edgecompress.core.plain_text import one_line
from edgecompress.extras.schedules import reader

CLASSES = [cls for _, classes, args in reader.KINDS.values() for cls in (*classes.values(), args)]
KEYS = {field.name for cls in CLASSES for field in dataclasses.fields(cls)}
NAMES = {name for _, classes, _ in reader.KINDS.values() for name in classes}
WORDS = (*(word.encode() for word in sorted(KEYS | NAMES | {*reader.SECTIONS})), b"&a", b"*a", b"!!", b"? ", b"<<: ")


def check(data: bytes, folder: Path) -> None:
    """What is read acts at epochs of its own, and is warned of in lines."""
    file = folder / "theirs.yaml"
    file.write_bytes(data)
    schedule = reader.read(file)
    for policy in schedule.policies:
        assert policy.starting in policy.epochs and policy.ending not in policy.epochs
        assert policy.instance in schedule.instances[reader.KINDS[policy.kind][0]].values()
    assert all(one_line(warning) == warning for warning in schedule.warnings)


def changed(data: bytes, random: Random) -> bytes:
    """The file with a line left out, put elsewhere, or with what another line says of its key."""
    text = data.decode().split("\n")
    place, other = random.randrange(len(text)), random.randrange(len(text))
    key, between, _ = text[place].partition(":")
    if between and random.random() < 0.5:
        text[place] = f"{key}:{text[other].partition(':')[2]}"
    else:
        text.insert(other, text.pop(place))
    return "\n".join(text).encode()
