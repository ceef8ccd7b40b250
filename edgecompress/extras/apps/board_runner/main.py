"""The command line of a board package: predict, self-test, benchmark, serve. Answers are JSON."""

from __future__ import annotations

import argparse
import functools
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import EdgeError, InputError
from edgecompress.core.package_contents import digest, is_packed
from edgecompress.extras.apps import packed_payload
from edgecompress.extras.apps.board_runner import benchmark, drawing, inputs, selftest
from edgecompress.extras.apps.board_runner.predictor import PAYLOAD, Predictor
from edgecompress.extras.apps.board_runner.serve import Server

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.model_card import Card, Item

    Array = np.ndarray
    # outputs, names of classes, height and width of the picture that the item came as
    Answer = tuple[dict[str, Array], list[str], tuple[int, int] | None]

PORT = 8000
CARD = "card.json"  # beside this module: the card that was compiled in
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main(runtime: str) -> int:
    """Runs the command; `runtime` is the module that opens the model. Exit code 1: a test failed, 2: the input."""
    args = _parser().parse_args()
    threads = args.threads or card()["runtime"].get("threads", 1)
    for name in THREADS:  # before anything that reads them is loaded
        os.environ[name] = str(threads)
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        code: int = args.command(BoardPackage(runtime, threads), args)
        return code
    except EdgeError as error:
        print(f"run: {error}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        print(f"run: {sys.executable} has no module '{error.name}': run install.sh", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


@functools.cache
def card() -> Card:
    """The card that was compiled in."""
    content = pkgutil.get_data("edgecompress.extras.apps.board_runner", CARD)
    assert content  # it was packed beside this module
    found: Card = json.loads(content)
    return found


class BoardPackage:
    """The package that this file lies in."""

    def __init__(self, runtime: str, threads: int) -> None:
        self.card, self.runtime, self.threads = card(), runtime, threads
        self.root = Path(sys.argv[0]).resolve().parent
        if is_packed(self.card):
            packed_payload.unpack(self.card, self.root / PAYLOAD)

    @functools.cached_property
    def model(self) -> Predictor:
        """The model, opened."""
        return Predictor(self.card, self.runtime, self.root, self.threads)

    @functools.cached_property
    def labels(self) -> list[str]:
        """The names of the classes, or none."""
        return selftest.names_of(self.card, self.root / PAYLOAD)

    def tested(self) -> list[selftest.Step]:
        """The steps of the self-test."""
        return list(selftest.steps(self.card, self.root, lambda: self.model))

    def plain(self, ready: bool) -> Item | None:
        """What bare bytes are: the model's input, or the raw item where it is processed; None where none is known."""
        golden = self.card["golden"]
        return golden["inputs"][0] if ready or self.model.declared is None else golden["raw"]

    def arrays(self, data: bytes, ready: bool) -> dict[str, Array]:
        """A file or a body by the names of the inputs. Raises InputError for what is none that the model takes."""
        names = [spec.name for spec in self.model.user_inputs]
        image = "" if ready or self.model.declared is None else self.model.declared.input
        return inputs.arrays(data, names, image if len(names) == 1 else "", self.plain(ready))

    def predict(self, data: bytes, ready: bool) -> dict[str, object]:
        """The answer to a file or a body. Raises InputError for what is none that the model takes."""
        return self.model.answer(*self.run(self.arrays(data, ready), ready))

    def run(
        self, arrays: Mapping[str, Array], ready: bool
    ) -> tuple[dict[str, Array], list[str], tuple[int, int] | None]:
        """Of one item."""
        outputs = self.model.run(self.model.prepared(arrays, ready))
        how = None if ready else self.model.declared
        shape = arrays[how.input].shape if how else ()
        return outputs, self.labels, (shape[0], shape[1]) if len(shape) in (2, 3) else None


# --------------------------------------------------------------------------- commands


def predict(board: BoardPackage, args: argparse.Namespace) -> int:
    """Prints the answer to one file."""
    try:
        with args.file.open("rb") as stream:
            data = stream.read(inputs.LARGEST + 1)
    except OSError as error:
        raise InputError(f"{args.file}: {error.strerror or error}") from error
    if len(data) > inputs.LARGEST:
        raise InputError(f"{args.file}: larger than {inputs.LARGEST >> 20} MiB")
    try:
        arrays = board.arrays(data, args.ready)
        outputs, labels, picture = board.run(arrays, args.ready)
        told = board.model.answer(outputs, labels, picture)
        mask = board.model.mask(outputs, picture) if "regions" in told else None
        if args.draw:
            drawing.draw(arrays, told, mask, args.draw)
        if args.mask:
            drawing.keep(mask, args.mask)
        _print(told)
    except InputError as error:
        raise type(error)(f"{args.file}: {error}") from error
    return 0


def self_test(board: BoardPackage, args: argparse.Namespace) -> int:
    """Prints each step; 1 when one failed."""
    steps = board.tested()
    _print(steps)
    return 0 if all(step["ok"] for step in steps) else 1


def measure(board: BoardPackage, args: argparse.Namespace) -> int:
    """Prints what `edgecompress report --add` reads; 1 when the self-test failed."""
    passed = all(step["ok"] for step in board.tested())
    _print(benchmark.measured(board.model, board.root, args.runs, passed))
    return 0 if passed else 1


def serve(board: BoardPackage, args: argparse.Namespace) -> int:
    """Serves until it is ended; nothing is served when the self-test fails."""
    steps = board.tested()
    if not all(step["ok"] for step in steps):
        _print(steps)
        return 1
    card = board.card
    model = {"name": card["name"], "version": card["version"], "sha256": digest(card)}
    health: dict[str, object] = {"status": "ok", "model": model, "runtime": card["runtime"], "self_test": "pass"}
    with Server(args.host, args.port, board.predict, health, inputs.LARGEST) as server:
        print(f"serving at {server.url}: POST /predict, GET /health", flush=True)
        server.serve_forever()
    return 0


def _print(answer: object) -> None:
    print(json.dumps(answer, indent=1, allow_nan=False))


# --------------------------------------------------------------------------- arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("run", description="Runs the model of this package. Answers are JSON.")
    parser.add_argument("--threads", type=_whole(1, 1024), metavar="N", help="of the runtime (as it was measured)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("predict", help="the answer to a PNG, JPEG, .npy, .npz, or the bare bytes of one item")
    one.add_argument("file", type=Path, metavar="FILE")
    one.add_argument("--ready", action="store_true", help="the file is the model's input: nothing is processed")
    one.add_argument("--draw", type=Path, metavar="FILE", help="also the picture with what was found in it, as a PNG")
    one.add_argument("--mask", type=Path, metavar="FILE", help="also the class of each pixel, as a grey PNG")
    one.set_defaults(command=predict)
    test = commands.add_parser("self-test", help="whether this machine computes what was packed")
    test.set_defaults(command=self_test)
    bench = commands.add_parser("benchmark", help="latencies, as `edgecompress report --add` reads them")
    bench.add_argument("runs", type=_whole(benchmark.LEAST, benchmark.MOST), nargs="?", default=100, metavar="N")
    bench.set_defaults(command=measure)
    server = commands.add_parser("serve", help="POST /predict and GET /health over HTTP")
    server.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="to listen on (127.0.0.1)")
    server.add_argument("--port", type=_whole(0, 65535), default=PORT, metavar="N", help=f"({PORT}; 0: any free one)")
    server.set_defaults(command=serve)
    return parser


def _whole(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"'{text[:40]}' is not a whole number from {least} to {most}")
        return int(text)

    return number
