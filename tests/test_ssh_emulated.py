"""A board that is not like this machine: an sshd whose Python is an emulated aarch64 one, profiled end to end."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench_inputs
import numpy as np
import pytest
import sshd

from edgecompress.core import registry
from edgecompress.core.errors import EdgeError
from edgecompress.device import agent_client
from edgecompress.device.emulation import build
from edgecompress.device.emulation.emulator import PYTHON, Emulator
from edgecompress.testing import conformance

pytestmark = [pytest.mark.slow, pytest.mark.sshd]
CPU = "cortex-a76"
# The session sees the emulated core's /proc/cpuinfo and a uname that says what Python runs on.
ENTER = """\
#!/bin/sh
mount --bind {root}/proc/cpuinfo /proc/cpuinfo || exit 99
PATH={tools}:$PATH
export PATH
eval "$SSH_ORIGINAL_COMMAND"
"""


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    try:
        if not build.find():
            build.build(print)
    except EdgeError as error:
        pytest.skip(str(error))
    built = build.find()
    assert built
    return built


@pytest.fixture(scope="module")
def device(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    tools = tmp_path_factory.mktemp("tools")
    _tool(tools / "uname", 'case "$1" in -m) echo aarch64 ;; *) exec /usr/bin/uname "$@" ;; esac')
    words = [f"{key}={value}" for key, value in emulator.environment(tools / "counts").items()]
    command = shlex.join(["/usr/bin/env", "-i", *words, *emulator.command(CPU, [PYTHON])])
    _tool(tools / "python3", f'exec {command} "$@"')
    (tools / "enter").write_text(ENTER.format(root=emulator.root(CPU), tools=tools))
    alone = "unshare --mount" if os.geteuid() == 0 else "unshare --user --map-root-user --mount"
    with sshd.serving(f"ForceCommand exec {alone} sh {tools}/enter") as server:
        yield server.device()


def _tool(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_the_board_is_what_it_says_it_is(device):
    board = registry.load("transports", "ssh").connect(device)
    facts = board.facts()
    board.close()
    assert (facts["platform"], facts["cpu"]) == ("linux-aarch64", "Cortex-A76")
    assert "asimddp" in facts["features"]


@pytest.mark.parametrize("runtime", ["onnx", "executorch"])  # ExecuTorch without torch there, with it here
def test_its_runtimes_answer_as_ours(runtime, device, tmp_path):
    model = conformance.net(registry.runtime(runtime).format, tmp_path)
    asked = bench_inputs.asked(model, conformance.samples(model, tmp_path), runtime)
    scores = []
    for transport in ("host", "ssh"):
        out = tmp_path / transport
        out.mkdir()
        shell = registry.load("transports", transport).connect(device)
        agent_client.ask(shell, bench_inputs.agent_request(asked), out, 120)
        shell.close()
        scores.append(np.load(out / "test" / f"{model.outputs[0].name}.npy"))
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)


@pytest.mark.prove
def test_a_profile_of_it_tells_of_it_and_not_of_this_machine(device, tmp_path):
    environment = sshd.profiled(device, tmp_path)["environment"]
    assert (environment["machine"], environment["cpu"]) == ("aarch64", "Cortex-A76")
