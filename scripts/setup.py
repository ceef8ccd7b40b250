"""Sets up .venv with what a target needs and nothing else: torch first, as a CPU build unless a GPU build is asked for.

Standard library only: it runs before anything is installed. pip brings uv, uv the rest, from where pip is configured to
look, with the sha256 of constraints.txt. A second call with nothing new to install does nothing; one that finds another
waits for it; an environment that is incomplete, was moved or was copied is created again.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# What `uv pip install --dry-run` prints of a torch that is not a CPU build, or of what such a build brings.
CUDA = re.compile(
    r"^ \+ (nvidia-[-\w]+|cuda-[-\w]+|(?:pytorch-)?triton(?:-[-\w]+)?(?===)|torch==[^+\s]+\+(?!cpu\b)\S+)", re.MULTILINE
)
# pip's settings, by the variables that tell uv the same. Variables, since an address may hold a password.
SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "timeout": ("UV_HTTP_TIMEOUT",),
}
OPTIONS = {"no-index", "only-binary", "no-binary"}  # uv's words are pip's
# With these pip is started: they say where it looks, and how. Others may say where it installs, or what besides.
PIP = {*SETTINGS, *OPTIONS, "cache-dir", "no-cache-dir", "no-input", "retries", "keyring-provider", "use-feature"}
# And of the variables of uv with these: others may change the versions, or leave their sha256 unchecked.
PASSES = re.compile(
    r"UV_((DEFAULT_)?INDEX|(EXTRA_)?INDEX_URL|INDEX_\w+_(USERNAME|PASSWORD)|FIND_LINKS|NO_INDEX|OFFLINE|INSECURE_HOST"
    r"|(NO_)?CACHE(_DIR)?|KEYRING_PROVIDER|CREDENTIALS_DIR|NATIVE_TLS|SYSTEM_CERTS|HTTP_\w+|\w+_TIMEOUT|CONCURRENT_\w+"
    r"|LINK_MODE|NO_PROGRESS)"
)
# Settings that do not decide what is installed.
OTHER = re.compile(r"(no-)?(cache-dir|input|color|warn-.*)|disable-.*|progress-bar|quiet|verbose|log|re.*|root-.*")
# Only constraints.txt and pip's settings decide: a uv.toml, or a pyproject.toml in a folder above, may be anybody's.
UV = ["--no-config", "--no-sources", "--index-strategy=unsafe-best-match", "--constraints=constraints.txt"]
UV += ["--build-constraints=constraints.txt", "--require-build-hashes", "--preview-features=build-dependency-hashes"]


@dataclass(frozen=True)
class State:
    """What a venv was set up with: the stamp inside it."""

    files: str  # digest of pyproject.toml and constraints.txt
    torch: str  # cpu or gpu
    extras: tuple[str, ...]
    place: str  # the clone and the venv: each holds the other's path

    def covers(self, wanted: State) -> bool:
        """Whether a venv in this state already has all that is wanted."""
        return replace(self, extras=wanted.extras) == wanted and set(wanted.extras) <= set(self.extras)

    def joined(self, wanted: State) -> State:
        """The wanted state, which keeps the extras that are already there and that pyproject.toml still has."""
        kept = project()["optional-dependencies"].keys() & set(self.extras)
        return replace(wanted, extras=tuple(sorted({*kept, *wanted.extras})))


NOTHING = State("", "", (), "")


def read_state(stamp: Path) -> State:
    """The state a stamp tells, or NOTHING."""
    try:
        data = json.loads(stamp.read_text(encoding="utf-8"))
        return State(data["files"], data["torch"], tuple(data["extras"]), data["place"])
    except (OSError, ValueError, KeyError, TypeError):
        return NOTHING


def files_digest() -> str:
    """The digest of what decides the versions."""
    texts = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def environment() -> dict[str, str]:
    """The variables of what is started, without those by which Python would run other modules than those installed."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "UV_")) or PASSES.fullmatch(name)
    }


