"""Sets up .venv with what targets need and nothing else, with torch as a CPU build unless a GPU build is asked for.

Standard library only: it runs before anything is installed. pip brings uv, uv the rest, from where pip is configured to
look, with the sha256 of constraints.txt. What is there already is not done again.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = "edgecompress-setup.json"
# What `uv pip install --dry-run` prints of a torch that is not a CPU build, or of what such a build brings.
CUDA = re.compile(
    r"^ \+ (nvidia-(?!ml-py)\S+|cuda-\S+|(?:pytorch-)?triton(?:-|==)\S+|torch==\S+\+(?!cpu\b)\S+)", re.MULTILINE
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
VERBOSE = bool(os.environ.get("V"))  # `make V=1 ...` prints each command, and what it prints
OPTIONS = {"no-index", "only-binary", "no-binary"}  # uv's words are pip's
# With these pip is started, too: others may say where it installs, or what besides.
PIP = {*SETTINGS, *OPTIONS, "cache-dir", "no-cache-dir", "no-input", "retries", "keyring-provider", "use-feature"}
# The variables of uv that say where it looks, and how: others may change the versions, or leave a sha256 unchecked.
PASSES = re.compile(
    r"UV_((DEFAULT_)?INDEX|(EXTRA_)?INDEX_URL|INDEX_\w+_(USERNAME|PASSWORD)|FIND_LINKS|NO_INDEX|OFFLINE|INSECURE_HOST"
    r"|(NO_)?CACHE(_DIR)?|KEYRING_PROVIDER|CREDENTIALS_DIR|NATIVE_TLS|SYSTEM_CERTS|HTTP_\w+|\w+_TIMEOUT|CONCURRENT_\w+"
    r"|LINK_MODE|NO_PROGRESS)"
)
# Only constraints.txt and pip's settings decide: a uv.toml, or a pyproject.toml in a folder above, may be anybody's.
UV = ["--no-config", "--no-sources", "--index-strategy=unsafe-best-match", "--constraints=constraints.txt"]
UV += ["--build-constraints=constraints.txt", "--require-build-hashes", "--preview-features=build-dependency-hashes"]


def environment() -> dict[str, str]:
    """The variables of what is started, without those that change what Python runs, or what uv installs and where."""
    return {n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "UV_")) or PASSES.fullmatch(n)}


def run(command: list[str], env: dict[str, str] | None = None) -> str:
    """Runs a command and returns its stderr. Ends the set-up with its code, and all it printed, when it fails."""
    shown = " ".join(command).replace(f"{ROOT}{os.sep}", "")
    env = env or environment()
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, close_fds=False)
    if done.returncode or VERBOSE:
        print(flush=True)
        print(f"setup: {shown}\n{done.stdout}{done.stderr}", file=sys.stderr, end="", flush=True)
    if done.returncode:
        end = f"setup: failed with code {done.returncode}; the message above is of: {shown}"
        print(f"{end} (where pip looks: python3 -m pip config list)", file=sys.stderr)
        sys.exit(done.returncode)
    return done.stderr


def python(*words: str, by: str = "") -> list[str]:
    """A command of .venv's Python, or of another; the working folder is not on its path: its files may be anybody's."""
    return [by or str(VENV / "bin" / "python"), "-P", "-m", *words]


@cache
def pip_settings() -> dict[str, list[str]]:
    """pip's settings that say where it looks, and how, by name; those of the variables go first, as in pip."""
    command = python("pip", "config", "list")
    told = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True).stdout
    lines = re.findall(r"""^(global|install|:env:)\.([-\w]+)=(['"].+['"])$""", told, re.MULTILINE)
    lines.sort(key=lambda line: ("global", "install", ":env:").index(line[0]))
    return {name: ast.literal_eval(value).split() for _, name, value in lines if name in PIP and value[1:-1].strip()}


def pip_environment() -> dict[str, str]:
    """The variables with which pip looks where it is configured to, and installs nowhere else."""
    own = {f"PIP_{name.upper().replace('-', '_')}": " ".join(words) for name, words in pip_settings().items()}
    others = {name: value for name, value in environment().items() if not name.startswith("PIP_")}
    return {**others, **own, "PIP_CONFIG_FILE": os.devnull}


def uv(*arguments: str) -> str:
    """Runs `uv pip install` with the pins of constraints.txt and pip's settings; variables of uv's own go first."""
    # Bytecode comes with use (edgecompress/pipeline/bytecode.py): most files are never imported. Where Python may not
    # write it, each stage would compile the same files again.
    env, options = environment(), ["--compile-bytecode"] * sys.dont_write_bytecode
    for name, words in pip_settings().items():
        for variable in SETTINGS.get(name, ()):
            env.setdefault(variable, ("," if name == "find-links" else " ").join(words))
        if name == "no-index":
            options += ["--no-index"] * (words[0].lower() in ("1", "true", "yes", "on", "y", "t"))
        elif name in OPTIONS:
            options += [f"--{name}={package}" for package in ",".join(words).split(",")]
    return run(python("uv", "pip", "install", "--python", python()[0], *UV, *options, *arguments), env=env)


