"""`edgecompress mcp`."""

from __future__ import annotations

import argparse

HELP = "serve plan, deploy, report, compare and diagnose to coding assistants (Model Context Protocol)"
PURPOSE = "set up"
ORDER = 6
STABILITY = "experimental"
EXAMPLES = "mcp"
COMMON = False
DESCRIPTION = (
    "Serves plan, deploy, report, compare and diagnose as tools of the Model Context Protocol, on stdin and stdout: a "
    "coding assistant starts it."
)


def run(args: argparse.Namespace) -> int:
    """Serves the Model Context Protocol on stdin and stdout."""
    from edgecompress.extras.mcp import server

    server.serve()
    return 0
