"""The cores that can be emulated, as Linux describes them below /proc and /sys: runtimes choose kernels by that."""

from __future__ import annotations

from dataclasses import dataclass

CORES = 4
_ARMV8 = "fp asimd aes pmull sha1 sha2 crc32"
_ARMV82 = f"{_ARMV8} atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
_V1 = (
    f"{_ARMV82} jscvt fcma sha3 sm3 sm4 sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs paca pacg dcpodp "
    "svei8mm svebf16 i8mm bf16 dgh rng"
)


@dataclass(frozen=True)
class Cpu:
    """A core as QEMU's -cpu of that name has it; its caches and clocks are those of a board that carries it.

    An emulator has neither cache nor clock, but libraries size their tiles by the one and sort cores by the other.
    """

    part: str  # in the main ID register, all made by Arm (0x41)
    variant: str
    revision: int
    features: str
    l2_kib: int
    l2_cores: int  # that share one
    khz: tuple[int, int]  # lowest and highest
    emulates: str = ""  # the -cpu, where QEMU knows none of that name


CPUS = {
    # Raspberry Pi 3 B+, 4 B, 5 (raspberrypi.com/documentation/computers/processors.html), AWS Graviton2
    "cortex-a53": Cpu("0xd03", "0x0", 4, f"{_ARMV8} cpuid", 512, 4, (600_000, 1_400_000)),
    "cortex-a72": Cpu("0xd08", "0x0", 3, f"{_ARMV8} cpuid", 1024, 4, (600_000, 1_500_000)),
    "cortex-a76": Cpu("0xd0b", "0x4", 1, _ARMV82, 512, 1, (1_500_000, 2_400_000)),
    "neoverse-n1": Cpu("0xd0c", "0x4", 1, _ARMV82, 1024, 1, (2_500_000, 2_500_000)),
    # AWS Graviton3 (github.com/aws/aws-graviton-getting-started). It is QEMU's "max", which has SVE2 and more, without
    # SME: libraries that ask the kernel instead of reading /proc/cpuinfo are told of what V1 lacks.
    "neoverse-v1": Cpu("0xd40", "0x1", 1, _V1, 1024, 1, (2_600_000, 2_600_000), "max,sme=off,sve256=on"),
}


def files(cpu: Cpu) -> dict[str, str]:
    """The files below / that describe CORES such cores."""
    there = f"0-{CORES - 1}"
    everywhere = dict.fromkeys(("online", "possible", "present"), there)
    system = {**everywhere, "kernel_max": str(CORES - 1)}
    for core in range(CORES):
        system |= {f"cpu{core}/{name}": text for name, text in _core(cpu, core).items()}
    sysfs = {f"sys/devices/system/cpu/{name}": f"{text}\n" for name, text in system.items()}
    return {"proc/cpuinfo": "".join(_processor(cpu, core) for core in range(CORES)), **sysfs}


def _core(cpu: Cpu, core: int) -> dict[str, str]:
    first = core - core % cpu.l2_cores
    sharing = f"{first}-{first + cpu.l2_cores - 1}" if cpu.l2_cores > 1 else str(core)
    cache = {"level": "2", "type": "Unified", "size": f"{cpu.l2_kib}K", "shared_cpu_list": sharing}
    return {
        **{f"cache/index2/{name}": text for name, text in cache.items()},
        "cpufreq/cpuinfo_min_freq": str(cpu.khz[0]),
        "cpufreq/cpuinfo_max_freq": str(cpu.khz[1]),
        "topology/physical_package_id": "0",
        "topology/core_id": str(core),
        "topology/cluster_cpus_list": f"0-{CORES - 1}",
    }


def _processor(cpu: Cpu, core: int) -> str:
    fields = {
        "processor": core,
        "BogoMIPS": "100.00",
        "Features": cpu.features,
        "CPU implementer": "0x41",
        "CPU architecture": 8,
        "CPU variant": cpu.variant,
        "CPU part": cpu.part,
        "CPU revision": cpu.revision,
    }
    return "".join(f"{key}\t: {value}\n" for key, value in fields.items()) + "\n"
