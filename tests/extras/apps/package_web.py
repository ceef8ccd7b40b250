"""Web packages for the tests: packed, opened, and served on loopback, each also with single files changed."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import report_browser

from edgecompress.extras.apps import package

ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html"}
READY_S = 60

Change = Callable[[bytes], bytes]


def packed(shipped: Path, out: Path, **settings: Any) -> Path:
    """The package of a shipped folder, opened: its top folder."""
    out.mkdir(parents=True, exist_ok=True)
    file = package.package(shipped, "web", out / "package.zip", settings=settings)
    with zipfile.ZipFile(file) as archive:
        archive.extractall(out / "opened")
    (root,) = (out / "opened").iterdir()
    return root


@dataclass
class Served:
    """Folders below one address: /NAME/..., `changes` maps (NAME, path) to what is done to the file."""

    address: str = ""
    roots: dict[str, Path] = field(default_factory=dict)
    changes: dict[tuple[str, str], Change] = field(default_factory=dict)

    def add(self, name: str, root: Path, changes: Mapping[str, Change] | None = None) -> str:
        """The address of a page."""
        self.roots[name] = root
        self.changes |= {(name, path): change for path, change in (changes or {}).items()}
        return f"{self.address}/{name}/"

    def file(self, path: str) -> tuple[str, bytes] | None:
        _, name, rest = unquote(urlsplit(path).path).split("/", 2)
        file = self.roots[name] / (rest or "index.html")
        if not file.is_file():
            return None
        return file.suffix, self.changes.get((name, rest), lambda found: found)(file.read_bytes())


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, served: Served, *given: Any) -> None:
        self.served = served
        super().__init__(*given)

    def do_GET(self) -> None:
        found = self.served.file(self.path)
        if found is None:
            return self.send_error(404)
        self.send_response(200)
        told = {"Content-Type": TYPES.get(found[0]) or self.guess_type(self.path), "Content-Length": str(len(found[1]))}
        for name, value in {**told, **ISOLATED, "Cache-Control": "no-store"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(found[1])

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[Served]:
    served = Served()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, served)) as server:
        served.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield served
        server.shutdown()


@dataclass(frozen=True)
class Page:
    """A package's page, opened, its start done."""

    browser: Any
    address: str
    console: list[Any]
    requests: list[str]

    def text(self, selector: str) -> str:
        return str(self.browser.execute_script("return document.querySelector(arguments[0]).textContent", selector))

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return list(self.browser.execute_script(script, selector))

    def shown(self, selector: str) -> bool:
        return bool(self.browser.find_element("css selector", selector).is_displayed())

    def asked(self, script: str, *given: Any) -> Any:
        """What an asynchronous function's body returns, in the page; the wrapper's module is `wrapper`."""
        body = (
            "const [done, ...given] = [arguments[arguments.length - 1], ...arguments].slice(0, -1);"
            "(async () => { const wrapper = await import('./model.js');" + script + "})()"
            ".then(value => done({value}), error => done({error: `${error}`}));"
        )
        answer = self.browser.execute_async_script(body, *given)
        assert "error" not in answer, answer["error"]
        return answer.get("value")


def opened(browser: Any, address: str, theme: str = "light", width: int = 1200) -> Page:
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.set_script_timeout(120)
    browser.get("about:blank")
    for log in ("performance", "browser"):
        browser.get_log(log)
    browser.get(address)
    wait(browser, "return document.documentElement.dataset.ready === 'yes'")
    return Page(browser, address, browser.get_log("browser"), report_browser.requested(browser))


def wait(browser: Any, script: str, *given: Any) -> None:
    """Until the script says so."""
    end = time.monotonic() + READY_S
    while not browser.execute_script(script, *given):
        assert time.monotonic() < end, f"never: {script}; console: {browser.get_log('browser')}"
        time.sleep(0.05)


def wrong_byte(at: int) -> Change:
    """One byte is another, counted from the end where `at` is below zero."""
    return lambda found: b"".join([found[: at % len(found)], bytes([found[at] ^ 1]), found[at % len(found) + 1 :]])


def drop(page: Page, name: str, content: bytes) -> None:
    page.browser.execute_script(
        "const bytes = Uint8Array.from(atob(arguments[1]), c => c.charCodeAt(0)), data = new DataTransfer();"
        "data.items.add(new File([bytes], arguments[0], {type: 'image/png'}));"
        "document.getElementById('drop').dispatchEvent("
        "new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));",
        name,
        base64.b64encode(content).decode(),
    )


def changed(root: Path) -> Iterator[tuple[str, str, Any, str]]:
    """What is changed: a name, the file, the change, and the step that must say so."""
    card = json.loads((root / "model_card.json").read_text())
    for item in (card["golden"]["raw"], *card["golden"]["inputs"], *card["golden"]["outputs"]):
        size = (root / item["file"]).stat().st_size
        yield from ((f"{item['file']} {at}", item["file"], wrong_byte(at), "files") for at in range(0, size, 7))
        yield f"{item['file']} cut", item["file"], lambda found: found[:-1], "files"
        yield f"{item['file']} longer", item["file"], lambda found: found + b"\0", "files"
    model = card["model"]["main"]
    size = (root / model).stat().st_size
    yield from ((f"weight byte {at}", model, wrong_byte(at), "files") for at in range(size // 9, size, size // 9))
    yield "labels", "labels.json", wrong_byte(4), "files"
    for key in ("scale", "mean", "std"):
        said = card["preprocess"][key]
        for i in range(len(said) if isinstance(said, list) else 1):
            for file in ("spec.js", "model_card.json"):
                yield f"{key} {i} in {file}", file, told(("preprocess", key), i, lambda x: x * 1.0001), "processing"
    for path in (("preprocess", "layout"), ("preprocess", "colour"), ("golden", "tolerance"), ("model", "main")):
        yield f"{path[1]} of the card", "model_card.json", told(path, 0, lambda x: x * 2), "processing"


def told(path: tuple[str, str], index: int, other: Callable[[Any], Any]) -> Change:
    """One value of the JSON in a file (also within spec.js) is another."""

    def change(found: bytes) -> bytes:
        before, brace, literal = found.partition(b"{")
        value, end = json.JSONDecoder().raw_decode((brace + literal).decode())
        table, key = value[path[0]], path[1]
        if isinstance(table[key], list):
            table[key][index] = other(table[key][index])
        else:
            table[key] = other(table[key])
        return before + json.dumps(value).encode() + (brace + literal)[end:]

    return change
