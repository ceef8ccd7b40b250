"""Sets up .venv with what a target needs and nothing else: torch first, as a CPU build unless a GPU build is asked for.

Standard library only: it runs before anything is installed. A second call with nothing new to install does nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CUDA = re.compile(r"(nvidia|cuda|triton|pytorch-triton)\b", re.IGNORECASE)


@dataclass(frozen=True)
class State:
    """What a venv was set up with: the stamp inside it."""

    files: str  # digest of pyproject.toml and constraints.txt
    torch: str  # cpu or gpu
    extras: tuple[str, ...]

    def covers(self, wanted: State) -> bool:
        """Whether a venv in this state already has all that is wanted."""
        return (self.files, self.torch) == (wanted.files, wanted.torch) and set(wanted.extras) <= set(self.extras)

    def joined(self, wanted: State) -> State:
        """The wanted state, which keeps the extras that are already there."""
        return State(wanted.files, wanted.torch, tuple(sorted({*self.extras, *wanted.extras})))


NOTHING = State("", "", ())


def read_state(stamp: Path) -> State:
    """The state a stamp tells, or NOTHING."""
    try:
        data = json.loads(stamp.read_text(encoding="utf-8"))
        return State(data["files"], data["torch"], tuple(data["extras"]))
    except (OSError, ValueError, KeyError, TypeError):
        return NOTHING


def files_digest() -> str:
    """The digest of what decides the versions."""
    texts = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def module(python: str, name: str, *words: str) -> list[str]:
    """The command that runs a module, and looks for nothing in the working folder: its files may be anybody's."""
    return [python, "-P", "-m", name, *words]


def target_extras(target: str, python: str) -> tuple[str, ...]:
    """The extras of pyproject.toml that a target needs, asked of the source tree: nothing must be installed for it."""
    command = module(python, "edgecompress.pipeline.requirements", target)
    told = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)
    if told.returncode:
        sys.exit(told.returncode)
    return tuple(extra for extra in told.stdout.strip().split(",") if extra)


def make_environments(target: str, python: str) -> None:
    """Makes the environments that plug-ins of a target have of their own; those that are there stay.

    Where one cannot be made the set-up goes on: a deploy that cannot do without it says so.
    """
    subprocess.run(module(python, "edgecompress.pipeline.requirements", "make", target))


def requirements(project: Mapping[str, Any], extras: tuple[str, ...]) -> set[str]:
    """The requirements behind some extras, `edgecompress[other]` followed."""
    found: set[str] = set(project["dependencies"])
    todo, done = list(extras), set()
    while todo:
        extra = todo.pop()
        if extra in done:
            continue
        done.add(extra)
        for requirement in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{project['name']}\[(.+)\]", requirement)
            if own:
                todo.extend(part.strip() for part in own[1].split(","))
            else:
                found.add(requirement)
    return found


