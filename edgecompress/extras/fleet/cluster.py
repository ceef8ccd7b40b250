"""A Ray cluster as the place where stages are done: Ray decides on which node, by what each node has."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from edgecompress.core import environments
from edgecompress.core.errors import InputError, StageFailed, Unreachable, first_line, kind_of
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact
from edgecompress.extras.fleet import node
from edgecompress.extras.fleet.node import About, Ended
from edgecompress.pipeline import stage_order
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.stage_order import Here, Order, Tell
from edgecompress.pipeline.store import Store, StoredResult

REQUIRES = ("ray[client]>=2.55",)
EXTRA = "fleet"

SCHEME = "ray://"
DEVICE = "device:"  # before the name of a device, in the resources of the node that reaches it
JOBS = 8  # stages of a plan at once: Ray has them wait for a node
LOST = 3  # times that a stage is done again whose node or process was lost
ILL = 3  # times that a device may be unfit before it is left alone, and the seconds between them
ILL_S = 20.0
LEASE_S = 3600.0  # that a stage waits for a device that another run uses
GONE_S = 60.0  # that a device may be without its node
LOOK_S = 1.0  # between two looks at who is there
ANSWER_S = 5.0  # after which who waits looks whether there is still reason to: each look costs the head
REPORT = "stages.report:run"  # which tells of the device, and asks it nothing
REACH_S = 5.0
STARTING = "Starting Ray client server failed"
AUTH = "RAY_AUTH_MODE"  # in the environment: "token", or "disabled" where you say so


def connected(address: str) -> Cluster:
    """The cluster at ray://HOST:PORT, once in a process. Raises MissingDependency, InputError, Unreachable."""
    environments.require(sys.modules[__name__], f"--on {address}")
    if not address.startswith(SCHEME) or ":" not in address.removeprefix(SCHEME):
        raise InputError(f"--on {address}: give local, or the address of a cluster: ray://HOST:10001")
    return _cluster(address)


