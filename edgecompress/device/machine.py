"""The description of a machine from the texts of its system: read below a root folder, or by a shell script."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

Texts = Mapping[str, str]  # path below the root (or the name of a command) -> what it says

# What decides which kernels a runtime picks (names of /proc/cpuinfo, x86 then Arm).
FEATURES = (
    *("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)
CPU0 = "sys/devices/system/cpu/cpu0"
FILES = (
    *("proc/cpuinfo", "proc/meminfo", "proc/loadavg", "proc/device-tree/model", "etc/os-release"),
    *(f"{CPU0}/cpufreq/{name}" for name in ("scaling_governor", "scaling_cur_freq", "cpuinfo_max_freq")),
    *(f"{CPU0}/cache/index{i}/{name}" for i in range(5) for name in ("level", "type", "size")),
    *("sys/class/thermal/thermal_zone0/temp", "sys/class/dmi/id/sys_vendor"),
    *("sys/hypervisor/type", "proc/device-tree/hypervisor/compatible"),
)
# Apple's names of caches: those of the fast cores, or of all
APPLE_CACHES = {
    **{f"hw.l{level}{d}cachesize": f"L{level}" for level, d in ((1, "d"), (2, ""), (3, ""))},
    **{f"hw.perflevel0.l{level}{d}cachesize": f"L{level}" for level, d in ((1, "d"), (2, ""), (3, ""))},
}
SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
COMMANDS = {
    "system": "uname -s",
    "kernel": "uname -r",
    "machine": "uname -m",
    "nproc": "env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc",
    "release": "sw_vers -productVersion",
    "caches": f"sysctl {' '.join(APPLE_CACHES)}",
}
MARK = "==edgecompress=="
# POSIX sh; prints each command's and file's text below a line with its name. `parsed` reads it.
SCRIPT = "\n".join(
    [
        *(f"echo '{MARK} {name}'; {command} 2>/dev/null" for name, command in COMMANDS.items()),
        f"for f in {' '.join(FILES)}; do [ -r /$f ] && echo '{MARK}' $f && tr '\\0' '\\n' < /$f && echo; done; true",
    ]
)
# Arm's own names of the cores in /proc/cpuinfo's "CPU part" (Linux, arch/arm64/include/asm/cputype.h).
ARM_PARTS = {
    "0xd03": "Cortex-A53",
    "0xd04": "Cortex-A35",
    "0xd05": "Cortex-A55",
    "0xd07": "Cortex-A57",
    "0xd08": "Cortex-A72",
    "0xd09": "Cortex-A73",
    "0xd0a": "Cortex-A75",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1",
    "0xd41": "Cortex-A78",
    "0xd42": "Cortex-A78AE",
    "0xd44": "Cortex-X1",
    "0xd46": "Cortex-A510",
    "0xd47": "Cortex-A710",
    "0xd49": "Neoverse-N2",
    "0xd4d": "Cortex-A715",
    "0xd4e": "Cortex-X3",
    "0xd4f": "Neoverse-V2",
}

# Microarchitectures of x86 by the family and the models in /proc/cpuinfo, inclusive: what a virtual machine calls
# itself ("AMD EPYC") says nothing. AMD's as Linux has them (arch/x86/kernel/cpu/amd.c), Intel's in intel-family.h.
MICROARCHITECTURES: Mapping[tuple[str, int], tuple[tuple[str, tuple[tuple[int, int], ...]], ...]] = {
    ("AuthenticAMD", 0x17): (
        ("Zen 1", ((0x00, 0x2F), (0x50, 0x5F))),
        ("Zen 2", ((0x30, 0x4F), (0x60, 0x7F), (0x90, 0x91), (0xA0, 0xAF))),
    ),
    ("AuthenticAMD", 0x19): (
        ("Zen 3", ((0x00, 0x0F), (0x20, 0x5F))),
        ("Zen 4", ((0x10, 0x1F), (0x60, 0xAF))),
    ),
    ("AuthenticAMD", 0x1A): (("Zen 5", ((0x00, 0x2F), (0x40, 0x4F), (0x60, 0x7F))),),
    ("GenuineIntel", 6): (
        ("Haswell", ((0x3C, 0x3C), (0x3F, 0x3F), (0x45, 0x46))),
        ("Broadwell", ((0x3D, 0x3D), (0x47, 0x47), (0x4F, 0x4F), (0x56, 0x56))),
        ("Skylake", ((0x4E, 0x4E), (0x5E, 0x5E))),
        ("Skylake-SP, Cascade Lake or Cooper Lake", ((0x55, 0x55),)),
        ("Kaby Lake or Coffee Lake", ((0x8E, 0x8E), (0x9E, 0x9E))),
        ("Comet Lake", ((0xA5, 0xA6),)),
        ("Ice Lake", ((0x6A, 0x6A), (0x6C, 0x6C), (0x7D, 0x7E))),
        ("Tiger Lake", ((0x8C, 0x8D),)),
        ("Rocket Lake", ((0xA7, 0xA7),)),
        ("Alder Lake", ((0x97, 0x97), (0x9A, 0x9A))),
        ("Raptor Lake", ((0xB7, 0xB7), (0xBA, 0xBA), (0xBF, 0xBF))),
        ("Alder Lake-N", ((0xBE, 0xBE),)),
        ("Meteor Lake", ((0xAA, 0xAA), (0xAC, 0xAC))),
        ("Lunar Lake", ((0xBD, 0xBD),)),
        ("Arrow Lake", ((0xC5, 0xC6),)),
        ("Sapphire Rapids", ((0x8F, 0x8F),)),
        ("Emerald Rapids", ((0xCF, 0xCF),)),
        ("Granite Rapids", ((0xAD, 0xAE),)),
        ("Sierra Forest", ((0xAF, 0xAF),)),
    ),
}


class MachineNow(TypedDict):
    """The state of a machine that changes while it works."""

    loadavg: list[float] | None
    memory_available_bytes: int | None
    cpu_mhz: float | None
    temperature_c: float | None


class MachineFacts(TypedDict):
    """The description of a machine. Everything but "now" stays the same from run to run."""

    machine: str
    platform: str
    os: str
    kernel: str
    cpu: str | None
    microarchitecture: str | None  # of x86; None where the family and the model are not known
    board: str | None
    cores: int | None
    features: list[str]
    memory_bytes: int | None
    caches: dict[str, int]  # "L1" (of data), "L2", ...: bytes that the first core has, its share and others'
    clock_mhz: float | None  # the highest of the first core; virtual machines tell none
    governor: str | None
    virtual: str | None
    now: MachineNow


def root() -> Path:
    """Below which sensors look for /sys and for programs: no file says so, only EDGECOMPRESS_ROOT, for tests."""
    return Path(os.environ.get("EDGECOMPRESS_ROOT", "/"))


def here(root: Path = Path("/")) -> dict[str, str]:
    """This machine's texts, its files below `root`."""
    texts = {"system": platform.system(), "kernel": platform.release(), "machine": platform.machine()}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    texts |= {"nproc": str(cores or ""), "release": platform.mac_ver()[0]}
    if texts["system"] == "Darwin" and root == Path("/"):
        command = COMMANDS["caches"].split()
        texts["caches"] = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for name in FILES:
        with contextlib.suppress(OSError):
            texts[name] = (root / name).read_text(encoding="utf-8", errors="replace").strip("\0 \n")
    return texts