def needs(targets: list[str], by: str) -> tuple[set[str], bool]:
    """The extras that targets need, as the source tree says, and whether environments of plug-ins are to be made."""
    command, env = python("edgecompress.pipeline.requirements", *targets, by=by), environment()
    told = subprocess.run(command, env={**env, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)
    if told.returncode:
        sys.exit(told.returncode)
    extras, *make = told.stdout.splitlines()
    return set(extras.split(",")) - {""}, bool(make)


def read_stamp() -> dict[str, Any]:
    """What .venv was set up with; nothing where that was not finished, was in another place, or its Python is gone."""
    try:
        stamp: dict[str, Any] = json.loads((VENV / STAMP).read_text(encoding="utf-8"))
        return stamp if stamp["place"] == str(VENV.resolve()) and (VENV / "bin" / "python").exists() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def wanted_stamp(found: dict[str, Any], extras: set[str], torch: str | None) -> dict[str, Any]:
    """What .venv is to hold: the extras that are there stay, unless pyproject.toml no longer has them."""
    import tomllib

    texts = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    known = tomllib.loads(texts[0].decode())["project"]["optional-dependencies"].keys()
    return {
        "place": str(VENV.resolve()),  # its programs hold it
        "files": hashlib.sha256(b"\0".join(texts)).hexdigest(),
        "torch": torch or found.get("torch", "cpu"),
        "extras": sorted(extras | (known & set(found.get("extras", ())))),
    }


def runs_this_clone() -> bool:
    """Whether .venv runs the files of this clone, not a copy of them that `pip install .` has put there."""
    for file in VENV.glob("lib/python*/site-packages/edgecompress-*.dist-info/direct_url.json"):
        told = json.loads(file.read_text(encoding="utf-8"))
        place = Path(unquote(urlsplit(told["url"]).path)).resolve()
        return bool(told.get("dir_info", {}).get("editable")) and place == ROOT
    return False


def install(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Installs what is wanted. The stamp is written last: without one, or for another torch, .venv is made anew."""
    begin, stamp = time.monotonic(), VENV / STAMP
    print(f"Setting up .venv ({', '.join(wanted['extras'])}) ...", end="\n" if VERBOSE else " ", flush=True)
    stamp.unlink(missing_ok=True)
    if not found or found["torch"] != wanted["torch"]:
        run(python("venv", "--clear", str(VENV), by=os.path.realpath(sys.executable)))  # not by the one removed here
    listed, constraints = VENV / "edgecompress-uv.txt", (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pin = re.findall(r"^uv==\S+(?: \\\n +--hash=\S+)+", constraints, re.MULTILINE)
    listed.write_text("".join(pin), encoding="utf-8")
    options = ["--quiet", "--require-hashes", "--only-binary=:all:", "--requirement", str(listed)]
    run(python("pip", "--disable-pip-version-check", "install", *options), env=pip_environment())
    package = ["--editable", f".[{','.join(wanted['extras'])}]"]
    # What comes with a build for CUDA is gigabytes that a CPU does not need.
    cuda = CUDA.search(uv("--dry-run", *package)) if wanted["torch"] == "cpu" else None
    if cuda:
        uv("--torch-backend=cpu", "torch")
    uv(*package)
    run([str(VENV / "bin" / "edgecompress"), "--version"])
    stamp.write_text(json.dumps(wanted), encoding="utf-8")
    print(f"{time.monotonic() - begin:.0f} s", flush=True)


def wait_for_others() -> None:
    """Only one set-up of a clone at a time: this one until it and all that it started have ended."""
    lock = os.open(ROOT / "pyproject.toml", os.O_RDWR)  # NFS locks what may be written
    os.set_inheritable(lock, True)  # see `close_fds`
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("setup: waits for another set-up", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def main() -> int:
    """Sets up, or finds that it is done."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python gets this far, and is told
        sys.exit("edgecompress needs Python 3.11 or newer; run: make PYTHON=python3.11 ...")
    parser = argparse.ArgumentParser(prog="setup.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="", help="targets' names or TOML files, separated by commas")
    parser.add_argument("--dev", action="store_true", help="the tools of the tests and checks too")
    parser.add_argument("--torch", choices=("cpu", "gpu"), help="the build of torch (default: the one there, else cpu)")
    args = parser.parse_args()
    wait_for_others()
    found, targets = read_stamp(), [*filter(None, args.target.split(","))]
    extras, make = needs(targets, by="" if found else sys.executable) if targets else (set(), False)
    wanted = wanted_stamp(found, extras | ({"dev"} if args.dev else set()), args.torch)
    if found != wanted or not runs_this_clone():
        install(found, wanted)
        make = True  # another Python may have been asked
    for target in targets if make else ():
        # Where one cannot be made the set-up goes on: a deploy that cannot do without it says so.
        subprocess.run(python("edgecompress.pipeline.requirements", "make", target), env=pip_environment())
    return 0


if __name__ == "__main__":
    sys.exit(main())
