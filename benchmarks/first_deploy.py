"""How long the first deploy of the README takes in a fresh clone, at several commits in turns.

    python benchmarks/first_deploy.py COMMIT... [--turns 2] [--target x86] [--json FILE]

Each turn clones this repository at each commit, sets it up, and times `make deploy TARGET=x86` there: the whole, and
the deploy alone, which is run again without its results. Told are the seconds, what shipped, and the time of the last
commit as a share of the first one's. Run it on a quiet machine; what pip downloads comes from its cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("PYTHON", "EDGECOMPRESS_")  # in the environment: what a fresh machine has not


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a line for each deploy and the share at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--target", default="x86")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    rows = [row(c, asked.target) for turn in range(asked.turns) for c in asked.commits[:: -1 if turn % 2 else 1]]
    first, last = ([r for r in rows if r["commit"] == c] for c in (asked.commits[0], asked.commits[-1]))
    for what in ("whole_s", "deploy_s"):
        a, b = (statistics.median(r[what] for r in each) for each in (first, last))
        name = what.removesuffix("_s")
        print(f"{name:7} {a:6.1f} s at {asked.commits[0]}, {b:6.1f} s at {asked.commits[-1]}: {b / a:.2f}")
    if asked.json:
        asked.json.write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "rows": rows}, indent=1) + "\n", "utf-8")
    return 0


def row(commit: str, target: str) -> dict[str, object]:
    """One clone: the seconds of the README's command, those of its deploy alone, and what shipped."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    with tempfile.TemporaryDirectory(prefix="first-deploy-") as folder:
        clone = Path(folder) / "clone"
        run(["git", "clone", "--quiet", str(ROOT), str(clone)], ROOT, environment)
        run(["git", "checkout", "--quiet", commit], clone, environment)
        whole_s = run(["make", "deploy", f"TARGET={target}"], clone, environment)
        for each in (".edgecompress", "dist"):
            shutil.rmtree(clone / each)
        deploy_s = run(["make", "deploy", f"TARGET={target}"], clone, environment)
        report = json.loads((clone / "dist" / target / "report.json").read_text(encoding="utf-8"))
    ships = report["choice"]["variant"]
    print(f"{commit:12} whole {whole_s:6.1f} s, deploy {deploy_s:6.1f} s, ships {ships}", flush=True)
    return {"commit": commit, "whole_s": round(whole_s, 1), "deploy_s": round(deploy_s, 1), "ships": ships}


def run(words: Sequence[str], folder: Path, environment: dict[str, str]) -> float:
    """The seconds that a command takes; its output is shown where it fails."""
    began = time.monotonic()
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
