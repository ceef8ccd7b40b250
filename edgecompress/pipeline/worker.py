"""The child process of a stage: one request in, one call, one answer out; all other output goes to the log."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgecompress.core import child_process, config, registry, sandbox, user_folders
from edgecompress.core.errors import EdgeError, InputError, StageFailed, first_line, of_system
from edgecompress.core.json import Json
from edgecompress.core.model import REWRITES, SETTINGS, Artifact, Context, Request
from edgecompress.core.sandbox import Limits
from edgecompress.pipeline import bytecode, opened_files
from edgecompress.pipeline.store import observed_digest
from edgecompress.pipeline.worker_protocol import StageRequest

Say = Callable[[Mapping[str, Json]], None]
READERS = ("read", "foreign", "watched")  # functions of runtimes whose options are not those of their exports
YOUNG = 50_000  # objects between two looks for garbage: with Python's 700 a quarter of an import of torch is such looks


def main(file: str, end: int) -> int:
    """Reads the request in a file and answers on stdout; `end` is a socket of `opened_files`."""
    gc.set_threshold(YOUNG)
    stage_request: StageRequest = json.loads(Path(file).read_text(encoding="utf-8"))
    limits = Limits(**stage_request["limits"])
    if stage_request["observes"]:
        opened_files.tell(end)
    sandbox.enter(limits)  # before there are threads
    child_process.tie()
    say = _speaker()
    if not limits.network:
        why = "--offline" if stage_request["offline"] else f"{stage_request['stage']}: it has no network"
        sys.addaudithook(functools.partial(_refuse_network, why))
    seen = _Observed(stage_request["store"]) if stage_request["observes"] else None
    try:
        _call(stage_request, say)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # the boundary: one line, its traceback is in the log
        say(_mapped(error, stage_request))
        with contextlib.suppress(OSError):  # the disk may have no room for it
            traceback.print_exc()
        return 1
    files = {path: observed_digest(Path(path)) for path in seen.files()} if seen else {}
    modules = sorted({m.split(".")[0] for m in sys.modules})
    say({"done": True, "files": files, "modules": modules, "uncompiled": bytecode.missing()})
    return 0


def _speaker() -> Say:
    """Takes stdout for the answers, and sends what anybody prints to the log instead."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: Mapping[str, Json]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    return say


def _call(stage_request: StageRequest, say: Say) -> None:
    user_folders.append(stage_request["path"])
    module, function = registry.call(stage_request["call"])
    own = registry.step(stage_request["call"]).options if function not in READERS else None
    options = config.build(own, stage_request["options"], stage_request["stage"]) if own else stage_request["options"]
    request = Request(
        inputs={role: Artifact.read(Path(path)) for role, path in stage_request["inputs"].items()},
        out=Path(stage_request["out"]),
        options=options,
        context=Context(**stage_request["context"]),
        progress=lambda fraction, what: say({"progress": fraction, "what": what}),
        keep=Path(stage_request["keep"]),
    )
    result = getattr(module, function)(request)
    _check_promise(result, request, stage_request["call"])
    _keep_facts(result, request.inputs.get("model"))


def _keep_facts(result: Artifact, model: Artifact | None) -> None:
    """An artifact of a runtime's format says how its sessions are opened, and what was rewritten on the way to it."""
    settings, facts = registry.settings_of(result.kind), dict(result.facts)
    if settings:
        facts.setdefault(SETTINGS, dict(settings))
    if model and REWRITES in model.facts and (result.kind in ("module", "program") or registry.of_format(result.kind)):
        facts[REWRITES] = {**model.facts[REWRITES], **facts.get(REWRITES, {})}
    if facts != result.facts:
        dataclasses.replace(result, facts=facts).write()


def _check_promise(result: object, request: Request, call: str) -> None:
    """A stage proves itself: it returned an artifact, in the folder it was given, with its card written."""
    if not isinstance(result, Artifact) or result.path != request.out or not result.sha256:
        returned = type(result).__name__
        raise StageFailed(
            f"{call}: must return an artifact in its folder, but returned {returned} (a bug of the plug-in)"
        )


def _mapped(error: BaseException, stage_request: StageRequest) -> dict[str, str]:
    stage, files = stage_request["stage"], stage_request["reads"]
    fault = of_system(error) if isinstance(error, OSError) else None
    if isinstance(fault, StageFailed):  # the disk's, not the stage's
        return {"error": type(fault).__name__, "message": f"{stage}: {fault}"}
    if files and _lacks_memory(error):
        what = f"{files[0]}: reading it needs too much memory; {sandbox.SMALLER}"
        return {"error": InputError.__name__, "message": what}
    if isinstance(error, EdgeError):
        variant, _, own = stage.partition("/")  # whose name a remedy needs that a plug-in tells
        told = str(error).replace("variant.NAME.", f"variant.{variant}.") if own else str(error)
        return {"error": type(error).__name__, "message": told}
    message = f"unexpected error: {first_line(error)}"
    if isinstance(error, PermissionError) and sandbox.entered.writes and not stage_request["limits"]["network"]:
        message += ": a stage changes only its own folder and TMPDIR, and has no network"
    elif files:
        return {"error": InputError.__name__, "message": f"{files[0]}: {message}; {sandbox.SMALLER}"}
    return {"error": StageFailed.__name__, "message": f"{stage}: {message}"}


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether it, or what it was raised from, is a want of memory, as Python or as a library in C++ tells it."""
    while error is not None:
        if isinstance(error, MemoryError) or "bad_alloc" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _refuse_network(why: str, event: str, arguments: tuple[Any, ...]) -> None:
    """Names what Python code tries to reach; the kernel refuses it to native code and to children, without a word."""
    if event == "socket.getaddrinfo" or (
        event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple)
    ):
        host = arguments[0] if event == "socket.getaddrinfo" else arguments[1][0]
        raise InputError(f"{why}: a stage tried to connect to {host}; download what it needs first")


class _Observed:
    """The user's own files that this process imported or opened to read: part of the stage's key.

    What it made itself before it read it is none, such as the modules that libraries generate.
    """

    def __init__(self, store: str) -> None:
        self.paths: set[str] = set()
        self.made: set[str] = set()
        self.store = store
        sys.addaudithook(self._hear)
        self._watch_safetensors()

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path, mode, flags = os.path.abspath(os.fsdecode(arguments[0])), *arguments[1:]
            if flags & (os.O_TRUNC | os.O_EXCL) and path not in self.paths:
                self.made.add(path)
            elif path not in self.made and not (isinstance(mode, str) and any(c in mode for c in "wax+")):
                self.paths.add(path)
        elif event in ("os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes)):
            folder = os.path.abspath(os.fsdecode(arguments[0]))  # counts by its names
            if folder not in {os.path.abspath(p) for p in sys.path}:  # which Python lists to import from
                self.paths.add(folder)

    def _watch_safetensors(self) -> None:
        """safetensors opens files in native code, which no audit event tells of."""
        try:
            import safetensors
        except ImportError:
            return
        paths, native = self.paths, safetensors.safe_open

        def safe_open(filename: Any, *rest: object, **named: Any) -> object:
            paths.add(os.path.abspath(os.fsdecode(filename)))
            return native(filename, *rest, **named)

        vars(safetensors)["safe_open"] = safe_open

    def files(self) -> list[str]:
        """Files and listed folders outside the Python installation, the system, and edgecompress's own folders."""
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        return sorted(opened_files.users([*self.paths, *filter(None, modules)], self.store) - self.made)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
