"""Predictions over HTTP: POST /predict, GET /health. Requests are bounded in bytes, time and number."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from edgecompress.core.errors import InputError
from edgecompress.device import machine

WORKERS = 8  # requests at once; the next is told to come back
IDLE_S, BODY_S = 10, 30  # for the next byte; for a whole body
BLOCK = 1 << 16
LOOPBACK = ("127.0.0.1", "::1", "localhost")

Predict = Callable[[bytes, bool], dict[str, object]]  # the body; whether it is processed already


class Server(http.server.ThreadingHTTPServer):
    """Listens on `host`; `most`: bytes of a body. `health` is what GET /health answers."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, host: str, port: int, predict: Predict, health: dict[str, object], most: int) -> None:
        self.predict, self.health, self.most, self.host = predict, health, most, host
        self.slots = threading.BoundedSemaphore(WORKERS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"serve: cannot listen on {host} port {port}: {error}; give another --port") from error

    @property
    def url(self) -> str:
        """Its address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_address[1]}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, if one is free; else the request is refused at once."""
        if not self.slots.acquire(blocking=False):
            request.setblocking(False)
            with contextlib.suppress(OSError):
                request.send(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One request; its slot is free afterwards."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is one line."""
        print(f"{client_address[0]}: {type(sys.exc_info()[1]).__name__}", file=sys.stderr)


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = IDLE_S
    server_version, sys_version = "edgecompress", ""

    def do_GET(self) -> None:
        """GET /health."""
        if self._welcome("/health"):
            self._say(200, self.server.health)

    def do_POST(self) -> None:
        """POST /predict, /predict?ready (the body is the model's input already)."""
        if not self._welcome("/predict") or (body := self._body()) is None:
            return
        try:
            self._say(200, self.server.predict(body, urlsplit(self.path).query == "ready"))
        except InputError as error:
            self._refuse(400, str(error))
        except Exception:  # the boundary: whatever a runtime raises is told in the log, and the next request is served
            traceback.print_exc()
            self._refuse(500, "inference failed; the reason is in the service's log")

    def _welcome(self, path: str) -> bool:
        """Whether the request asks for `path`, at the host that it came to: no page of elsewhere reaches loopback."""
        named = urlsplit(f"//{self.headers.get('Host', self.server.host)}").hostname
        if self.server.host in LOOPBACK and named not in LOOPBACK:
            self._refuse(403, "this service answers only requests to its own address")
        elif urlsplit(self.path).path != path:
            self._refuse(404, "not found; this service has POST /predict and GET /health")
        else:
            return True
        return False

    def _body(self) -> bytes | None:
        """The body, or None when the request was refused."""
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not (length.isascii() and length.isdigit() and len(length) < 16):
            self._refuse(411, "give a Content-Length")
            return None
        if int(length) > self.server.most:
            self._refuse(413, f"{length} bytes is too large; at most {self.server.most}")
            return None
        body, end = bytearray(), time.monotonic() + BODY_S
        while len(body) < int(length) and time.monotonic() < end:
            block = self.rfile.read1(min(BLOCK, int(length) - len(body)))
            if not block:
                break
            body += block
        if len(body) < int(length):
            self._refuse(408, f"{len(body)} of {length} bytes were received")
            return None
        return bytes(body)

    def _refuse(self, status: int, why: str) -> None:
        self._say(status, {"error": why})

    def _say(self, status: int, answer: dict[str, object]) -> None:
        text = json.dumps(answer, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """One line to the log, whatever a client put into it."""
        print(machine.line(f"{self.address_string()} {format % args}"), file=sys.stderr)
