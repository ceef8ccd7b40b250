"""What is done with an artifact that a deploy shipped: verify, profile, report, package."""

from __future__ import annotations

from pathlib import Path

from edgecompress.cli import handlers
from edgecompress.cli.grammar.entry import Command, argument
from edgecompress.cli.grammar.shared import JOB, MEASURING, REQUIRE_MEASURED, RUNNING, SHIPPED, STORE, settings

COMMANDS = (
    Command(
        "verify",
        "check a shipped artifact against its source again",
        handlers.verify,
        "verify dist/x86\nverify dist/x86 my_pkg.nets:build --data my_pkg.nets:data",
        (
            SHIPPED,
            argument("model", nargs="?", metavar="MODEL", help="the source (default: the one in its report)"),
            argument("--target", help="whose limits count (default: the one it was deployed for)"),
            *JOB,
            *RUNNING,
        ),
    ),
    Command(
        "profile",
        "measure a shipped artifact on a device",
        handlers.profile,
        "profile dist/x86 --profile quick\nprofile dist/x86 --threads 2 --batch 8 --json",
        (SHIPPED, *MEASURING, *RUNNING, REQUIRE_MEASURED),
    ),
    Command(
        "report",
        "show the report of a deploy, and add what packages measured on other devices",
        handlers.report,
        "report dist/x86\nreport dist/x86 --json\nreport dist/android --add pixel8.json pixel8-again.json",
        (
            SHIPPED,
            argument(
                "--add",
                nargs="+",
                type=Path,
                default=[],
                metavar="FILE",
                help="the JSON of a package's benchmark: kept in FOLDER/measured, and shown from then on",
            ),
            STORE,
        ),
    ),
    Command(
        "package",
        "wrap a shipped artifact for an app",
        handlers.package,
        "package dist/x86\n"
        "package dist/android --set version=1.2.0 --sign minisign.key\n"
        "package dist/arm64 --as tar --out digits.tar.gz",
        (
            SHIPPED,
            argument("--as", dest="packager", metavar="PACKAGER", default="", help="default: the target's"),
            argument("--out", type=Path, help="the file it writes (default: beside FOLDER)"),
            settings("name, version, or an option of the packager; may repeat"),
            argument(
                "--sign",
                type=Path,
                metavar="SECRET_KEY_FILE",
                help="of minisign: writes the signature beside the package",
            ),
        ),
    ),
    Command(
        "package verify",
        "check a package: its structure, hashes and signature, and its model against its golden item",
        handlers.package_verify,
        "package verify digits-tar.tar.gz\npackage verify digits-android.zip --key minisign.pub --json",
        (
            argument("package", type=Path, metavar="FILE", help="what package wrote, or was sent to you"),
            argument("--key", metavar="PUBLIC_KEY", help="of minisign: a file, or the key itself"),
        ),
    ),
)
