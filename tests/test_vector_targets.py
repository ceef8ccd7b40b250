"""Pruning for vector engines that are not here: the demo on emulated Arm cores, by counted instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgecompress

pytestmark = [pytest.mark.slow, pytest.mark.qemu, pytest.mark.timeout(1800)]

BRIEF = {"variant.pruned-int8.finetune.epochs": 1, "profile.count_runs": 1, "limits.items_lost": 500}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vector")


# A minute and more each; the block that channels are pruned to is held by test_blocks.py and test_widths.py.
CASES = [("vector-neon", "qemu-cortex-a76"), ("vector-sve", "qemu-neoverse-v1")]


@pytest.mark.prove
@pytest.mark.parametrize(("target", "device"), CASES)
def test_the_demo_pruned_to_the_block_of_an_emulated_core_takes_fewer_instructions(
    folder: Path, shared_store: Path, target: str, device: str
) -> None:
    options = edgecompress.Options(store=shared_store, out=folder / target)
    only = ("pruned-int8", "int8")
    result = edgecompress.deploy(None, target, options=options, profile="quick", only=only, settings=BRIEF)
    assert result.exit_code == 0, result.message
    told = result.read_report()
    assert told["device"]["name"] == device
    pruned = next(v for v in told["variants"] if v["name"] == "pruned-int8")["compressed"]
    block = pruned["align"]
    assert block > 1 and all(g["kept"] % block == 0 or g["kept"] == g["channels"] for g in pruned["groups"])
    gain = next(g for g in told["gains"] if g["variant"] == "pruned-int8")
    assert (gain["twin"], gain["status"], gain["metric"]) == ("int8", "simulated", "instructions")
    assert gain["gained"] and gain["fewer_macs"] > 1.5