def line(text: str, most: int = 200) -> str:
    """Untrusted text as one printable line, without control characters."""
    return "".join(c if c.isprintable() else " " for c in text).strip()[:most]


def parsed(output: str) -> dict[str, str]:
    """The texts in what SCRIPT printed."""
    parts = re.split(rf"^{MARK} (\S+)\n", output, flags=re.MULTILINE)
    return {name: text.strip("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def facts(texts: Texts) -> MachineFacts:
    """The description of a machine from its texts. Everything but "now" is stable and may be in a fingerprint."""
    entries = (each.partition(":") for each in texts.get("proc/cpuinfo", "").split("\n\n")[0].splitlines())
    cpu = {key.strip(): value.strip() for key, _, value in entries}  # the first processor's
    flags = set((cpu.get("flags") or cpu.get("Features") or "").split())
    lines = texts.get("etc/os-release", "").splitlines()
    named = [each.partition("=")[2].strip('"') for each in lines if each.startswith("PRETTY_NAME=")]
    # never "cpu MHz" of /proc/cpuinfo: that is the clock of a moment, or in a virtual machine a nominal one
    khz = _whole(texts.get(f"{CPU0}/cpufreq/cpuinfo_max_freq", ""))
    return {
        "machine": line(texts.get("machine", "")),
        "platform": line(f"{texts.get('system', '')}-{texts.get('machine', '')}".lower()),
        "os": line(named[0] if named else f"{texts.get('system', '')} {texts.get('release', '')}".strip()),
        "kernel": line(texts.get("kernel", "")),
        "cpu": _line(cpu.get("model name") or ARM_PARTS.get(cpu.get("CPU part", ""))),
        "microarchitecture": _microarchitecture(cpu),
        "board": _line(texts.get("proc/device-tree/model", "").strip("\0 \n") or None),
        "cores": _whole(texts.get("nproc", "")),
        "features": [f for f in FEATURES if f in flags],
        "memory_bytes": _meminfo(texts, "MemTotal"),
        "caches": caches(texts),
        "clock_mhz": khz / 1000 if khz else None,
        "governor": _line(texts.get(f"{CPU0}/cpufreq/scaling_governor")),
        "virtual": _line(_virtual(texts, flags)),
        "now": _now(texts),
    }


def caches(texts: Texts) -> dict[str, int]:
    """The bytes of each cache of data that the first core sees, by its level; empty where nothing tells."""
    told = (each.partition(":") for each in texts.get("caches", "").splitlines())
    found = {APPLE_CACHES[k]: int(v) for k, _, v in told if k in APPLE_CACHES and _whole(v)}
    for i in range(5):
        level, kind, size = (
            texts.get(f"{CPU0}/cache/index{i}/{name}", "").strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction" and (match := re.fullmatch(r"([0-9]{1,9})([KMG])", size)) and _whole(level):
            found[f"L{level}"] = int(match[1]) * SIZES[match[2]]
    return dict(sorted(found.items()))


def _line(text: str | None) -> str | None:
    return None if text is None else line(text)


def _now(texts: Texts) -> MachineNow:
    """What changes while it works: load, free memory, clock, temperature."""
    load = texts.get("proc/loadavg", "").split()[:3]
    khz = _whole(texts.get(f"{CPU0}/cpufreq/scaling_cur_freq", ""))
    millidegrees = _whole(texts.get("sys/class/thermal/thermal_zone0/temp", ""))
    return {
        "loadavg": [float(x) for x in load if re.fullmatch(r"[0-9]{1,6}\.[0-9]{2}", x)] or None,
        "memory_available_bytes": _meminfo(texts, "MemAvailable"),
        "cpu_mhz": khz / 1000 if khz else None,
        "temperature_c": millidegrees / 1000 if millidegrees is not None else None,
    }


def _microarchitecture(cpu: Mapping[str, str]) -> str | None:
    family, model = (_whole(cpu.get(key, "")) for key in ("cpu family", "model"))
    if family is None or model is None:
        return None
    known = MICROARCHITECTURES.get((cpu.get("vendor_id", ""), family), ())
    return next((name for name, models in known if any(low <= model <= high for low, high in models)), None)


def _meminfo(texts: Texts, key: str) -> int | None:
    match = re.search(rf"^{key}:\s*(\d+) kB$", texts.get("proc/meminfo", ""), re.MULTILINE | re.ASCII)
    kib = _whole(match[1]) if match else None
    return kib * 1024 if kib is not None else None


def _whole(text: str) -> int | None:
    """A number that a stranger wrote, or None where it is none."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text.strip()) else None


def _virtual(texts: Texts, flags: set[str]) -> str | None:
    """Who the hypervisor is ("yes" when it does not say), "no", or None where nothing tells."""
    named = texts.get("sys/hypervisor/type") or texts.get("proc/device-tree/hypervisor/compatible")
    if named or "hypervisor" in flags:
        return named or texts.get("sys/class/dmi/id/sys_vendor") or "yes"
    return "no" if flags and texts.get("machine") in ("x86_64", "AMD64") else None
