"""The stage that measures the channel block of a device; core/channel_blocks.py has the rule."""

from __future__ import annotations

from edgecompress.core import environments, registry
from edgecompress.core.channel_blocks import key
from edgecompress.core.errors import NoPath
from edgecompress.core.model import Stage
from edgecompress.core.settings import Device, Target, Variant
from edgecompress.pipeline import conversion

STAGE = "block"  # its name, and that of the kind it makes
NONE = "fp32"  # the precision of a net that nothing has compressed
MAX_AGE_S = 90 * 86400.0  # a processor's kernels change with the runtime's version, which is part of the key
ESTIMATE_S = 60.0


def conversion_calls(runtime: str, precision: str) -> list[conversion.Call]:
    """The calls from a torch program to the runtime's format; raises NoPath, ConfigError, MissingDependency."""
    variant = Variant(precision, compress=({"use": precision},) if precision != NONE else ())
    target, where = Target("a channel block", runtime, (variant,)), f"the channel block of {key(runtime, precision)}"
    calls = conversion.steps(target, target.variant[0], "program", where)
    for who, module in conversion.modules(target, target.variant[0], calls).items():
        environments.require(module, who)
    return calls


def stage(runtime: str, precision: str, device: Device) -> Stage:
    """The stage that finds the block on a device; raises what the calls do, and NoPath where nothing runs there."""
    calls = conversion_calls(runtime, precision)
    made = [call.split(":")[0] for call, _ in calls]
    transport, engine = registry.transport(device.transport), registry.runtime(runtime)
    where = f"the channel block of {key(runtime, precision)}"
    if stands_in := engine.simulated:
        raise NoPath(
            where,
            f"{stands_in} stands in for runtime {runtime} here, so its speed cannot be measured; give `align` instead",
        )
    if not transport.runs(engine):
        raise NoPath(where, f"{transport.simulated} does not support runtime {runtime}; give `align` instead")
    there = (f"transports.{device.transport}", *(f"sensors.{name}" for name in device.sensors))
    return Stage(
        STAGE,
        "stages.channel_block:run",
        options={"runtime": runtime, "precision": precision, "calls": calls},
        context=("device",),
        plugins=tuple(dict.fromkeys((*made, f"runtimes.{runtime}", *there))),
        max_age_s=MAX_AGE_S,
        estimate_s=ESTIMATE_S,
    )
