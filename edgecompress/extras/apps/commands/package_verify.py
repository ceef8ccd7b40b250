"""`edgecompress package verify`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import STRICT, argument
from edgecompress.core.errors import CheckFailed

HELP = "check the structure, hashes, signature and golden outputs of a package"
PURPOSE = "use what was shipped"
ORDER = 4
EXAMPLES = "package verify digits.tar.gz --strict\npackage verify digits-android.zip --key minisign.pub --json"
ARGUMENTS = (
    argument("package", type=Path, metavar="FILE", help="package file"),
    argument("--key", metavar="PUBLIC_KEY", help="minisign public key: a file, or the key itself"),
    STRICT,
)


def run(args: argparse.Namespace) -> int:
    """Checks a package; 1 when a check fails."""
    import dataclasses

    from edgecompress.cli import console
    from edgecompress.core import plain_text
    from edgecompress.extras.apps import verify as packages

    checks = [dataclasses.asdict(check) for check in packages.verify(args.package, args.key, args.strict)]
    failed = [check["name"] for check in checks if check["status"] == "fail"]
    rows = [{key: plain_text.one_line(words) for key, words in check.items()} for check in checks]
    outcome = f"failed: {', '.join(failed)}" if failed else "no check failed"
    shown = plain_text.one_line(f"{args.package}: {outcome}") if args.quiet else plain_text.columns(rows)
    console.say(args, {"package": str(args.package), "ok": not failed, "checks": checks}, shown)
    return CheckFailed.exit_code if failed else 0
