"""A stage to be done, as plain data: whoever shares the folder of the store can do it, in this process or elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edgecompress.core import plain_file
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Context, Stage
from edgecompress.pipeline import confinement, side_by_side, worker_process
from edgecompress.pipeline.side_by_side import Turns
from edgecompress.pipeline.store import Receipt, Store, StoredResult, key_of
from edgecompress.pipeline.worker_process import Patience
from edgecompress.pipeline.worker_protocol import ContextFields, StageRequest

TUPLES = ("variants", "context", "plugins", "user_files")  # of a stage, which JSON knows as lists
Tell = Callable[[float, str], None]  # how far a stage is, 0..1, and what it does


@dataclass(frozen=True)
class Order:
    """A stage, the folders of its inputs by role, what its key is made of, and what it may know of the run.

    `fork_of`: the digest of this package where the fork server is to start its worker; `alone`: nothing works beside.
    """

    stage: Stage
    inputs: Mapping[str, str]
    parts: Mapping[str, Json]
    context: Context
    path: Sequence[str] = ()
    offline: bool = False
    fork_of: str = ""
    alone: bool = True


class Place(Protocol):
    """Where stages are done."""

    def make(self, store: Store, order: Order, tell: Tell, over: threading.Event) -> StoredResult:
        """Does a stage whose key this process has locked, and stores the result. Raises EdgeError.

        `over` is set when nobody waits for it any more.
        """

    def fits(self, inputs: Iterable[Artifact]) -> bool:
        """Whether there is room for a stage with these inputs beside those that work."""


@dataclass
class Here:
    """This machine: several stages that build, or one that measures or trains."""

    turns: Turns = field(default_factory=Turns)

    def make(self, store: Store, order: Order, tell: Tell, over: threading.Event) -> StoredResult:
        """In a worker process."""
        # what measures does so in one run at a time, and what is alone waits until nothing else works
        measuring = store.locked("measuring") if order.stage.max_age_s is not None else contextlib.nullcontext()
        with self.turns.alone() if order.stage.alone else self.turns.building(), measuring:
            return make(store, order, tell, over)

    def fits(self, inputs: Iterable[Artifact]) -> bool:
        """By the memory that is free."""
        return side_by_side.room(inputs)


def make(store: Store, order: Order, tell: Tell, over: threading.Event) -> StoredResult:
    """Has a worker process do a stage, and stores the result. Raises EdgeError."""
    stage = order.stage
    inputs = {role: Artifact.read(Path(folder)) for role, folder in order.inputs.items()}
    store.require_room(2 * sum(artifact.size_bytes for artifact in inputs.values()))
    scratch = store.scratch(key_of(order.parts))
    keep, log = store.keep(scratch.name), store.log(stage.name)
    size = confinement.input_bytes(stage, inputs)
    folders = (str(scratch / "artifact"), str(scratch / "tmp"), str(keep))
    request: StageRequest = {
        "stage": stage.name,
        "call": stage.call,
        "inputs": dict(order.inputs),
        "out": folders[0],
        "keep": str(keep),
        "options": stage.options,
        "context": _context(order),
        "observes": stage.observes,
        "reads": list(stage.reads),
        "path": list(order.path) if stage.user_code else [],
        "store": str(store.root),
        "offline": order.offline,
        "limits": dataclasses.asdict(
            confinement.limits(stage, size, folders, order.context.device, order.offline),
        ),
    }
    patience = Patience(confinement.deadline_s(stage, size), stage.silence_s, over)
    begin = time.monotonic()
    for message in worker_process.answers(request, scratch, log, patience, order.fork_of, order.alone):
        if "done" in message:
            plain_file.check_tree(scratch / "artifact", stage.name)
            (scratch / "request.json").unlink()
            shutil.rmtree(scratch / "tmp", ignore_errors=True)
            receipt = Receipt(
                stage=stage.name,
                wall_s=time.monotonic() - begin,
                log=str(log),
                files=message["files"],
                modules=message["modules"],
            )
            entry = store.commit(scratch, order.parts, receipt)
            store.release(scratch.name)
            return entry
        tell(min(1.0, max(0.0, message["progress"])), message["what"])
    raise AssertionError("a worker's answers end with its last")


def as_text(order: Order) -> str:
    """An order as JSON."""
    return json.dumps(dataclasses.asdict(order), default=str)


def of_text(text: str) -> Order:
    """The order in a text of `as_text`. Raises KeyError, TypeError, ValueError for any other."""
    table = json.loads(text)
    stage: dict[str, Any] = {n: tuple(value) if n in TUPLES else value for n, value in table.pop("stage").items()}
    context, path = Context(**table.pop("context")), tuple(table.pop("path"))
    return Order(Stage(**stage), context=context, path=path, **table)


def _context(order: Order) -> ContextFields:
    """What the stage may know of the run: the fields that it names, the others as they are by default."""
    known, default = order.context, Context()
    seed, threads, batch, device, here = (
        known if name in order.stage.context else default for name in ("seed", "threads", "batch", "device", "here")
    )
    return ContextFields(
        seed=seed.seed, threads=threads.threads, batch=batch.batch, device=device.device, here=here.here
    )
