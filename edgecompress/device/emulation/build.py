"""Makes the emulated arm64 machine: the distribution's packages and aarch64 wheels, unpacked below one folder.

Nothing of this needs root, and nothing is installed: apt-get works on a state of its own, packages are only unpacked.
A build that was interrupted goes on where it was; a finished one is put in place by a rename.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from edgecompress.core import child_process, file_lock
from edgecompress.core.errors import DiskFull, InputError, StageFailed, brief
from edgecompress.device.emulation import cpus
from edgecompress.device.emulation.emulator import NAME, PLACE, PYTHON, Emulator, place

COMMAND = f"edgecompress device build {NAME}"
MIRROR = "EDGECOMPRESS_DEBIAN_MIRROR"  # of the packages, where this machine's own sources name none
OFFLINE = "EDGECOMPRESS_OFFLINE"  # set: nothing may be fetched
MADE = "made.json"
NEEDS_MIB = 1200  # while it is made
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITE, RELEASE = "bookworm", "3.11"  # the last suite whose QEMU takes plugins and whose CPython all the wheels are for
# QEMU and the libraries that it loads: all of them, so that nothing depends on what this machine has.
HOST_PACKAGES = (
    *("qemu-user", "libc6", "libcapstone4", "libgcc-s1", "libglib2.0-0", "libgnutls30", "libnuma1", "liburing2"),
    *("zlib1g", "libpcre2-8-0", "libp11-kit0", "libidn2-0", "libunistring2", "libtasn1-6", "libnettle8"),
    *("libhogweed6", "libgmp10", "libffi8"),
)
ARM_PACKAGES = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libssl3", "libbz2-1.0", "liblzma5"),
    *("libuuid1", "libpython3.11-minimal", "libpython3.11-stdlib", "python3.11-minimal", "busybox-static"),
)
# A C++ compiler for arm64, and what it loads; it goes when the machine is made.
CROSS_PACKAGES = (
    *("g++-12-aarch64-linux-gnu", "gcc-12-aarch64-linux-gnu", "cpp-12-aarch64-linux-gnu", "binutils-aarch64-linux-gnu"),
    *("binutils-common", "libbinutils", "libjansson4", "libisl23", "libmpc3", "libmpfr6", "libgmp10", "libzstd1"),
)
CROSS_LIBRARIES = (
    *("libstdc++-12-dev-arm64-cross", "libgcc-12-dev-arm64-cross", "libc6-dev-arm64-cross"),
    "linux-libc-dev-arm64-cross",
)
APPLETS = ("sh", "sleep")  # of busybox; the emulated Python is run without them
# The versions of constraints.txt: what is run here and there is the same release.
WHEELS = {"numpy": "2.3.5", "onnxruntime": "1.31.1", "ai-edge-litert": "2.3.0", "mnn": "3.6.1", "executorch": "1.5.1"}
GLIBC = (17, 27, 28, 34, 35, 36)  # 2.x: pip takes the tag of a wheel literally
UNNEEDED = ("usr/share/doc", "usr/share/man", "usr/share/lintian", "usr/share/locale", "usr/share/bash-completion")
PLUGIN, RUNTIME = (Path(__file__).with_name(name) for name in ("count.c", "executorch.cpp"))
# Of ExecuTorch's package: the folders of its headers, what they want defined, its libraries.
INCLUDES = ("include", "include/executorch/runtime/core/portable_type/c10")
DEFINES = ("C10_USING_CUSTOM_GENERATED_MACROS",)
LINKS = (
    *("executorch", "executorch_threadpool", "executorch_backend_xnnpack"),
    *("executorch_kernels_optimized", "executorch_kernels_quantized"),
)
HEADER = "qemu-plugin.h"

Say = Callable[[str], None]


def find() -> Emulator | None:
    """The build that is there, where it is one by today's recipe."""
    try:
        made = json.loads((place() / MADE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Emulator(place(), made["versions"]) if made.get("recipe") == recipe() else None


def recipe() -> str:
    """A digest of all that decides what is made."""
    described = {name: cpus.files(cpu) for name, cpu in cpus.CPUS.items()}
    packages = [HOST_PACKAGES, ARM_PACKAGES, CROSS_PACKAGES, CROSS_LIBRARIES, APPLETS]
    sources = [file.read_text(encoding="utf-8") for file in (PLUGIN, RUNTIME)]
    parts = [SUITE, packages, WHEELS, described, sources]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def build(say: Say) -> Path:
    """The folder of the build, made unless it is there; `say` is told each step.

    Raises InputError for a machine that cannot make it, DiskFull, or StageFailed when something could not be fetched.
    """
    if there := find():
        return there.place
    _check_machine()
    target = place()
    part = target.with_name(f".{target.name}.{recipe()}.part")
    with _os_errors_in_a_line(part):
        target.parent.mkdir(parents=True, exist_ok=True)
        with file_lock.held(target.with_name(f".{target.name}.lock")):
            if find() is None:  # it may have been made while the lock was awaited
                free = shutil.disk_usage(target.parent).free // 2**20
                if free < NEEDS_MIB:
                    what = f"{NAME}: {target.parent} has {free} MiB free, {NEEDS_MIB} are needed"
                    raise DiskFull(f"{what}; set {PLACE} to another folder")
                part.mkdir(exist_ok=True)
                _make(part, say)
                # it goes in place without what was only needed to make it; an older build, and what is left of one, go
                shutil.rmtree(part / "apt")
                old = target.with_name(f".{target.name}.old")
                shutil.rmtree(old, ignore_errors=True)
                if target.exists():
                    target.rename(old)
                part.rename(target)
                for left in (old, *target.parent.glob(f".{target.name}.*.part")):
                    shutil.rmtree(left, ignore_errors=True)
    return target


# --------------------------------------------------------------------------- what can go wrong


def _check_machine() -> None:
    """Raises InputError for what this machine lacks."""
    system = f"{platform.system()} {platform.machine()}"
    if system != "Linux x86_64":
        raise InputError(
            f"{NAME}: it can be built on Linux x86_64 only, and this is {system}; use an arm64 machine over ssh instead"
        )
    if os.environ.get(OFFLINE):
        raise InputError(f"{NAME}: not built yet, and --offline allows no downloads; run `{COMMAND}` first")
    for command, package in {"apt-get": "apt", "dpkg-deb": "dpkg", "setpriv": "util-linux", "gcc": "gcc"}.items():
        if not shutil.which(command):
            raise InputError(f"{NAME}: needs {command}; install it (Debian, Ubuntu: apt-get install {package})")
    if not KEYRING.is_file():
        raise InputError(f"{NAME}: needs {KEYRING}; install it (apt-get install debian-archive-keyring)")


@contextlib.contextmanager
def _os_errors_in_a_line(part: Path) -> Iterator[None]:
    """What the file system refuses becomes one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"{NAME}: no space left for {part}; free some and run the command again, it resumes"
            ) from error
        raise StageFailed(f"{NAME}: {part}: {error.strerror or error}; set {PLACE} to a writable folder") from error


def _run(argv: Sequence[str], hint: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """What a command prints; raises StageFailed with its last words and what to do."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8"} if env is None else env
    tied = ["setpriv", "--pdeathsig", "KILL", *argv]  # a build that is killed leaves nothing that writes on
    done = subprocess.run(tied, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    full = next((line for line in lines if "No space left" in line), "")
    if full:
        raise DiskFull(f"{NAME}: {brief(full)}; free some space and run the command again, it resumes")
    errors = [line for line in lines if line.startswith(("E:", "ERROR", "error"))] or lines
    why = brief(errors[0]) if errors else f"exit code {done.returncode}"
    raise StageFailed(f"{NAME}: {Path(argv[0]).name}: {why}; {hint}")


# --------------------------------------------------------------------------- the steps


def _make(part: Path, say: Say) -> None:
    """Each step fills a folder of `part`; one that is there was finished before."""
    steps: dict[str, tuple[str, Callable[[Path], None]]] = {
        "apt": ("lists of packages", _lists),
        "host": ("QEMU", lambda out: _unpack(part / "apt", "amd64", HOST_PACKAGES, out)),
        "arm64": (f"CPython {RELEASE} for arm64", lambda out: _userland(part / "apt", out)),
        "site": (f"aarch64 wheels of {', '.join(WHEELS)}", _wheels),
        "native": ("ExecuTorch's runtime for arm64", lambda out: _native(part / "apt", part / "site", out)),
        "plugin": ("the plugin that counts instructions", lambda out: _plugin(part / "apt", out)),
        "cpus": (f"descriptions of {', '.join(cpus.CPUS)}", _cpus),
    }
    for name, (what, make) in steps.items():
        if not (part / name).exists():
            say(what)
            fresh = part / f".{name}"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            make(fresh)
            fresh.rename(part / name)
    say("a first run")
    _first_run(Emulator(part, {}))
    made = {"recipe": recipe(), "versions": _versions(part / "apt"), "packages": _packages(part / "apt")}
    (part / MADE).write_text(json.dumps(made, indent=1), encoding="utf-8")


# --------------------------------------------------------------------------- packages


def _lists(out: Path) -> None:
    """apt's own state and lists for two architectures, and for sources."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (out / folder).mkdir(parents=True)
    (out / "status").touch()
    where = f"[signed-by={KEYRING}] {_mirror()} {SUITE} main"
    (out / "sources.list").write_text(f"deb {where}\ndeb-src {where}\n", encoding="utf-8")
    _apt(out, ["update", "-o", "APT::Update::Error-Mode=any"])


def _mirror() -> str:
    """The mirror that this machine's own sources name."""
    if named := os.environ.get(MIRROR):
        return named
    listing = _run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI)"], "check apt's sources")
    targets = [line.split() for line in listing.splitlines()]
    mirrors = [line[-1] for line in targets if line[:2] == ["Debian", "main"] and "security" not in line[-1]]
    if not mirrors:
        raise InputError(f"{NAME}: apt's sources name no Debian mirror (or lack lists: apt-get update); set {MIRROR}")
    return mirrors[0]


def _apt(state: Path, words: Sequence[str], cwd: Path | None = None) -> str:
    """apt-get on a state of its own: it neither reads nor changes this machine's."""
    config = state / "apt.conf"
    here = state.absolute()
    lines = [
        f'Dir::Etc::sourcelist "{here}/sources.list";',
        'Dir::Etc::sourceparts "-";',
        f'Dir::State::lists "{here}/lists";',
        f'Dir::Cache "{here}/cache";',
        f'Dir::State::status "{here}/status";',
        'APT::Architecture "amd64";',
        "#clear APT::Architectures;",
        'APT::Architectures {"amd64"; "arm64";};',
        'APT::Sandbox::User "root";',
        'Acquire::Languages "none";',
        'Acquire::Retries "2";',
        "#clear APT::Update::Post-Invoke;",
        "#clear APT::Update::Post-Invoke-Success;",
    ]
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    hint = "check the network and run the command again, it resumes"
    env = {**os.environ, "LC_ALL": "C.UTF-8", "APT_CONFIG": str(config.absolute())}
    return _run(["apt-get", "-q", *words], hint, env, cwd)


def _unpack(state: Path, architecture: str, packages: Sequence[str], out: Path) -> None:
    debs = state / "packages" / f"{out.name.lstrip('.')}-{architecture}"
    debs.mkdir(parents=True, exist_ok=True)
    of = "" if architecture == "all" else f":{architecture}"
    _apt(state, ["download", *(f"{name}{of}" for name in packages)], debs)
    for deb in sorted(debs.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(deb), str(out)], "run it again")
    for folder in UNNEEDED:
        shutil.rmtree(out / folder, ignore_errors=True)
    for emulator in out.glob("usr/bin/qemu-*"):
        if emulator.name != "qemu-aarch64":
            emulator.unlink()


