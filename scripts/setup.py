"""Sets up .venv with what a target needs and nothing else: torch first, as a CPU build unless a GPU build is asked for.

Standard library only: it runs before anything is installed. pip brings uv, uv the rest, from where pip is configured to
look. A second call with nothing new to install does nothing.
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
# What `uv pip install --dry-run` prints of a torch that is not a CPU build, or of what such a build brings.
CUDA = re.compile(
    r"^ \+ (nvidia-[-\w]+|cuda-[-\w]+|(?:pytorch-)?triton(?:-[-\w]+)?(?===)|torch==[^+\s]+\+(?!cpu\b)\S+)", re.MULTILINE
)
# pip's settings, by the variable that tells uv the same. Variables, since an address may hold a password.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}


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


def target_extras(target: str, python: str) -> tuple[tuple[str, ...], bool]:
    """The extras of pyproject.toml that a target needs, and whether environments of its plug-ins are to be made.

    Asked of the source tree: nothing must be installed for it.
    """
    command = module(python, "edgecompress.pipeline.requirements", target)
    told = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)
    if told.returncode:
        sys.exit(told.returncode)
    extras, *make = told.stdout.strip("\n").split("\n")
    return tuple(extra for extra in extras.split(",") if extra), make == ["make"]


def make_environments(target: str, python: str) -> None:
    """Makes the environments that plug-ins of a target have of their own.

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


def pin(name: str, constraints: str) -> str:
    """The words NAME==VERSION of constraints.txt."""
    line = re.search(rf"^{name}==\S+", constraints, re.MULTILINE)
    if not line:
        sys.exit(f"constraints.txt: no line '{name}==VERSION'; setup pins {name} by it")
    return line[0]


def uv_settings(pip_config: str) -> dict[str, str]:
    """The environment that makes uv look where pip looks. `pip_config` is what `pip config list` prints."""
    settings = {}
    lines = [re.fullmatch(r"(:env:|\w+)\.([-\w]+)='(.*)'", line) for line in pip_config.splitlines()]
    for section in ("global", "install", ":env:"):  # a later one goes first, as in pip
        for line in lines:
            if line and line[1] == section and line[2] in SETTINGS:
                words = line[3].replace("\\n", " ").split()
                settings[SETTINGS[line[2]]] = ("," if line[2] == "find-links" else " ").join(words)
    return {name: value for name, value in settings.items() if value and name not in os.environ}


class Venv:
    """The virtual environment at `path`; every command is printed before it runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.python = str(path / "bin" / "python")
        self.stamp = path / "edgecompress-setup.json"

    def create(self, uv: str) -> None:
        """Makes it where it is not, with the pinned uv in it."""
        if not Path(self.python).exists():
            _run(module(sys.executable, "venv", str(self.path)))
        _run(
            module(self.python, "pip", "--disable-pip-version-check", "install", "--quiet", "--upgrade", "pip>=24", uv)
        )

    def uv(self, *arguments: str, capture: bool = False) -> str:
        """Runs `uv pip install` with the pins of constraints.txt. Ends the set-up with uv's code when it fails.

        What pip takes from several indexes uv takes too, by the same rule: the version decides, not the index.
        """
        options = ["--index-strategy=unsafe-best-match", "-c", "constraints.txt"]
        config = subprocess.run(module(self.python, "pip", "config", "list"), stdout=subprocess.PIPE, text=True).stdout
        command = module(self.python, "uv", "pip", "install", "--python", self.python, *options, *arguments)
        return _run(command, env=uv_settings(config), capture=capture)

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
        asked = ["--reinstall-package=torch", pin]
        cuda = CUDA.search(self.uv("--dry-run", *asked, capture=True)) if build == "cpu" else None
        if cuda:
            print(f"setup: {pin} comes with {cuda[1]}, which a CPU does not need: the CPU build is fetched", flush=True)
            asked.append("--torch-backend=cpu")
        self.uv(*asked)

    def size_gb(self) -> float:
        """Gigabytes on disk."""
        return sum(p.lstat().st_size for p in self.path.rglob("*") if p.is_file()) / 1e9


def _run(command: list[str], env: Mapping[str, str] | None = None, capture: bool = False) -> str:
    shown = " ".join(command).replace(f"{ROOT}{os.sep}", "")
    print(f"setup: {shown}", flush=True)
    out = subprocess.PIPE if capture else None
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **(env or {})}, stderr=out, text=True)
    if done.returncode:
        print(
            f"{done.stderr or ''}setup: failed with code {done.returncode}; the message above is of: {shown}",
            file=sys.stderr,
        )
        sys.exit(done.returncode)
    return done.stderr or ""


def install(venv: Venv, state: State) -> None:
    """Brings `venv` to `state`; the stamp is written last, so an interrupted set-up is taken up again."""
    begin = time.monotonic()
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    venv.create(pin("uv", constraints))
    venv.stamp.unlink(missing_ok=True)
    pins = []
    if needs_torch(state.extras):
        pins = [pin("torch", constraints)]
        venv.install_torch(pins[0], state.torch)
    # Where Python may not keep what it compiled, it would compile every module again at every start.
    compiled = ["--compile-bytecode"] if os.environ.get("PYTHONDONTWRITEBYTECODE") else []
    venv.uv(*compiled, *pins, "--editable", f".[{','.join(state.extras)}]" if state.extras else ".")
    venv.stamp.write_text(json.dumps(asdict(state)), encoding="utf-8")
    print(f"setup: ready in {time.monotonic() - begin:.0f} s; {venv.path.name} has {venv.size_gb():.1f} GB", flush=True)


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
    needs = {target: target_extras(target, python) for target in targets}
    extras = {extra for some, _ in needs.values() for extra in some} | ({"dev"} if args.dev else set())
    wanted = State(files_digest(), args.torch or found.torch or "cpu", tuple(sorted(extras)))
    fresh = not found.covers(wanted)
    if fresh:
        install(venv, found.joined(wanted))
    for target in (name for name, (_, make) in needs.items() if make or fresh):  # another Python may have been asked
        make_environments(target, venv.python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
