"""`edgecompress mcp`, asked by the SDK's own client over the pipes of a real process; null nets, in seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nulls
import plugins
import pytest

from edgecompress.cli.main import main
from edgecompress.core import package_files
from edgecompress.extras.mcp import server as mcp_server
from edgecompress.pipeline.job_request import KEYWORDS, JobRequest

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult

ROOT = Path(__file__).resolve().parents[3]
LOUD = 'import os\nprint("printed by a plug-in")\nos.system("echo by a child")\n'


def talk(folder: Path, talked: Callable[[ClientSession], Awaitable[None]]) -> None:
    """A conversation with a server that works in the folder, and that has a plug-in which prints as it is imported."""
    pytest.importorskip("mcp")
    import anyio
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    site = folder / "site"
    site.mkdir()
    plugins.plugin(site, "techniques", "loud", LOUD + plugins.HEAD.format(body="pass"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    server = StdioServerParameters(command=sys.executable, args=["-m", "edgecompress", "mcp"], cwd=str(folder), env=env)

    async def run() -> None:
        with (folder / "stderr").open("w") as log:
            async with stdio_client(server, errlog=log) as pipes, ClientSession(*pipes) as session:
                await session.initialize()
                await talked(session)

    anyio.run(run)


def wrong(result: CallToolResult) -> str:
    """The line of a tool's error."""
    assert result.isError and not result.structuredContent
    (line,) = result.content
    assert line.type == "text" and "\n" not in line.text
    return line.text


@pytest.mark.slow
def test_a_model_is_planned_deployed_reported_and_compared_by_tools_with_typed_answers(tmp_path: Path) -> None:
    made, steps = nulls.make(tmp_path / "net"), list[tuple[float, float | None, str | None]]()
    job = {**made, "profile": "quick", "settings": nulls.FAST}

    async def progress(done: float, total: float | None, message: str | None) -> None:
        steps.append((done, total, message))

    async def talked(session: ClientSession) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert set(tools) == {"plan", "deploy", "report", "compare", "diagnose"}
        assert all(tool.description and tool.outputSchema for tool in tools.values())
        arguments = [each for tool in tools.values() for each in tool.inputSchema["properties"].values()]
        assert all(each["description"] for each in arguments)

        async def ask(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            result = await session.call_tool(name, arguments, progress_callback=progress)
            assert not result.isError, result.content
            return dict(result.structuredContent or {})

        planned = await ask("plan", job)
        assert planned["variants"] == ["plain"] and planned["estimate_s"] > 0 and not steps
        deployed = await ask("deploy", job)
        assert deployed["exit_code"] == 0 and Path(deployed["out"], "report.json").is_file()
        (variant,) = deployed["report"]["variants"]
        assert (variant["name"], variant["verdict"]) == ("plain", "shipped") and variant["latency_ms"] > 0
        assert deployed["report"]["variants"] == (await ask("report", {"folder": "dist/null"}))["variants"]
        gates = {"reports": ["dist/null", "dist/null"], "fail_if": ["size_bytes > 1.5x", "size_bytes > 100"]}
        compared = await ask("compare", gates)
        assert (compared["exit_code"], compared["verdict"]) == (1, "FAIL")
        assert {row["metric"] for row in compared["metrics"]} >= {"latency_ms", "size_bytes", "accuracy"}

    talk(tmp_path, talked)
    assert [done for done, _, _ in steps] == sorted({done for done, _, _ in steps})
    assert any("plain/verify" in (message or "") for _, _, message in steps)
    assert "printed by a plug-in" in (tmp_path / "stderr").read_text()


@pytest.mark.slow
def test_what_goes_wrong_is_a_tools_error_in_one_line_and_the_server_goes_on(tmp_path: Path) -> None:
    made = nulls.make(tmp_path / "net")

    async def talked(session: ClientSession) -> None:
        mistakes: list[tuple[str, dict[str, Any], str]] = [
            ("plan", {**made, "target": "x68"}, "no target 'x68', did you mean 'x86'?"),
            ("plan", {**made, "settings": {"limits.item_lost": 1}}, "unknown key 'item_lost'"),
            ("plan", {**made, "target": "x86"}, "no path from null to onnx with int8"),
            ("deploy", {**made, "model": "none.onnx"}, "none.onnx: no such model file"),
            ("report", {"folder": "dist/none"}, "dist/none: no such file or folder"),
            ("compare", {"reports": ["dist/none"]}, "compare takes two reports or more"),
            ("diagnose", made, "runtime null"),
        ]
        for name, arguments, says in mistakes:
            assert says in wrong(await session.call_tool(name, arguments))

    talk(tmp_path, talked)


@pytest.mark.slow
def test_a_deploy_that_its_client_cancels_ends_and_the_next_tool_answers(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    import anyio
    from mcp import McpError, types

    made = nulls.make(tmp_path / "net")

    async def talked(session: ClientSession) -> None:
        measuring = anyio.Event()

        async def progress(done: float, total: float | None, message: str | None) -> None:
            if "measuring" in (message or ""):
                measuring.set()

        async def deploy() -> None:
            with pytest.raises(McpError, match="cancelled"):
                await session.call_tool("deploy", made, progress_callback=progress)

        number = session._request_id  # of the deploy
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deploy)
            await measuring.wait()
            told = types.CancelledNotification(params=types.CancelledNotificationParams(requestId=number))
            await session.send_notification(types.ClientNotification(told))
        assert not (await session.call_tool("plan", made)).isError

    talk(tmp_path, talked)
    assert not (tmp_path / "dist").exists()


@pytest.mark.slow
@pytest.mark.prove
def test_the_layer_at_fault_is_named_by_a_tool(tmp_path: Path) -> None:
    async def talked(session: ClientSession) -> None:
        result = await session.call_tool("diagnose", {"variant": "int8", "items": 4})
        assert not result.isError and result.structuredContent
        assert result.structuredContent["says"] and result.structuredContent["layers"]

    talk(tmp_path, talked)


def test_without_the_sdk_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mcp_server, "REQUIRES", ("mcp-of-nobody>=1",))
    assert main(["mcp"]) == 2
    said = capsys.readouterr().err
    assert said == (
        "edgecompress: error: edgecompress mcp needs mcp-of-nobody>=1, not installed; "
        f"run: {package_files.install('mcp')}\n"
    )


def test_the_tools_have_the_keywords_with_their_help() -> None:
    told = mcp_server.keywords("deploy")
    assert JobRequest.__annotations__.keys() <= told.keys()
    assert all(told[name] == KEYWORDS[name] for name in JobRequest.__annotations__)
