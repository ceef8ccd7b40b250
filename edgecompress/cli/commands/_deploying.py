"""What deploy, guard and plan share: their arguments, and the plans that these ask for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgecompress.cli.arguments import RUNNING, STRICT, asked, options_of, request_of, sampled
from edgecompress.core import extras
from edgecompress.core.errors import EdgeError
from edgecompress.pipeline.job_request import JobRequest, device_of

if TYPE_CHECKING:
    from edgecompress.pipeline.job import Job
    from edgecompress.pipeline.plan import Plan


DEPLOYED = (
    asked("model"),
    *sampled(asked("threads")),
    asked("target", help="targets: names or TOML files, comma-separated (default: x86)"),
    asked("only"),
    STRICT,
    asked("out"),
    asked("until"),
    asked("untrusted"),
    *RUNNING,
    asked("jobs"),
    asked("require_measured"),
)


def plans(args: argparse.Namespace) -> tuple[list[tuple[Job, Plan]], Mapping[str, EdgeError]]:
    """The job and the plan of each target that is asked for, before anything runs; and why others are refused."""
    from edgecompress.commands import job_run
    from edgecompress.pipeline import plan
    from edgecompress.pipeline.job import job
    from edgecompress.pipeline.job_request import Options

    request = request_of(args)
    if getattr(args, "from_search", ""):
        del request["target"]
        search = extras.part("search", "search", "--from-search")
        return plan.deploy_all([args.from_search], lambda name: search.found_job(str(name), args.store, request))
    targets = args.target.split(",")
    devices = {name: device_of(request.get("device"), name, targets) for name in targets}
    ask = job_run.asks(Options(on=args.on)) if hasattr(args, "on") else None
    return plan.deploy_all(
        targets,
        lambda name: job(
            **request | JobRequest(target=name, device=devices[str(name)]), untrusted=args.untrusted, ask=ask
        ),
    )


def deployed(args: argparse.Namespace) -> int:
    """Takes the model to each target."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Phases
    from edgecompress.commands import deploy

    screen = console.open(args)
    made, refused = plans(args)
    for job, steps in made if args.verbose and not args.quiet else ():
        console.plan(screen, job, steps)
        console.settings(screen, job, everything=True)
    if len(made) + len(refused) > 1:
        with Phases(screen, args, made) as phases:
            results = deploy.run_all(made, options_of(args, phases), refused)
        return console.all_ended(screen, args, results)
    with Phases(screen, args, made) as phases:
        result = deploy.run(*made[0], options_of(args, phases))
    return console.ended(screen, args, result)