def module(python: str, name: str, *words: str) -> list[str]:
    """The command that runs a module, and looks for nothing in the working folder: its files may be anybody's."""
    return [python, "-P", "-m", name, *words]


def target_extras(target: str, python: str) -> tuple[tuple[str, ...], bool]:
    """The extras of pyproject.toml that a target needs, and whether environments of its plug-ins are to be made.

    Asked of the source tree: nothing must be installed for it.
    """
    command = module(python, "edgecompress.pipeline.requirements", target)
    told = subprocess.run(command, env={**environment(), "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)
    if told.returncode:
        sys.exit(told.returncode)
    extras, *make = told.stdout.strip("\n").split("\n")
    return tuple(extra for extra in extras.split(",") if extra), make == ["make"]


def remembered_extras(target: str, venv: Venv, python: str) -> tuple[tuple[str, ...], bool]:
    """As target_extras; not asked again while no file of edgecompress and of the target changes."""
    files = [*ROOT.joinpath("edgecompress").rglob("*.py"), *ROOT.joinpath("edgecompress").rglob("*.toml"), Path(target)]
    marks = [(str(file), (stat := file.stat()).st_mtime_ns, stat.st_size) for file in sorted(files) if file.is_file()]
    mark = hashlib.sha256(repr((target, python, marks)).encode()).hexdigest()
    memo = venv.path / "edgecompress-targets" / mark
    if memo.exists():
        return tuple(memo.read_text(encoding="utf-8").split()), False
    extras, make = target_extras(target, python)
    if venv.stamp.exists() and not make:
        memo.parent.mkdir(exist_ok=True)
        memo.write_text(" ".join(extras), encoding="utf-8")
    return extras, make


def make_environments(target: str, venv: Venv) -> None:
    """Makes the environments that plug-ins of a target have of their own.

    Where one cannot be made the set-up goes on: a deploy that cannot do without it says so.
    """
    command = module(venv.python, "edgecompress.pipeline.requirements", "make", target)
    subprocess.run(command, env=pip_environment(venv.pip_settings))


def project() -> Mapping[str, Any]:
    """[project] of pyproject.toml."""
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]  # type: ignore[no-any-return]


def requirements(project: Mapping[str, Any], extras: tuple[str, ...]) -> set[str]:
    """The requirements behind some extras, `edgecompress[other]` followed."""
    found: set[str] = set(project["dependencies"])
    todo, done = list(extras), set()
    while todo:
        extra = todo.pop()
        if extra in done:
            continue
        done.add(extra)
        for requirement in project["optional-dependencies"].get(extra, ()):
            own = re.fullmatch(rf"{project['name']}\[(.+)\]", requirement)
            if own:
                todo.extend(part.strip() for part in own[1].split(","))
            else:
                found.add(requirement)
    return found


def needs_torch(extras: tuple[str, ...]) -> bool:
    """Whether some extra brings torch."""
    return any(re.match(r"torch\b(?!-)", r) for r in requirements(project(), extras))


def pin(name: str, constraints: str, hashes: bool = False) -> str:
    """The words NAME==VERSION of constraints.txt, or the whole entry."""
    line = re.search(rf"^({name}==\S+)(?: \\\n +--hash=\S+)*", constraints, re.MULTILINE)
    if not line:
        sys.exit(f"constraints.txt: no line '{name}==VERSION'; setup pins {name} by it")
    return line[0 if hashes else 1]


def read_settings(pip_config: str) -> dict[str, list[str]]:
    """pip's settings, by name, from the output of `pip config list`, where each value is a Python literal.

    Empty values are ignored.
    """
    lines = re.findall(r"""^(global|install|:env:)\.([-\w]+)=(['"].+['"])$""", pip_config, re.MULTILINE)
    lines.sort(key=lambda line: ("global", "install", ":env:").index(line[0]))  # a later one goes first, as in pip
    return {name: ast.literal_eval(value).split() for _, name, value in lines if value[1:-1].strip()}


def pip_environment(told: Mapping[str, list[str]]) -> dict[str, str]:
    """The variables with which pip has those of its settings that are in PIP, and no others."""
    own = {f"PIP_{name.upper().replace('-', '_')}": " ".join(words) for name, words in told.items() if name in PIP}
    others = {name: value for name, value in environment().items() if not name.startswith("PIP_")}
    return {**others, **own, "PIP_CONFIG_FILE": os.devnull}


def uv_settings(told: Mapping[str, list[str]]) -> tuple[dict[str, str], list[str]]:
    """The environment variables and options with which uv uses pip's settings; prints the settings that uv lacks."""
    settings: dict[str, str] = {}
    options: list[str] = []
    for name, words in told.items():
        for variable in SETTINGS.get(name, ()):
            settings[variable] = ("," if name == "find-links" else " ").join(words)
        if name == "no-index":
            options += ["--no-index"] * (words[0].lower() in ("1", "true", "yes", "on", "y", "t"))
        elif name in OPTIONS:
            options += [f"--{name}={package}" for package in ",".join(words).split(",")]
    lost = [name for name in told if name not in {*SETTINGS, *OPTIONS} and not OTHER.fullmatch(name)]
    if lost:
        print(f"setup: uv ignores these settings of pip: {', '.join(lost)}", flush=True)
    return {name: value for name, value in settings.items() if name not in os.environ}, options


class Venv:
    """The virtual environment at `path`; every command is printed before it runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.python = str(path / "bin" / "python")
        self.stamp = path / "edgecompress-setup.json"
        self.place = f"{ROOT}{os.pathsep}{path.resolve()}"

    def state(self) -> State:
        """What it was set up with; NOTHING where that was not finished, is elsewhere, or its Python is gone."""
        state = read_state(self.stamp)
        return state if state.place == self.place and Path(self.python).exists() else NOTHING

    def create(self) -> None:
        """Creates it again. `pyvenv.cfg` is written first and stays, so a killed run is known to have left a venv."""
        python = os.path.realpath(sys.executable)  # it may be the one that is removed here
        mark = self.path / "pyvenv.cfg"
        there = [*self.path.iterdir()] if self.path.is_dir() else []
        if there and mark not in there:
            sys.exit(f"setup: {self.path} is not empty and not a virtual environment; give another --venv")
        if there:
            print(f"setup: {self.path} is incomplete, or was moved or copied: creating it again", flush=True)
        self.path.mkdir(parents=True, exist_ok=True)
        mark.touch()
        for path in there:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != mark:
                path.unlink()
        _run(module(python, "venv", str(self.path)))

    def install_uv(self, entry: str) -> None:
        """uv as `entry` of constraints.txt has it: by pip, which checks its sha256."""
        listed = self.path / "edgecompress-uv.txt"
        listed.write_text(entry, encoding="utf-8")
        env = pip_environment(self.pip_settings)
        options = ["--quiet", "--require-hashes", "--only-binary=:all:", "--requirement", str(listed)]
        advice = "; check the network, and where pip looks: python3 -m pip config list"
        _run(module(self.python, "pip", "--disable-pip-version-check", "install", *options), env=env, advice=advice)

    @cached_property
    def pip_settings(self) -> dict[str, list[str]]:
        """pip's settings, by name."""
        command = module(self.python, "pip", "config", "list")
        return read_settings(subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True).stdout)

    @cached_property
    def settings(self) -> tuple[dict[str, str], list[str]]:
        """pip's settings, for uv."""
        return uv_settings(self.pip_settings)

    def uv(self, *arguments: str, capture: bool = False) -> str:
        """Runs `uv pip install` with the pins of constraints.txt. Ends the set-up with uv's code when it fails.

        What pip takes from several indexes uv takes too, by the same rule: the version decides, not the index.
        """
        env, options = self.settings
        command = module(self.python, "uv", "pip", "install", "--python", self.python, *UV, *options, *arguments)
        return _run(command, env={**environment(), **env}, capture=capture)

    def has_torch(self, pin: str, build: str) -> bool:
        """Whether this version and build of torch is there; read off the folders, torch is not imported."""
        packages = next(self.path.glob("lib/python*/site-packages"))
        there = [*packages.glob(f"torch-{pin.partition('==')[2]}*.dist-info")]
        cuda = any(packages.glob("nvidia*")) or any("+cu" in info.name for info in there)
        return bool(there) and build == ("gpu" if cuda else "cpu")

    def install_torch(self, pin: str, build: str) -> None:
        """torch, alone and first: later commands only repeat the pin. They compile only what they install."""
        if self.has_torch(pin, build):
            return
        asked = ["--reinstall-package=torch", pin]
        cuda = CUDA.search(self.uv("--dry-run", *asked, capture=True)) if build == "cpu" else None
        if cuda:
            print(f"setup: {pin} comes with {cuda[1]}, which a CPU does not need: the CPU build is fetched", flush=True)
            asked.append("--torch-backend=cpu")
        self.uv("--compile-bytecode", *asked)

    def check(self) -> None:
        """Ends the set-up unless the command of this version is there."""
        command, version = self.path / "bin" / "edgecompress", f"edgecompress {project()['version']}"
        told = ""
        if command.exists():
            told = subprocess.run([command, "--version"], env=environment(), stdout=subprocess.PIPE, text=True).stdout
        if told.strip() != version:
            sys.exit(f"setup: {command}: must be there and say {version!r}, says {told.strip()!r}; set up again")

    def size_gb(self) -> float:
        """Gigabytes on disk."""
        return sum(p.lstat().st_size for p in self.path.rglob("*") if p.is_file()) / 1e9