def needs_torch(extras: tuple[str, ...]) -> bool:
    """Whether some extra brings torch."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return any(re.match(r"torch\b(?!-)", r) for r in requirements(project, extras))


def torch_pin(constraints: str) -> str:
    """The line `torch==VERSION` of constraints.txt."""
    found = re.search(r"^torch==\S+$", constraints, re.MULTILINE)
    if not found:
        sys.exit("constraints.txt: no line 'torch==VERSION'; setup pins torch by it")
    return found[0]


def cuda_in(report: Mapping[str, Any]) -> str:
    """Why the torch that pip would install is not a CPU build, or "".

    `report` is pip's own (`pip install --dry-run --no-deps --report -`). A local version says the build ("+cpu",
    "+cu130"); without one the requirements tell. Only on Linux does a plain torch require CUDA.
    """
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        build = version.partition("+")[2]
        if name == "torch" and build not in ("", "cpu"):
            return f"torch {version} is not a CPU build"
        brought = [name, *(item["metadata"].get("requires_dist") or ())]
        cuda = next((b for b in brought if CUDA.match(b)), "")
        if cuda and report["environment"]["platform_system"] == "Linux":
            return f"torch {version} brings {re.split('[^a-zA-Z0-9-]', cuda)[0]}"
    return ""


class Venv:
    """The virtual environment at `path`; every command is printed before it runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.python = str(path / "bin" / "python")
        self.stamp = path / "edgecompress-setup.json"

    def create(self) -> None:
        """Makes it where it is not, with a pip that knows `--report`."""
        if not Path(self.python).exists():
            _run(module(sys.executable, "venv", str(self.path)))
        self.pip("install", "--quiet", "--upgrade", "pip>=24")

    def pip(self, *arguments: str) -> None:
        """Runs pip; ends the set-up with pip's code when it fails."""
        _run(module(self.python, "pip", "--disable-pip-version-check", *arguments))

    def report(self, requirement: str) -> dict[str, Any]:
        """What pip would install for `requirement` alone."""
        what = ["install", "--dry-run", "--quiet", "--no-deps", "--ignore-installed", "--report", "-", requirement]
        told = subprocess.run(module(self.python, "pip", *what), stdout=subprocess.PIPE, text=True)
        if told.returncode:
            sys.exit(told.returncode)
        return dict(json.loads(told.stdout))

    def has_torch(self, pin: str, build: str) -> bool:
        """Whether this version and build of torch is there; read off the folders, torch is not imported."""
        packages = next(self.path.glob("lib/python*/site-packages"))
        there = [*packages.glob(f"torch-{pin.partition('==')[2]}*.dist-info")]
        cuda = any(packages.glob("nvidia*")) or any("+cu" in info.name for info in there)
        return bool(there) and build == ("gpu" if cuda else "cpu")

    def install_torch(self, pin: str, build: str) -> None:
        """torch, alone and first: later commands only repeat the pin."""
        if self.has_torch(pin, build):
            return
        why = cuda_in(self.report(pin)) if build == "cpu" else ""
        if not why:
            return self.pip("install", pin, "-c", "constraints.txt")
        print(f"setup: {why}, which a CPU does not need; uv brings the CPU build", flush=True)
        self.pip("install", "--quiet", "uv")
        uv = module(self.python, "uv", "pip", "install", "--python", self.python, "--torch-backend=cpu", pin)
        _run([*uv, "-c", "constraints.txt"])

    def size_gb(self) -> float:
        """Gigabytes on disk."""
        return sum(p.lstat().st_size for p in self.path.rglob("*") if p.is_file()) / 1e9


def _run(command: list[str]) -> None:
    shown = " ".join(command).replace(f"{ROOT}{os.sep}", "")
    print(f"setup: {shown}", flush=True)
    code = subprocess.run(command, cwd=ROOT).returncode
    if code:
        print(f"setup: failed with code {code}; the message above is of: {shown}", file=sys.stderr)
        sys.exit(code)


def install(venv: Venv, state: State) -> None:
    """Brings `venv` to `state`; the stamp is written last, so an interrupted set-up is taken up again."""
    begin = time.monotonic()
    venv.create()
    venv.stamp.unlink(missing_ok=True)
    pins = []
    if needs_torch(state.extras):
        pins = [torch_pin((ROOT / "constraints.txt").read_text(encoding="utf-8"))]
        venv.install_torch(pins[0], state.torch)
    own = f".[{','.join(state.extras)}]" if state.extras else "."
    venv.pip("install", *pins, "-c", "constraints.txt", "--editable", own)
    venv.stamp.write_text(json.dumps(asdict(state)), encoding="utf-8")
    minutes = (time.monotonic() - begin) / 60
    print(f"setup: ready in {minutes:.1f} min; {venv.path.name} has {venv.size_gb():.1f} GB", flush=True)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="setup.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="", help="targets' names or TOML files, separated by commas")
    parser.add_argument("--dev", action="store_true", help="the tools of the tests and checks too")
    parser.add_argument("--torch", choices=("cpu", "gpu"), help="the build of torch (default: the one there, else cpu)")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where (default: .venv)")
    return parser.parse_args(argv)


def main() -> int:
    """Sets up, or finds that it is done."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python gets this far, and is told
        version = sys.version.split()[0]
        sys.exit(f"edgecompress needs Python 3.11 or newer, this is {version}; run: make PYTHON=python3.11 ...")
    args = parse()
    venv = Venv(args.venv.absolute())
    found = read_state(venv.stamp)
    python = venv.python if found.files else sys.executable
    targets = [target for target in args.target.split(",") if target]
    extras = {extra for target in targets for extra in target_extras(target, python)}
    extras |= {"dev"} if args.dev else set()
    wanted = State(files_digest(), args.torch or found.torch or "cpu", tuple(sorted(extras)))
    if not found.covers(wanted):
        install(venv, found.joined(wanted))
    for target in targets:
        make_environments(target, venv.python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
