"""Writes the sha256 of every file of every version in constraints.txt beside it: `make pins`, after a version changed.

torch has none: the build that a machine gets (CPU, CUDA) decides the file, and no index lists the files of all of them.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"
HEADER = (
    "# The versions that were tried together, and the files they may come as. Only what is needed is installed.\n"
    "# To change a version: edit it, then run `make pins`. torch has no sha256: its file depends on the build.\n"
)
PYTHON = "3.13"  # only the versions' own files are listed; any Python that all of them support does


def main() -> int:
    """Renews constraints.txt; it stays as it is where a version is not to be had."""
    pins = re.findall(r"^[\w.-]+==[^\s\\]+", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        versions, hashed = Path(folder) / "versions.txt", Path(folder) / "hashed.txt"
        versions.write_text("\n".join(pins), encoding="utf-8")
        uv = [sys.executable, "-P", "-m", "uv", "pip", "compile", str(versions), "--output-file", str(hashed)]
        options = ["--no-deps", "--generate-hashes", "--no-annotate", "--no-header", "--python-version", PYTHON]
        code = subprocess.run([*uv, *options, "--no-config", "--quiet"]).returncode
        if code:
            return code
        text = hashed.read_text(encoding="utf-8")
    text = re.sub(r"^(torch==\S+)(?: \\\n +--hash=\S+)+", r"\1", text, flags=re.MULTILINE)
    CONSTRAINTS.write_text(HEADER + text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