def _run(command: list[str], env: Mapping[str, str] | None = None, capture: bool = False, advice: str = "") -> str:
    shown = " ".join(command).replace(f"{ROOT}{os.sep}", "")
    print(f"setup: {shown}", flush=True)
    out = subprocess.PIPE if capture else None
    env = env or environment()
    done = subprocess.run(command, cwd=ROOT, env=env, stderr=out, text=True, close_fds=False)  # it holds the lock too
    if done.returncode:
        print(
            f"{done.stderr or ''}setup: failed with code {done.returncode}; the message above is of: {shown}{advice}",
            file=sys.stderr,
        )
        sys.exit(done.returncode)
    return done.stderr or ""


def wait_for_others() -> None:
    """Only one set-up of a clone at a time: this one until it and all that it started have ended."""
    path = ROOT / "pyproject.toml"
    lock = os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)  # NFS locks what may be written
    os.set_inheritable(lock, True)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("setup: waits for another set-up", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def install(venv: Venv, found: State, wanted: State) -> None:
    """Installs what is wanted. The stamp is written last; a venv without a stamp is created again."""
    begin = time.monotonic()
    state = found.joined(wanted)
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    if found == NOTHING:
        venv.create()
    venv.stamp.unlink(missing_ok=True)
    venv.install_uv(pin("uv", constraints, hashes=True))
    pins = []
    if needs_torch(state.extras):
        pins = [pin("torch", constraints)]
        venv.install_torch(pins[0], state.torch)
    # A stage may not write here: what is not compiled now would be compiled again by every stage that imports it.
    venv.uv("--compile-bytecode", *pins, "--editable", f".[{','.join(state.extras)}]" if state.extras else ".")
    venv.check()
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
    wait_for_others()
    found = venv.state()
    python = venv.python if found.files else sys.executable
    targets = [target for target in args.target.split(",") if target]
    needs = {target: remembered_extras(target, venv, python) for target in targets}
    extras = {extra for some, _ in needs.values() for extra in some} | ({"dev"} if args.dev else set())
    wanted = State(
        files_digest(), args.torch or read_state(venv.stamp).torch or "cpu", tuple(sorted(extras)), venv.place
    )
    fresh = not found.covers(wanted)
    if fresh:
        install(venv, found, wanted)
        needs = {target: remembered_extras(target, venv, venv.python) for target in targets}  # now there is a place
    for target in (name for name, (_, make) in needs.items() if make or fresh):  # another Python may have been asked
        make_environments(target, venv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
