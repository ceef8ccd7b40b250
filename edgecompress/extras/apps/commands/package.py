"""`edgecompress package`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import SHIPPED, argument, asked, pairs

HELP = "wrap a shipped artifact for an app"
PURPOSE = "use what was shipped"
ORDER = 4
EXAMPLES = (
    "package dist/x86\n"
    "package dist/android --set version=1.2.0 --sign minisign.key\n"
    "package dist/arm64 --as tar --out digits.tar.gz"
)
ARGUMENTS = (
    SHIPPED,
    argument("--as", dest="packager", metavar="PACKAGER", default="", help="packager (default: the target's)"),
    argument("--out", type=Path, help="output file (default: beside FOLDER, as android.zip or x86.tar.gz)"),
    asked("settings", help="name, version, or an option of the packager; may repeat"),
    argument(
        "--sign",
        type=Path,
        metavar="SECRET_KEY_FILE",
        help="minisign secret key; writes the signature beside the package",
    ),
)


def run(args: argparse.Namespace) -> int:
    """Packages a shipped artifact for an app."""
    from edgecompress.cli import console
    from edgecompress.extras.apps import download, package

    made = package.packaged(args.artifact, args.packager, args.out, pairs(args.settings, "version=1.0.0"), args.sign)
    signature = f"{made.file}.minisig" if args.sign else None
    size = made.file.stat().st_size
    facts = {
        "package": str(made.file),
        "size_bytes": size,
        "download_s": download.seconds(size),
        "left_out": made.left_out,
        "warning": made.warning or None,
        "signature": signature,
    }
    left_out = f"left out, for the source has none: {', '.join(made.left_out)}" if made.left_out else ""
    more = [signature, download.line(size), left_out, made.warning and f"warning: {made.warning}"]
    console.say(args, facts, "\n".join(filter(None, [str(made.file), *([] if args.quiet else more)])))
    return 0