def _userland(state: Path, out: Path) -> None:
    _unpack(state, "arm64", ARM_PACKAGES, out)
    shutil.rmtree(out / "usr/lib/aarch64-linux-gnu/gconv", ignore_errors=True)
    (out / "usr/bin/python3").symlink_to(f"python{RELEASE}")
    for name in APPLETS:
        (out / "bin" / name).symlink_to("busybox")


def _packages(state: Path) -> list[str]:
    """What was unpacked: NAME_VERSION_ARCHITECTURE."""
    return sorted(deb.stem.replace("%3a", ":") for deb in state.glob("packages/*/*.deb"))


def _versions(state: Path) -> dict[str, str]:
    qemu = next(name for name in _packages(state) if name.startswith("qemu-user_"))
    return {"qemu": qemu.split("_")[1].partition(":")[2], **WHEELS}


# --------------------------------------------------------------------------- wheels, plugin, cores


def _wheels(out: Path) -> None:
    """By pip, for another machine than this: nothing of them is run. They need none of what else they ask for."""
    tags = [f"manylinux_2_{minor}_aarch64" for minor in GLIBC]
    platforms = [word for tag in (*tags, "manylinux2014_aarch64") for word in ("--platform", tag)]
    pinned = [f"{name}=={version}" for name, version in WHEELS.items()]
    how = ["--no-deps", "--only-binary=:all:", "--no-compile", "--implementation", "cp", "--python-version", RELEASE]
    quiet = ["-q", "--disable-pip-version-check", "--no-input"]
    words = child_process.python("pip", "install", *quiet, "--target", str(out), *how, *platforms, *pinned)
    _run(words, "check the network and pip's settings and run the command again, it resumes")


