"""What runs on a node of a cluster: who it is, what a device tells of itself, and a stage of a plan.

Text comes in and goes out: paths, digests, names and settings as JSON. No net, no array and no class crosses the wire.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from edgecompress.core import environments, file_lock, home, registry
from edgecompress.core.errors import EdgeError, StageFailed, Unreachable, first_line
from edgecompress.core.json import Json
from edgecompress.extras.fleet import health
from edgecompress.extras.fleet.lease import leased
from edgecompress.pipeline import code_digest, job, stage_order
from edgecompress.pipeline.store import Store, key_of

THREADS = "OMP_NUM_THREADS"  # which Ray sets to 1: sums and times would be others than without a cluster


class About(TypedDict):
    """A node: its host, its versions by name, and what makes the answers of two machines comparable."""

    host: str
    versions: dict[str, str]
    here: dict[str, Json]


class Ended(TypedDict, total=False):
    """How a stage ended on a node: the key of its result, or the class of an error and its line; and when and where."""

    key: str
    error: str
    message: str
    node: str
    pid: int
    began: float  # seconds since 1970
    ended: float
    device: str
    refused: str  # why the device was not used: its health


def about() -> str:
    """An About."""
    modules = [module for kind in ("runtimes", "techniques") for _, module in registry.every(kind)]
    named = {environments.package(required) for module in modules for required in module.REQUIRES}
    engines = {name: found for name in sorted(named) if (found := environments.version(name))}
    versions = {"edgecompress": code_digest.of_package(), "python": platform.python_version(), **engines}
    told = About(
        host=socket.gethostname(), versions=versions, here=job.stable(job.facts_of("host", {"transport": "host"}))
    )
    return json.dumps(told)


def facts_of(name: str, device: str) -> str:
    """What a device tells of itself, as JSON, or how that failed."""
    try:
        return json.dumps(job.facts_of(name, json.loads(device)))
    except EdgeError as error:
        return json.dumps({"error": type(error).__name__, "message": str(error)})


def do(text: str) -> str:
    """Does a stage: an order as `stage_order.as_text` writes it, with the folders of the store and of the run."""
    asked: Mapping[str, Any] = json.loads(text)
    told = Ended(node=socket.gethostname(), pid=os.getpid(), began=time.time())
    try:
        order, device = stage_order.of_text(asked["order"]), asked["device"]
        for folder in (asked["folder"], asked["store"]):
            if not os.path.isdir(folder):
                raise StageFailed(
                    f"{order.stage.name}: node {socket.gethostname()} has no folder {folder}: the store, the models "
                    "and the folder that you run in must be on a disk that all nodes share, at the same path"
                )
        os.chdir(asked["folder"])
        os.environ.pop(THREADS, None)
        store, measures = Store(Path(asked["store"])), order.stage.max_age_s is not None
        with contextlib.ExitStack() as held:
            if device:
                held.enter_context(leased(store, device, order.stage.name, asked["patience_s"]))
                if measures and (why := health.ill(order.context.device)):
                    told["refused"], told["device"] = why, device
                    raise Unreachable(f"device {device}: {why}")
            held.enter_context(_turn(order.stage.alone))
            # an attempt that was lost with its node may still work: it has the key
            held.enter_context(store.locked(f"work-{key_of(order.parts)}"))
            told |= Ended(began=time.time(), device=device)
            told["key"] = stage_order.make(store, order, lambda _done, _what: None, threading.Event()).key
    except EdgeError as error:
        told |= Ended(error=type(error).__name__, message=str(error))
    except OSError as error:
        told |= Ended(error=StageFailed.__name__, message=f"node {socket.gethostname()}: {first_line(error)}")
    told["ended"] = time.time()
    return json.dumps(told)


@contextlib.contextmanager
def _turn(alone: bool) -> Iterator[None]:
    """This host, with others that build, or alone: who waits to be alone comes before who would build.

    Two nodes on one host wait for each other, too.
    """
    folder = home.state() / "fleet"
    folder.mkdir(parents=True, exist_ok=True)
    if alone:
        with file_lock.held(folder / "gate.lock"), file_lock.held(folder / "host.lock"):
            yield
        return
    with file_lock.held(folder / "gate.lock", shared=True):
        pass
    with file_lock.held(folder / "host.lock", shared=True):
        yield
