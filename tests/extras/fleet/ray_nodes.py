"""A real Ray cluster on this machine: a head and workers that are processes of their own, each with its resources."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil

START_S, STARTED = 90.0, "Ray runtime started"
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_USAGE_STATS_ENABLED": "0"}
QUIET = ("--disable-usage-stats", "--block", "--object-store-memory=100000000")


class RayNodes:
    """Nodes by name, which end with the block; `address` is what `--on` takes."""

    def __init__(self, folder: Path, devices: Mapping[str, float] | None = None, cpus: int = 1) -> None:
        self.folder, self.nodes = folder, dict[str, subprocess.Popen[bytes]]()
        port, client = free(), free()
        self.host = socket.gethostbyname(socket.gethostname())
        self.address, self.gcs = f"ray://127.0.0.1:{client}", f"{self.host}:{port}"
        head = ("--head", f"--port={port}", f"--ray-client-server-port={client}", "--include-dashboard=false")
        self._start("head", devices or {}, cpus, *head)

    def add(self, name: str, devices: Mapping[str, float] | None = None, cpus: int = 1, **environment: str) -> None:
        """One more node."""
        self._start(name, devices or {}, cpus, f"--address={self.gcs}", **environment)

    def _start(self, name: str, devices: Mapping[str, float], cpus: int, *more: str, **environment: str) -> None:
        have = json.dumps({f"device:{device}": 1 for device in devices})
        command = [
            str(Path(sys.executable).parent / "ray"),
            "start",
            f"--num-cpus={cpus}",
            f"--resources={have}",
            *more,
        ]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.nodes[name] = subprocess.Popen(
                [*command, *QUIET],
                env={**os.environ, **TOKEN, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + START_S
        while STARTED not in (self.folder / f"{name}.log").read_text(encoding="utf-8"):
            if time.monotonic() > end or self.nodes[name].poll() is not None:
                raise TimeoutError(f"the node {name} did not start: {self.folder / name}.log")
            time.sleep(0.2)

    def kill(self, name: str) -> None:
        """Ends a node without a word."""
        process = psutil.Process(self.nodes.pop(name).pid)
        for each in (*process.children(recursive=True), process):
            each.kill()

    def __enter__(self) -> RayNodes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in [*self.nodes]:
            self.kill(name)


def free() -> int:
    """A port that nobody uses."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])