def _native(state: Path, site: Path, out: Path) -> None:
    """What stands in for ExecuTorch's Python binding, which needs torch: compiled against the wheel's own headers.

    It is linked with the wheel's libraries alone, which bring C++'s.
    """
    cross, package = state / "cross", (site / "executorch").absolute()
    _unpack(state, "amd64", CROSS_PACKAGES, cross)
    _unpack(state, "all", CROSS_LIBRARIES, cross)
    tools = f"{cross.absolute()}/usr/bin/aarch64-linux-gnu-"
    compiler = [f"{tools}g++-12", f"-B{tools}", "-std=c++17", "-O2", "-fPIC", "-shared", "-nostdlib"]
    defined = [f"-D{name}" for name in DEFINES]
    included = [word for path in INCLUDES for word in ("-isystem", str(package / path))]
    linked = [f"-L{package}/lib", "-Wl,--no-as-needed", *(f"-l{name}" for name in LINKS)]
    found = f"-Wl,-rpath,$ORIGIN/../{site.name}/executorch/lib"  # at run time
    words = [*compiler, "-mno-outline-atomics", *defined, *included, str(RUNTIME), *linked, found]
    env = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": f"{cross.absolute()}/usr/lib/x86_64-linux-gnu"}
    _run([*words, "-o", str(out / Emulator(out.parent, {}).executorch.name)], "run it again", env)


