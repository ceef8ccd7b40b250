"""`edgecompress mcp`: plan, deploy, report, compare and diagnose as tools of the Model Context Protocol, over stdio."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import os
import sys
import time
import traceback
import typing
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, cast

from edgecompress.core import environments
from edgecompress.core.errors import BROKE, EdgeError, StageFailed, of_system
from edgecompress.core.plain_text import one_line
from edgecompress.core.version import __version__
from edgecompress.extras.mcp.answers import (
    CompareResult,
    DeployResult,
    DiagnoseResult,
    LayerResult,
    MetricResult,
    PlannedStage,
    PlanResult,
    ReportResult,
    VariantResult,
)
from edgecompress.pipeline.job_request import KEYWORDS, JobRequest, Keyword, Options

if TYPE_CHECKING:
    from mcp.server.fastmcp import FastMCP

    from edgecompress.pipeline.job import Job
    from edgecompress.pipeline.plan import Plan
    from edgecompress.pipeline.runner import Event, Listener
    from edgecompress.reporting.model_numbers import Number
    from edgecompress.reporting.model_variant import Variant

REQUIRES = ("mcp>=1.30,<2",)
EXTRA = "mcp"
INSTRUCTIONS = (
    "edgecompress takes a trained model to an edge device: it compresses, exports, verifies, measures and ships it. "
    "Ask `plan` first: it runs nothing and tells the minutes. `deploy` takes minutes and reports its progress. "
    "Paths are relative to the folder that the server was started in."
)
MOST_LAYERS = 20  # of a diagnosis: an answer is to fit into a conversation


# --------------------------------------------------------------------------- tools

Asked = Mapping[str, Any]  # the arguments of a call, by name
SOURCE = ("model", "data", "metric", "samples", "threads", "batch", "seed", "settings", "offline", "untrusted")
PLACE = ("target", "device", "profile", "only")
NEEDED = "\0"  # the default of an argument that has none
OUT = Keyword("output folder; without it dist/TARGET")
HERE: Mapping[str, Mapping[str, Keyword]] = {  # what a tool has beside the keywords of a job
    "plan": {},
    "deploy": {"out": OUT, "strict": KEYWORDS["strict"], "remeasure": KEYWORDS["remeasure"]},
    "report": {"folder": Keyword("the folder that a deploy wrote, as dist/x86", NEEDED)},
    "compare": {
        "reports": Keyword(
            "folders of deploys; the first is the baseline; FOLDER@VARIANT names a variant", NEEDED, list
        ),
        "fail_if": Keyword('gates, as "latency_ms > 1.05x" or "accuracy_drop > 0.01"', (), list),
        "strict": Keyword("a gate that is undecided fails", False, bool),
        "across_models": Keyword("compare reports of different models, too", False, bool),
    },
    "diagnose": {
        "target": Keyword("a target's name or TOML file; without it that of the artifact, or x86"),
        "variant": Keyword("variant of the target; without it the first that compresses", ""),
        "artifact": Keyword("folder that a deploy wrote, or a model file, in place of a variant"),
        "items": Keyword("number of items to run", 16, int),
        "out": Keyword("folder for diagnosis.json and its page; without it none is written"),
    },
}


def keywords(tool: str) -> dict[str, Keyword]:
    """The arguments of a tool, by name."""
    shared = {"plan": SOURCE + PLACE, "deploy": SOURCE + PLACE, "diagnose": SOURCE}.get(tool, ())
    return {**{name: KEYWORDS[name] for name in shared}, **HERE[tool]}


def plan(asked: Asked, listener: Listener) -> PlanResult:
    """What a deploy would do: its stages, its variants and its expected time. Nothing runs."""
    from edgecompress.core.model import Stage

    job, steps = _planned(asked)
    stages = [step if isinstance(step, Stage) else step.stage for step in steps.stages]
    return PlanResult(
        source=job.source.value.model,
        target=job.target.name,
        device=job.device.name,
        profile=job.profile.name,
        estimate_s=steps.estimate_s(),
        variants=[candidate.name for candidate in steps.candidates],
        left_out=dict(steps.race.left_out),
        race=steps.race.bound(),
        stages=[PlannedStage(s.name, s.call, s.estimate_s) for s in stages],
    )


def deploy(asked: Asked, listener: Listener) -> DeployResult:
    """Compresses, exports, verifies, measures and ships a model. Takes minutes; stored work is not repeated."""
    from edgecompress.commands import deploy

    job, steps = _planned(asked)
    result = deploy.run(job, steps, _options(asked, listener, "deploy"))
    if result.exit_code in BROKE:
        raise StageFailed(result.message)
    told = _report(result.report, result.read_report()) if result.report else None
    return DeployResult(result.exit_code, result.message, str(result.out) if result.out else None, told)


def report(asked: Asked, listener: Listener) -> ReportResult:
    """The report of an earlier deploy in short: what shipped, why, and each variant with its numbers."""
    from edgecompress.commands import report
    from edgecompress.reporting import read

    folder = Path(asked["folder"])
    facts = report.report(folder)
    with read.rendering(folder):
        return _report(folder.parent if folder.suffix == ".json" else folder, facts)


def compare(asked: Asked, listener: Listener) -> CompareResult:
    """Compares reports with the first one, with intervals, and judges gates."""
    from edgecompress.commands import compare
    from edgecompress.reporting.compare import rendering

    request = compare.ComparisonRequest(tuple(asked["fail_if"]), asked["strict"], asked["across_models"])
    found = compare.compare(asked["reports"], request)
    with rendering(found.entries):
        return CompareResult(
            exit_code=found.exit_code,
            verdict=found.verdict,
            entries=[f"{e.label}: {e.variant.name} on {e.device_name}" for e in found.entries],
            metrics=[
                MetricResult(
                    row.metric.gate,
                    row.metric.better,
                    [number.value if number else None for number in row.numbers],
                    [change.says or change.why for change in row.changes],
                )
                for row in found.rows
            ],
            gates=[f"{gate.words}: {gate.ended}: {gate.entry} {gate.says}" for gate in found.gates],
            sentences=list(found.sentences),
            warnings=list(found.warnings),
        )


def diagnose(asked: Asked, listener: Listener) -> DiagnoseResult:
    """Names the layer at which a compressed artifact departs from its source, and the remedy. Takes minutes."""
    from edgecompress.commands import diagnose

    subject = diagnose.DiagnosisRequest(
        asked["variant"], asked["artifact"] or None, asked["items"], out=asked["out"] or None
    )
    found = diagnose.diagnose(request=subject, options=_options(asked, listener, "diagnose"), **_request(asked))
    rows = sorted((row for row in found.facts["layers"] if row["output"]), key=lambda row: -(row["effect"] or 0.0))
    names = [f.name for f in dataclasses.fields(LayerResult)]
    return DiagnoseResult(
        source=str(found.facts["source"]),
        runtime=str(found.facts["runtime"]),
        says=" ".join(str(found.facts["says"]).split()),
        culprits=list(found.facts["culprits"]),
        layers=[LayerResult(**{name: row[name] for name in names}) for row in rows[:MOST_LAYERS]],
        out=str(found.out) if found.out else None,
    )


TOOLS: tuple[Callable[[Asked, Listener], object], ...] = (plan, deploy, report, compare, diagnose)


def _request(asked: Asked) -> JobRequest:
    """What of the arguments is the job's, not the run's."""
    told = {name: value for name, value in asked.items() if name in JobRequest.__annotations__ and value is not None}
    return cast("JobRequest", told)


def _planned(asked: Asked) -> tuple[Job, Plan]:
    from edgecompress.pipeline import plan
    from edgecompress.pipeline.job import job

    made = job(**_request(asked), untrusted=asked["untrusted"])
    return made, plan.deploy(made)


def _options(asked: Asked, listener: Listener, tool: str) -> Options:
    return Options(
        out=asked["out"] or None,
        offline=asked["offline"],
        untrusted=asked["untrusted"],
        remeasure=asked.get("remeasure", False),
        command=f"edgecompress mcp: {tool}",
        listener=listener,
    )


def _report(folder: Path, facts: Mapping[str, Any]) -> ReportResult:
    from edgecompress.reporting import model
    from edgecompress.reporting.formatting import clean

    told = clean(model.of(facts))
    return ReportResult(
        title=told.title,
        target=str(told.target.get("name", "")),
        device=str(told.device.get("name", "")),
        outcome=told.summary.outcome,
        shipped=told.summary.variant,
        sentence=told.summary.sentence,
        remarks=told.summary.remarks,
        warnings=[note.text for note in told.notes if note.level == "warning"],
        variants=[_variant(variant) for variant in told.variants],
        page=str(folder / "report.html"),
    )


def _variant(variant: Variant) -> VariantResult:
    numbers: list[Number | None] = [variant.numbers.get(name) for name in ("latency", "size", "accuracy")]
    latency_ms, size_bytes, accuracy = (number.value if number else None for number in numbers)
    return VariantResult(
        variant.name, variant.runtime, variant.verdict, variant.reason, latency_ms, size_bytes, accuracy
    )


# --------------------------------------------------------------------------- the server


def serve() -> None:
    """Serves on stdin and stdout until stdin ends. Raises MissingDependency."""
    environments.require(sys.modules[__name__], "edgecompress mcp")
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("edgecompress", INSTRUCTIONS, log_level="WARNING", lifespan=_silent)
    server._mcp_server.version = __version__  # else it tells that of the SDK
    for tool in TOOLS:
        server.add_tool(_in_thread(server, tool))
    for each in server._tool_manager.list_tools():  # an argument that a tool does not know is refused, not ignored
        each.fn_metadata.arg_model.model_config["extra"] = "forbid"
        each.fn_metadata.arg_model.model_rebuild(force=True)
    with _protocol_alone():
        server.run()


@contextlib.contextmanager
def _protocol_alone() -> typing.Iterator[None]:
    """The pipe of stdout is for the protocol alone: libraries and children that print there print on stderr."""
    sys.stdout.flush()
    pipe = os.dup(1)
    os.dup2(2, 1)
    with io.TextIOWrapper(os.fdopen(pipe, "wb")) as protocol, contextlib.redirect_stdout(protocol):
        yield


@contextlib.asynccontextmanager
async def _silent(server: FastMCP[None]) -> AsyncIterator[None]:
    """Once the SDK has taken the pipe, `print` writes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def _in_thread(server: FastMCP[None], tool: Callable[[Asked, Listener], object]) -> Callable[..., Any]:
    """A tool whose arguments are the fields of its request, run beside the loop that answers the client.

    Its progress is in seconds, of so many as are expected. A client that cancels stops it at its next event.
    """
    import anyio
    from pydantic import Field

    told = keywords(tool.__name__)
    answer = typing.get_type_hints(tool, globalns={**globals(), "Listener": Callable})["return"]

    async def called(**arguments: Any) -> object:
        context, began = server.get_context(), time.monotonic()

        def listener(event: Event) -> None:
            anyio.from_thread.check_cancelled()
            if event.kind != "ended":
                took_s = time.monotonic() - began
                says = f"{event.number} of {event.of}, {event.stage.name}: {one_line(event.what or event.why)}"
                with contextlib.suppress(anyio.RunFinishedError):  # the client has gone, and this process goes
                    anyio.from_thread.run(context.report_progress, took_s, took_s + event.left_s, says)

        work = functools.partial(_told, tool, arguments, listener)
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

    parameters = []
    for name, keyword in told.items():
        kind: Any = {"list": list[str], "dict": dict[str, Any]}.get(keyword.kind.__name__, keyword.kind)
        default: Any = inspect.Parameter.empty if keyword.default == NEEDED else keyword.default
        hint: Any = Annotated[Optional[kind] if default is None else kind, Field(description=keyword.help)]  # noqa: UP045
        default = list(default) if isinstance(default, tuple) else default
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
    called.__signature__ = inspect.Signature(parameters, return_annotation=answer)  # type: ignore[attr-defined]
    called.__name__, called.__doc__ = tool.__name__, tool.__doc__
    return called


def _told(tool: Callable[[Asked, Listener], object], asked: Asked, listener: Listener) -> object:
    """The tool's answer. What it raises becomes the tool's error, in one line; the trace of a bug goes to stderr."""
    try:
        return tool(asked, listener)
    except EdgeError as error:
        raise EdgeError(one_line(str(error))) from error
    except OSError as error:
        raise of_system(error) or error from error
    except Exception as error:
        traceback.print_exc()
        raise StageFailed(f"{type(error).__name__}: {error}; this is a bug, its trace is on stderr") from error
