"""The channel block: the rule on measured and made-up staircases, the stage that measures one, the device's file."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgecompress.cli.main import main
from edgecompress.commands import device_blocks, device_file
from edgecompress.core import catalog, channel_blocks, config
from edgecompress.core.errors import ConfigError, InputError, NoPath
from edgecompress.core.settings import Device
from edgecompress.pipeline import channel_block as blocks
from edgecompress.pipeline import job
from edgecompress.stages import channel_block as block

pytestmark = pytest.mark.slow

WIDTHS = tuple(range(4, 65, 4))
COARSE = (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64)
# Six 3x3 convolutions, as parts of the time at 64 channels, on an x86 processor with 8-bit products (2026-11).
MEASURED = {
    "litert int8, coarse": dict(
        zip(COARSE, (0.25, 0.3, 0.29, 0.46, 0.47, 0.52, 0.52, 0.7, 0.75, 0.93, 1), strict=True)
    ),
    "onnx int8, coarse": dict(zip(COARSE, (0.6, 0.64, 0.54, 0.61, 0.64, 0.65, 0.66, 0.82, 0.84, 0.98, 1), strict=True)),
    "litert int8": dict(
        zip(
            WIDTHS,
            (0.27, 0.27, 0.32, 0.32, 0.5, 0.49, 0.55, 0.55, 0.72, 0.72, 0.78, 0.77, 0.95, 0.94, 0.99, 1),
            strict=True,
        )
    ),
    "onnx int8": dict(
        zip(
            WIDTHS,
            (0.56, 0.59, 0.61, 0.53, 0.6, 0.62, 0.64, 0.67, 0.77, 0.79, 0.82, 0.84, 0.94, 0.96, 0.98, 1),
            strict=True,
        )
    ),
    "onnx fp32": dict(
        zip(
            WIDTHS,
            (0.27, 0.29, 0.33, 0.34, 0.55, 0.55, 0.55, 0.55, 0.77, 0.77, 0.77, 0.77, 1, 1, 1.01, 1),
            strict=True,
        )
    ),
    "litert fp32": dict(
        zip(
            WIDTHS,
            (0.21, 0.24, 0.27, 0.3, 0.49, 0.53, 0.55, 0.51, 0.78, 0.81, 0.84, 0.88, 0.91, 0.94, 0.97, 1),
            strict=True,
        )
    ),
    "executorch int8": dict(
        zip(
            WIDTHS,
            (0.38, 0.38, 0.42, 0.42, 0.56, 0.57, 0.61, 0.61, 0.75, 0.75, 0.8, 0.8, 0.95, 0.95, 1, 1),
            strict=True,
        )
    ),
    "openvino int8": dict(
        zip(
            WIDTHS,
            (0.62, 0.63, 0.64, 0.65, 0.75, 0.76, 0.78, 0.76, 0.89, 0.91, 0.93, 0.93, 1, 1.02, 1.02, 1),
            strict=True,
        )
    ),
}


def stairs(size: int, line: float = 0.0, floor: float = 0.2) -> dict[int, float]:
    """Times of a kernel that computes `size` channels at once; `line` of it grows by single channels."""
    return {w: floor + line * w / 64 + (1 - line) * -(-w // size) * size / 64 for w in WIDTHS}


# --------------------------------------------------------------------------- the rule


@pytest.mark.parametrize("times", MEASURED.values(), ids=MEASURED)
def test_measured_staircases_have_a_block_of_16(times):
    assert channel_blocks.block(times) == 16


@pytest.mark.parametrize(
    ("size", "left"),
    [(8, {8: 0.0, 16: 0.81, 32: 0.96}), (16, {8: 0.0, 16: 0.0, 32: 0.81}), (32, {8: 0.0, 16: 0.0, 32: 0.0})],
)
def test_stairs_leave_no_slope_within_their_blocks_and_most_of_it_in_larger_ones(size, left):
    assert channel_blocks.slopes_left(stairs(size)) == pytest.approx(left, abs=0.005)


def test_a_straight_line_leaves_all_of_its_slope_and_has_no_block():
    line = {w: 0.1 + w / 64 for w in WIDTHS}
    assert channel_blocks.slopes_left(line) == pytest.approx(dict.fromkeys(channel_blocks.BLOCKS, 1.0))
    assert channel_blocks.block(line) == channel_blocks.FINEST


def test_where_all_widths_cost_alike_the_widest_is_the_block():
    assert channel_blocks.block({w: 1.0 + 0.001 * w for w in WIDTHS}) == channel_blocks.WIDEST
    assert channel_blocks.block(dict.fromkeys(WIDTHS, 1.0)) == channel_blocks.WIDEST


def test_steps_of_any_height_are_steps():
    heights = {16: 0.2, 32: 0.5, 48: 0.65, 64: 1.0}
    assert channel_blocks.block({w: heights[-(-w // 16) * 16] for w in WIDTHS}) == 16


def test_a_width_that_is_slower_than_a_wider_one_counts_as_that():
    spoilt = {**stairs(16), 12: 5.0, 44: 5.0}
    assert channel_blocks.block(spoilt) == 16


@given(
    st.sampled_from(channel_blocks.BLOCKS),
    st.floats(0.0, 0.3),
    st.floats(0.0, 0.4),
    st.lists(st.floats(0.995, 1.005), min_size=len(WIDTHS), max_size=len(WIDTHS)),
    st.floats(1e-6, 1e6),
)
def test_noise_offset_a_linear_part_and_the_unit_leave_the_block_as_it_is(size, line, floor, noise, unit):
    times = {w: t * n * unit for (w, t), n in zip(stairs(size, line, floor).items(), noise, strict=True)}
    assert channel_blocks.block(times) == size


# --------------------------------------------------------------------------- the stage


def test_the_stage_knows_the_device_and_everything_that_it_calls():
    made = blocks.stage("litert", "int8", catalog.device("host").value)
    assert made.call == "stages.channel_block:run" and made.context == ("device",)
    calls = [("runtimes.litert:export", {}), ("techniques.litert_int8:apply", {})]
    assert made.options == {"runtime": "litert", "precision": "int8", "calls": calls}
    assert {"runtimes.litert", "techniques.litert_int8", "transports.host", "sensors.rapl"} <= set(made.plugins)


def test_a_net_that_nothing_compresses_goes_straight_to_the_runtime():
    assert blocks.conversion_calls("onnx", "fp32") == [("runtimes.onnx:export", {})]


@pytest.mark.parametrize(
    ("runtime", "precision", "device", "why"),
    [
        ("null", "fp32", "host", "no path from program to null"),
        ("openvino", "int8", "qemu-cortex-a76", "does not support runtime openvino"),
        ("ethos_u", "int8", "host", "stands in for runtime ethos_u here"),
    ],
)
def test_where_nothing_can_be_found_out_the_reason_comes_first(runtime, precision, device, why):
    with pytest.raises(NoPath, match=why):
        blocks.stage(runtime, precision, catalog.device(device).value)


def test_an_unknown_precision_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match="no technique or precision 'int9', did you mean 'int4' or 'int8'"):
        blocks.conversion_calls("litert", "int9")


def test_blocks_of_the_file_change_no_measurement():
    device = catalog.device("host").value
    known = job.context("host", dataclasses.replace(device, blocks={"litert-int8": 16}), {})
    assert known == job.context("host", device, {})


# --------------------------------------------------------------------------- the device's file

TOML = """\
# A board of mine.
description = "A board." # with words

