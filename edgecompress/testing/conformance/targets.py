"""The checks of a target: it parses, and each of its variants can be reached."""

from __future__ import annotations

from pathlib import Path

from edgecompress.core import catalog, extras, registry
from edgecompress.pipeline import conversion


def check_target(path: Path) -> None:
    """A target parses, its device exists, and each of its variants can be reached from some source."""
    parsed = catalog.target(str(path))
    target = parsed.value
    assert target.description, f"{path}: a target says what it is for"
    assert any(v.reference for v in target.variant), f"{path}: no variant is the reference: nothing to compare with"
    for variant in target.variant:
        runtime = variant.runtime or target.runtime
        assert runtime in registry.names("runtimes"), f"{path}: variant {variant.name}: no runtime '{runtime}'"
    modules = conversion.plugins(target)
    assert modules, f"{path}: nothing is run"
    if extras.is_here("apps"):
        # its packager takes what each of its runtimes writes
        assert target.package in registry.names("packagers"), f"{path}: no packager '{target.package}'"
        taken = registry.load("packagers", target.package).FORMATS
        for name in {variant.runtime or target.runtime for variant in target.variant}:
            kind = registry.load("runtimes", name).FORMAT
            assert not taken or kind in taken, f"{path}: packager '{target.package}' does not take {kind} of {name}"
    device = catalog.device(target.device).value
    assert device.transport in registry.names("transports"), f"{path}: no transport '{device.transport}'"
    unknown = set(device.sensors) - set(registry.names("sensors"))
    assert not unknown, f"{path}: the device names sensors that are not there: {sorted(unknown)}"
