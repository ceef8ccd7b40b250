"""The devices that ship: each parses, cites its figures, and names transports and sensors that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgecompress.commands import listing
from edgecompress.core import catalog, registry
from edgecompress.core.settings import Device

FILES = sorted(catalog.shipped("devices").glob("*.toml"))
FIGURES = ("cores", "vector_bits", "memory_mib")


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def device(request: pytest.FixtureRequest) -> Device:
    return catalog.device(str(request.param)).value


def test_a_name_is_small_letters_digits_and_dashes():
    assert [f.stem for f in FILES if f.stem != f.stem.lower() or not f.stem.replace("-", "").isalnum()] == []


def test_a_device_says_what_it_is_in_one_line_that_ends(device):
    assert device.description.endswith(".") and "\n" not in device.description


def test_its_transport_and_sensors_are_there(device):
    assert device.transport in registry.names("transports")
    assert set(device.sensors) <= set(registry.names("sensors"))


def test_its_figures_are_possible_and_cited(device):
    told = {name: getattr(device, name) for name in FIGURES if getattr(device, name) is not None}
    assert all(value > 0 for value in told.values())
    assert device.source or not told, f"no citation for {', '.join(told)}"


def test_its_power_model_is_cited_and_has_a_band(device):
    if device.power:
        assert device.power.source
        assert 0 <= device.power.idle_w < device.power.active_w and 0 < device.power.error <= 1


def test_where_nothing_runs_there_is_something_else_to_do(device):
    if device.unreachable:
        reason, _, instead = device.unreachable.partition(":")
        assert reason and instead.strip() and "\n" not in device.unreachable
        assert listing.unreachable(device) == device.unreachable


def test_a_device_that_is_simulated_counts_and_has_no_energy(device):
    if getattr(registry.load("transports", device.transport), "SIMULATED", ""):
        quantities = {getattr(registry.load("sensors", s), "QUANTITY", "energy") for s in device.sensors}
        assert quantities == {"instructions"} and device.power is None


@pytest.mark.parametrize("name", ["pixel8", "iphone15", "ethos-u55"])
def test_a_device_that_is_not_at_hand_is_listed_with_the_reason(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where there is no adb
    row = next(row for row in listing.devices() if row["name"] == name)
    assert row["reachable"] == "no" and row["why_not"]
