"""`edgecompress plan`."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import options_of
from edgecompress.cli.commands._deploying import DEPLOYED
from edgecompress.cli.commands._deploying import plans as made

HELP = "print the stages of a deploy and their expected time, and run none of them"
PURPOSE = "take a model to a device"
ORDER = 6
EXAMPLES = "plan --target x86\nplan net.onnx --data images/ --json"
ARGUMENTS = DEPLOYED


def run(args: argparse.Namespace) -> int:
    """Prints the plan of a deploy."""
    from edgecompress.cli import console
    from edgecompress.commands import deploy

    plans, refused = made(args)
    for job, steps in plans:
        deploy.check(job, steps, options_of(args, print))
    code = max((error.exit_code for error in refused.values()), default=0)
    if args.json:
        tables = [console.plan_data(job, steps) for job, steps in plans]
        tables += [{"target": name, "refused": str(error)} for name, error in refused.items()]
        console.print_json(tables if len(tables) > 1 else tables[0])
        return code
    screen = console.open(args)
    if args.quiet:
        console.line(screen, "; ".join([console.plan_time(plans), *(f"{n}: {e}" for n, e in refused.items())]))
        return code
    for job, steps in plans:
        console.plan(screen, job, steps)
        console.settings(screen, job, everything=bool(args.verbose))
    console.lines(screen, [f"{name}: refused: {error}" for name, error in refused.items()])
    return code