def _plugin(state: Path, out: Path) -> None:
    """Compiled from our source and the one header of QEMU's own, which the distribution ships with the source only."""
    source = state / "source"
    source.mkdir(exist_ok=True)
    _apt(state, ["source", "--download-only", "--tar-only", "qemu"], source)
    with tarfile.open(next(source.glob("qemu_*.orig.tar.*"))) as archive:
        entry = next(member for member in archive if member.name.endswith(f"include/qemu/{HEADER}"))
        text = archive.extractfile(entry)
        assert text  # a file, not a folder
        (out / HEADER).write_bytes(text.read())
    shutil.copy(PLUGIN, out)
    words = ["gcc", "-O2", "-shared", "-fPIC", f"-I{out}", "-o", str(out / "count.so"), str(out / PLUGIN.name)]
    _run(words, "is a C library with its headers installed (Debian, Ubuntu: apt-get install libc6-dev)?")


def _cpus(out: Path) -> None:
    """For each core the same userland, and files that describe the core."""
    for name, cpu in cpus.CPUS.items():
        for below in ("bin", "etc", "lib", "usr"):
            (out / name).mkdir(exist_ok=True)
            (out / name / below).symlink_to(f"../../arm64/{below}")
        for file, text in cpus.files(cpu).items():
            (out / name / file).parent.mkdir(parents=True, exist_ok=True)
            (out / name / file).write_text(text, encoding="utf-8")


def _first_run(emulator: Emulator) -> None:
    """Proves that it works, and leaves the compiled modules behind."""
    modules = "ctypes, json, zipfile, onnxruntime, ai_edge_litert.interpreter, MNN"
    code = f"import {modules}; ctypes.CDLL({str(emulator.executorch)!r})"
    counts = emulator.place / "counts"
    env = {**emulator.environment(counts), "PYTHONDONTWRITEBYTECODE": ""}
    _run(emulator.command("cortex-a76", [PYTHON, "-P", "-c", code]), f"remove {emulator.place} and run it again", env)
    counts.unlink()