@cache
def _cluster(address: str) -> Cluster:
    os.environ.setdefault(AUTH, "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what is deployed here is nobody's business
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # to another cluster of this machine, where the connection has ended
    host, _, port = address.removeprefix(SCHEME).rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise Unreachable(
            f"--on {address}: nobody listens there ({first_line(error)}); start a head with --ray-client-server-port"
        ) from error
    import ray

    for times in range(1, LOST + 1):  # a head that has just begun refuses the first one
        try:
            with warnings.catch_warnings(action="ignore"):  # it is told below
                ray.init(address, log_to_driver=False, logging_level="ERROR")
            break
        except Exception as error:  # Ray's own classes, and those of gRPC
            if times < LOST and STARTING in str(error):
                continue
            hint = "is that the --ray-client-server-port of a head, and ~/.ray/auth_token the one of that head"
            raise Unreachable(
                f"--on {address}: no connection ({first_line(error)}); {hint}? {AUTH}=disabled where it has none"
            ) from error
    cluster = Cluster(address)
    cluster.look()
    return cluster


@dataclass
class Cluster:
    """A connection: its nodes, those that are refused and why, and the devices that are left alone."""

    address: str
    nodes: dict[str, About] = field(default_factory=dict)  # by Ray's name
    refused: dict[str, str] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    _hears: list[Callable[[Mapping[str, Json]], None]] = field(default_factory=list)
    _own: Mapping[str, str] = field(default_factory=lambda: json.loads(node.about())["versions"])
    _over: threading.Event = field(default_factory=threading.Event)
    _looked: float = 0.0
    _looking: threading.Lock = field(default_factory=threading.Lock)
    _have: set[str] = field(default_factory=set)  # devices of nodes that are alive

    def look(self) -> None:
        """Asks nodes that joined for their versions. Raises InputError where none has those that are here."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

        own = self._own
        alive = [each for each in ray.nodes() if each["Alive"]]
        self._have = {
            name.removeprefix(DEVICE) for each in alive for name in each["Resources"] if name.startswith(DEVICE)
        }
        about = ray.remote(node.about)
        for each in alive:
            name, host = each["NodeID"], each["NodeManagerHostname"]
            if name in self.nodes or name in self.refused:
                continue
            try:
                asked = about.options(num_cpus=0, scheduling_strategy=On(name, soft=False)).remote()
                told: About = json.loads(ray.get(asked, timeout=GONE_S))
            except Exception as error:  # it is gone, or has no edgecompress
                self._refuse(name, f"node {host}: cannot run edgecompress ({first_line(error)}); install it there")
                continue
            theirs = told["versions"]
            unlike = [key for key in sorted({*own, *theirs}) if own.get(key) != theirs.get(key)]
            if unlike:
                words = [f"{key} {theirs.get(key, 'missing')}, here {own.get(key, 'missing')}" for key in unlike[:3]]
                more = f" and {len(unlike) - 3} more" if len(unlike) > 3 else ""
                self._refuse(name, f"node {host}: has {'; '.join(words)}{more}; install the same there")
            else:
                self.nodes[name] = told
        self._looked = time.monotonic()
        if not self.nodes:
            raise InputError(f"--on {self.address}: {next(iter(self.refused.values()), 'it has no node')}")

    def _refuse(self, name: str, why: str) -> None:
        self.refused[name] = why
        print(f"edgecompress: warning: {why}; nothing is done on it", file=sys.stderr)

    @contextlib.contextmanager
    def logged(self, hear: Callable[[Mapping[str, Json]], None]) -> Iterator[None]:
        """In the block `hear` hears of each stage that ended: where, when, on which device."""
        self._hears.append(hear)
        try:
            yield
        finally:
            self._hears.remove(hear)

    def stopped(self) -> bool:
        """Whether what waits for a node was ended."""
        return self._over.is_set()

    @contextlib.contextmanager
    def stopped_by_errors(self) -> Iterator[None]:
        """What the block raises (Ctrl-C) ends all that waits for a node."""
        try:
            yield
        except BaseException:
            self._over.set()
            raise

    def has(self, device: str) -> bool:
        """Whether a node that is alive has a device; nodes are looked at again after seconds."""
        with self._looking:
            if time.monotonic() - self._looked > LOOK_S:
                with contextlib.suppress(InputError):
                    self.look()
        return device in self._have

    def facts_of(self, name: str, device: Mapping[str, Json]) -> dict[str, Json]:
        """What a device tells of itself to the node that has it. Raises Unreachable."""
        import ray

        if not self.has(name):
            raise Unreachable(_nobody(name, self.address))
        asked = ray.remote(node.facts_of).options(num_cpus=0, resources={DEVICE + name: 0.001}, max_retries=LOST)
        told = json.loads(self._answer(asked.remote(name, json.dumps(device)), threading.Event(), name))
        if "error" in told:
            raise kind_of(told["error"])(told["message"])
        return dict(told)

    def _answer(self, reference: Any, over: threading.Event, device: str) -> str:
        """What a task answers. Raises StageFailed where it was lost for good, Unreachable where its device was."""
        import ray
        from ray.exceptions import GetTimeoutError

        gone_s = 0.0
        while True:
            try:
                return str(ray.get(reference, timeout=ANSWER_S))
            except GetTimeoutError:
                gone_s = 0.0 if not device or self.has(device) else gone_s + ANSWER_S
            except Exception as error:  # Ray's own classes: a node was lost LOST times, or the cluster is gone
                raise StageFailed(f"{self.address}: the work was lost ({first_line(error)})") from error
            ended = over.is_set() or self._over.is_set()
            if ended or gone_s > GONE_S:
                ray.cancel(reference, force=True)
                if ended:
                    raise StageFailed("stopped, as the run ended")
                raise Unreachable(f"{_nobody(device, self.address)} any more")

    def make(self, store: Store, order: Order, over: threading.Event, device: str, like: Sequence[str]) -> StoredResult:
        """Has a node do a stage, one of `like` if it names any; a device that stays unfit is left alone."""
        import ray

        text = json.dumps(
            {"order": stage_order.as_text(order), "store": str(store.root), "folder": os.getcwd(), "device": device}
            | {"patience_s": LEASE_S}
        )
        for times in range(1, ILL + 1):
            if self._over.is_set():
                raise StageFailed("stopped, as the run ended")
            if device in self.quarantined:
                raise Unreachable(f"device {device}: left alone: {self.quarantined[device]}")
            wanted = f"in({','.join(like)})" if like else f"!in({','.join(self.refused)})" if self.refused else ""
            task = ray.remote(node.do).options(
                num_cpus=1,
                resources={DEVICE + device: 1} if device else {},
                max_retries=LOST,
                label_selector={"ray.io/node-id": wanted} if wanted else None,
            )
            told: Ended = json.loads(self._answer(task.remote(text), over, device))
            for hear in self._hears:
                hear({"stage": order.stage.name, **told})  # type: ignore[dict-item]
            if "refused" in told and times < ILL and not over.wait(ILL_S):
                continue
            if "refused" in told:
                self.quarantined[device] = f"{told['refused']}, {ILL} times"
            if "error" in told:
                raise kind_of(told["error"])(told["message"])
            return store.entry(told["key"])
        raise AssertionError("the last time ends above")


def _nobody(device: str, address: str) -> str:
    return (
        f"device {device}: no node of {address} has it; on the one that reaches it: ray start --address=... "
        f"--resources '{{\"{DEVICE}{device}\": 1}}'"
    )


@dataclass(frozen=True)
class ClusterPlace:
    """A cluster as the place of the stages of one job."""

    cluster: Cluster
    job: Job
    here: Here = field(default_factory=Here)

    def make(self, store: Store, order: Order, tell: Tell, over: threading.Event) -> StoredResult:
        """On a node; what runs an artifact on this machine, on one like it or here."""
        asks = "device" in order.stage.context and order.stage.call != REPORT
        device = self.job.device.name if asks else ""
        like = []
        if "here" in order.stage.context:
            like = [name for name, told in self.cluster.nodes.items() if told["here"] == self.job.context.here]
            if not like:
                return self.here.make(store, order, tell, over)
        return self.cluster.make(store, order, over, device, like)

    def fits(self, inputs: Iterable[Artifact]) -> bool:
        """Always: the nodes have work wait."""
        return True
