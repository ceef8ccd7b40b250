#!/usr/bin/env python3
"""Serves this folder: `python3 serve.py`, then open the address that it prints. Needs Python 3.8, and nothing else.

`python3 serve.py --host 0.0.0.0` lets other devices of the network in (a phone). Any other web server does, too. This
one isolates the page: browsers then give it a clock of 5 µs instead of 100 µs, and threads (on this machine; elsewhere
they want HTTPS for that).
"""

import argparse
import contextlib
import socket
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}


class Handler(SimpleHTTPRequestHandler):
    """Files as they are."""

    def guess_type(self, path):  # not by this machine's settings, which may say that a script is text
        return TYPES.get(Path(path).suffix.lower(), "application/octet-stream")

    def end_headers(self):
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def list_directory(self, path):
        self.send_error(404)

    def log_message(self, format, *args):
        pass


def own_address():
    """What other devices of the network call this one; no packet is sent."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # of no network: TEST-NET-1
        return [probe.getsockname()[0]]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0: any device of the network (default: this one)")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one (default: 8000)")
    asked = parser.parse_args()
    folder = Path(__file__).resolve().parent
    with ThreadingHTTPServer((asked.host, asked.port), partial(Handler, directory=str(folder))) as server:
        everyone = asked.host in ("0.0.0.0", "::", "")
        for host in ["127.0.0.1", *own_address()] if everyone else [asked.host]:
            print(f"http://{host}:{server.server_port}/", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
