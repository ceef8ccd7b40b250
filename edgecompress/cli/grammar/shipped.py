"""Commands for a shipped artifact: verify, profile, report, package."""

from __future__ import annotations

from pathlib import Path

from edgecompress.cli import handlers
from edgecompress.cli.grammar.entry import Command, argument
from edgecompress.cli.grammar.shared import (
    REQUIRE_MEASURED,
    RUNNING,
    SHIPPED,
    SHIPPED_THREADS,
    STORE,
    STRICT,
    THREADS,
    job,
    measuring,
    settings,
)

COMMANDS = (
    Command(
        "verify",
        "compare a shipped artifact with its source again",
        handlers.verify,
        "verify dist/x86\nverify dist/x86 my_pkg.nets:build --data my_pkg.nets:data",
        (
            SHIPPED,
            argument("model", nargs="?", metavar="MODEL", help="source model (default: the one in the report)"),
            argument("--target", help="target whose limits apply (default: the one it was deployed for)"),
            *job(THREADS),
            STRICT,
            *RUNNING,
        ),
    ),
    Command(
        "profile",
        "measure a shipped artifact on a device",
        handlers.profile,
        "profile dist/x86 --profile quick\nprofile dist/x86 --threads 2 --batch 8 --json",
        (SHIPPED, *measuring(SHIPPED_THREADS), *RUNNING, REQUIRE_MEASURED),
    ),
    Command(
        "report",
        "show the report of a deploy, or add measurements of its package from other devices",
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
                help="JSON of a package's benchmark; copied into FOLDER/measured and shown in the report",
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
            argument("--as", dest="packager", metavar="PACKAGER", default="", help="packager (default: the target's)"),
            argument("--out", type=Path, help="output file (default: beside FOLDER)"),
            settings("name, version, or an option of the packager; may repeat"),
            argument(
                "--sign",
                type=Path,
                metavar="SECRET_KEY_FILE",
                help="minisign secret key; writes the signature beside the package",
            ),
        ),
    ),
    Command(
        "package verify",
        "check the structure, hashes, signature and golden outputs of a package",
        handlers.package_verify,
        "package verify digits-tar.tar.gz --strict\npackage verify digits-android.zip --key minisign.pub --json",
        (
            argument("package", type=Path, metavar="FILE", help="package file"),
            argument("--key", metavar="PUBLIC_KEY", help="minisign public key: a file, or the key itself"),
            STRICT,
        ),
    ),
    Command(
        "pack",
        "pack a model's file: weights as codebooks or byte planes, through deflate",
        handlers.pack,
        "pack net.tflite\npack dist/x86 --out net.packed\npack weights.safetensors --json",
        (
            argument(
                "file", type=Path, metavar="FILE", help="a model's file, of any format, or the folder that deploy wrote"
            ),
            argument("--out", type=Path, help="output file (default: the name of FILE with .packed)"),
        ),
    ),
    Command(
        "unpack",
        "write the file that was packed, to the bit",
        handlers.unpack,
        "unpack net.tflite.packed\nunpack net.packed --out net.onnx --json",
        (
            argument("file", type=Path, metavar="FILE", help="a file that pack wrote"),
            argument("--out", type=Path, help="output file (default: the name of FILE without .packed)"),
        ),
    ),
)