[options] # of ssh
host = "me@board"
"""


def test_everything_else_in_the_file_stays_as_it_is():
    first = device_file.written(TOML, "litert-int8", 16, "measured")
    assert first == f'{TOML}\n[blocks]\n"litert-int8" = 16 # measured\n'
    second = device_file.written(first, "onnx-int8", 32, "later")
    assert second == f'{TOML}\n[blocks]\n"onnx-int8" = 32 # later\n"litert-int8" = 16 # measured\n'
    assert device_file.written(second, "litert-int8", 8, "again") == second.replace("16 # measured", "8 # again")


def test_a_table_between_others_keeps_its_place():
    text = TOML.replace("[options]", "[ blocks ] # found\nonnx-fp32 = 8\n\n[options]")
    changed = device_file.written(text, "onnx-fp32", 16, "now")
    assert changed == text.replace("onnx-fp32 = 8", '"onnx-fp32" = 16 # now')


@pytest.mark.parametrize("own", ['blocks = { "litert-int8" = 8 }\n', "blocks.litert-int8 = 8\n"])
def test_a_table_written_in_a_way_of_its_own_is_left_to_its_owner(own):
    with pytest.raises(InputError, match='add "litert-int8" = 16 by hand'):
        device_file.written(own + TOML, "litert-int8", 16, "now")


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}-[a-z0-9]{1,6}", fullmatch=True), st.integers(1, 64), max_size=6))
def test_what_is_written_is_read(entries):
    text = TOML
    for name, size in entries.items():
        text = device_file.written(text, name, size, "any")
    assert tomllib.loads(text).get("blocks", {}) == entries
    assert config.build(Device, tomllib.loads(text), "a board").blocks == entries


@pytest.mark.parametrize(("value", "why"), [("0", "at least 1"), ("1.5", "must be a whole number"), ('"x"', "whole")])
def test_a_block_that_is_no_number_of_channels_is_refused(value, why):
    with pytest.raises(ConfigError, match=why):
        config.build(Device, tomllib.loads(f'description = "d."\nblocks = {{ onnx-int8 = {value} }}'), "a board")


def found(place: catalog.Found[Device], status: str = "measured") -> device_blocks.Staircase:
    """What the stage would tell of a device."""
    times = MEASURED["litert int8"]
    ends = {"times_ms": {str(w): [t, t, 2 * t] for w, t in times.items()}}
    if status == "simulated":
        ends = {"instructions": {str(w): round(t * 1e6) for w, t in times.items()}}
    left = {str(size): share for size, share in channel_blocks.slopes_left(times).items()}
    facts = {"block": 16, "left": left, "runtime": "litert", "precision": "int8", "status": status, **ends}
    return device_blocks.Staircase(place, facts, 1795000000.0)


def test_an_installed_device_is_written_as_a_copy_with_a_name_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = catalog.device("host")
    file = device_blocks.write(found(before))
    assert file == Path("devices/my-host.toml") and catalog.device("host") == before
    assert device_blocks.write(found(before)) == file
    assert catalog.device("my-host").value == dataclasses.replace(before.value, blocks={"litert-int8": 16})
    line = file.read_text().splitlines()[-1]
    command = "edgecompress device blocks host --runtime litert --precision int8"
    assert line == f'"litert-int8" = 16 # measured on 2026-11-18: {command}'


def test_a_device_of_ones_own_is_written_in_its_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "board.toml").write_text(TOML)
    assert device_blocks.write(found(catalog.device("board.toml"))) == Path("board.toml")
    assert [p.name for p in tmp_path.iterdir()] == ["board.toml"]
    assert catalog.device("board.toml").value.blocks == {"litert-int8": 16}


@pytest.mark.parametrize("status", ["measured", "simulated"])
def test_the_staircase_is_shown_with_its_block(status):
    told = device_blocks.text(found(catalog.device("host"), status), Path("devices/host.toml"))
    title, head, *rows, says, ending = told.splitlines()
    assert title.endswith(status) and head.split()[0] == "channels" and len(rows) == len(WIDTHS)
    assert [row.split()[0] for row in rows if row.endswith("<")] == ["16", "32", "48", "64"]
    assert rows[7].split()[1] == ("0.5500" if status == "measured" else "550,000")
    assert says.startswith("block 16:") and ending == 'devices/host.toml: [blocks] "litert-int8" = 16'


def test_brevity_says_only_how_it_ended():
    told = device_blocks.text(found(catalog.device("host")), Path("devices/host.toml"), brief=True)
    assert told == 'devices/host.toml: [blocks] "litert-int8" = 16'


def test_a_device_that_is_not_reached_is_the_users_to_set(capsys):
    assert main(["device", "blocks", "rpi5", "--runtime", "onnx", "--precision", "fp32"]) == 2
    assert "--set device.options.host=user@board" in capsys.readouterr().err
    nowhere = ["--set", "device.options.host=me@board.invalid", "--set", "options.config=/nowhere"]
    assert main(["device", "blocks", "rpi5", "--runtime", "onnx", "--precision", "fp32", *nowhere]) == 2
    assert "set EDGECOMPRESS_SSH_CONFIG instead" in capsys.readouterr().err


@pytest.mark.prove
@pytest.mark.slow
def test_the_command_builds_times_and_writes_and_finds_it_in_the_store_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ["device", "blocks", "--runtime", "onnx", "--precision", "fp32", "--json", "-v"]
    assert main(asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "measured" and told["block"] == channel_blocks.block(channel_blocks.staircase(told))
    assert [int(width) for width in told["times_ms"]] == list(block.WIDTHS)
    assert all(len(rounds) == block.ROUNDS and min(rounds) > 0 for rounds in told["times_ms"].values())
    assert catalog.device("my-host").value.blocks == {"onnx-fp32": told["block"]}
    assert main(asked) == 0
    again = capsys.readouterr()
    assert json.loads(again.out)["times_ms"] == told["times_ms"] and "hit" in again.err
