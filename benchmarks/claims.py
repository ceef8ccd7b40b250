"""Do the figures in the docs still hold? claims.toml has the place of each, the command that prints it, how it is read.

    python benchmarks/claims.py [--minutes 20] [--seed 0] [--only NAME,...] [--missing]

Every quote of claims.toml must stand in the docs, and a figure that has a record is compared with it, each time. The
commands run in an order of the seed, as many as the minutes allow. What takes longer has the date and the machine of
its last run, and is not run. Exit 1 where a figure is not what the docs say, or has no place there any more.

A number of the docs counts where prose or a table shows it: a decimal fraction, one with a unit, `3 of 4`, or all of a
cell. Code, generated parts, targets of links, dates and versions do not count. Numbers that are `settings` there
(limits, defaults, definitions: what nobody measures) are no figures. --missing lists the figures without a claim.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import figures

ROOT = Path(__file__).resolve().parents[1]
CLAIMS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
HIDDEN = re.compile(
    r"^```.*?^```|<!-- generated.*?<!-- end -->|^    \S[^\n]*|`[^`\n]+`|(?<=\])\([^)\n]*\)", re.S | re.M
)
UNIT = (
    r"[ -]?(?:[kKMG]i?B|bytes|dB|[mµ]?s|seconds?|minutes?|min|hours?|times|points|million|thousand|images"
    r"|test images|items|pictures|nets|files|operators|instructions|MACs|[KMG]bit/s|[KMG]Hz|epochs|[KMG]?MAC/s)\b"
    r"|x\b| ?[%×](?! ?\d)"
)
NUMBER = re.compile(r"(?<![\w.,:/@-])[−+-]?\d[\d,]*(?:\.\d+)?(?=x\b|(?![\w-]|[.,]\d))")
WRONG, KINDS = ("NO", "FAILED"), ("run", "recorded", "dated")
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def main() -> int:
    parser = figures.flags(__doc__ or "", "only")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--missing", action="store_true")
    asked = parser.parse_args()
    claims = [c for c in CLAIMS["claim"] if not asked.only or c["name"] in asked.only.split(",")]
    end, wrong = time.monotonic() + 60 * asked.minutes, 0
    for claim in sorted(claims, key=lambda c: random.Random(f"{asked.seed} {c['name']}").random()):
        for name, wanted, found, verdict in checked(claim, (end - time.monotonic()) / 60):
            wrong += verdict.startswith(WRONG)
            print(f"{name[:36]:36} {wanted:>12} {found:>12}  {verdict}", flush=True)
    kinds, missing = count()
    measured = kinds.total() - kinds["setting"]
    covered = measured - kinds["cited"] - kinds["none"]
    print(f"\nseed {asked.seed}: {wrong} wrong")
    print(f"{kinds.total()} numbers in the docs, {kinds['setting']} of them settings: {measured} figures")
    print(f"{covered} ({covered / measured:.0%}) are covered: {', '.join(f'{kinds[k]} {k}' for k in KINDS)}")
    print(f"{kinds['cited']} are others', with their source; {kinds['none']} have no claim")
    sys.stdout.writelines(f"{line}\n" for line in missing if asked.missing)
    return 1 if wrong else 0


# --------------------------------------------------------------------------- what is claimed


def kind(claim: Mapping[str, Any]) -> str:
    """`run` by each, `recorded` in a file of the repository, `dated`: neither, or `cited`."""
    return "cited" if "source" in claim else "recorded" if "record" in claim else "dated" if "last" in claim else "run"


def checked(claim: Mapping[str, Any], minutes: float) -> Iterator[tuple[str, str, str, str]]:
    """Name, what the docs say, what was found, and the verdict: a line per figure of a command, else per claim."""
    name, of, places = claim["name"], kind(claim), claim["figures"]
    if lost := [p for p in places if not spans(p)]:
        yield name, "", "", f"NO\n    {lost[0]['file']} has not: {lost[0]['quote']}"
        return
    wanted = [re.findall("<(.*?)>", place["quote"]) for place in places]
    amount = f"{sum(map(len, wanted))} figures" if wanted[0] else ""
    why = not_now(claim, minutes) if of == "run" else of if of != "recorded" else ""
    if why:
        yield name, amount, claim.get("last", "")[:10], why
        return
    try:
        text = (ROOT / claim["record"]).read_text(encoding="utf-8") if of == "recorded" else ran(claim)
        rows = [
            (name, said, f"{value:.6g}", "holds" if holds(said, value, place.get("within")) else "NO")
            for place, says in zip(places, wanted, strict=True)
            for said, value in zip(says, read(text, place["read"]), strict=True)
        ]
    except TypeError:  # a number that its report does not tell has a reason there, noise for example
        yield name, amount, "", "told no number"
        return
    except (LookupError, ValueError, OSError, subprocess.TimeoutExpired) as error:
        yield name, amount, "", f"FAILED\n    {type(error).__name__}: {error}"
        return
    yield from rows if of == "run" else [r for r in rows if r[3] == "NO"] or [(name, amount, claim["last"][:10], of)]


def not_now(claim: Mapping[str, Any], minutes: float) -> str:
    """Why a command does not run: not on this machine, not without files beside the repository, not in this sample."""
    if "machine" in claim and claim["machine"] not in figures.machine()["features"]:
        return "another machine"
    needs = claim.get("needs", ".")
    return f"no {needs}" if not (ROOT / needs).exists() else "not in the sample" if claim["minutes"] > minutes else ""


def ran(claim: Mapping[str, Any]) -> str:
    """What a command prints, without a shell; `WORK` in it is a folder that goes afterwards."""
    commands = {"python": sys.executable, "edgecompress": str(Path(sys.executable).parent / "edgecompress")}
    with tempfile.TemporaryDirectory() as work:
        argv = [commands.get(word, word).replace("WORK", work) for word in claim["run"]]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300 * max(1, claim["minutes"]))
        if done.returncode in (2, 3):
            raise LookupError(done.stderr.strip().rpartition("\n")[2])
        return (Path(work) / claim["reads"]).read_text(encoding="utf-8") if "reads" in claim else done.stdout


def read(text: str, how: str | Sequence[str]) -> list[float]:
    """The figures: the groups of a pattern, or paths into JSON: `rows.net=bert.ratio * 100`, `a.ms / b.ms`."""
    if isinstance(how, str):
        if not (match := re.search(how, text, re.S)):
            raise LookupError(text.strip().rpartition("\n")[2])
        return [number(group) for group in match.groups()]
    told, values = json.loads(text), []
    for path in how:
        first, *rest = re.split(r" ([*/]) ", path)
        values.append(at(told, first))
        for sign, term in zip(rest[::2], rest[1::2], strict=True):
            values[-1] *= at(told, term) if sign == "*" else 1 / at(told, term)
    return values


def at(told: Any, path: str) -> float:
    """A number, or what stands at a path: keys, places and `key=value` of lists."""
    if re.fullmatch(r"-?[\d.]+", path):
        return float(path)
    for step in path.split("."):
        key, _, wanted = step.partition("=")
        place = {str(item[key]): i for i, item in enumerate(told)}[wanted] if wanted else key
        told = told[int(place) if isinstance(told, list) else place]
    return float(told)


def number(text: str) -> float:
    return float(WORDS.index(text)) if text in WORDS else float(text.replace(",", "").replace("−", "-"))


def holds(said: str, found: float, within: float | Sequence[float] | None) -> bool:
    """As printed; or nearer than a share of it; or between two ends."""
    if isinstance(within, Sequence):
        return bool(within[0] <= found <= within[1])
    half = 0.5000001 * 10 ** -len(said.partition(".")[2])
    return abs(found - number(said)) <= (1.0000001 * within * abs(number(said)) if within else half)


# --------------------------------------------------------------------------- what the docs show


def spans(place: Mapping[str, str]) -> list[tuple[int, int]]:
    """Where in its page the figures of a quote stand, however lines break, or a quote without any, a section, all."""
    quote, head = place.get("quote", ""), place.get("section", "")
    pieces = [re.sub(r"(\\\s)+", r"\\s+", re.escape(p)) for p in re.split("[<>]", quote)]
    pattern = "".join(f"({p})" if i % 2 else p for i, p in enumerate(pieces))
    if not quote:
        pattern = rf"^{re.escape(head)}\n.*?(?=^#{{1,{head.count('#')}}} |\Z)" if head else ".*"
    found = re.search(pattern, (ROOT / place["file"]).read_text(encoding="utf-8"), re.S | re.M)
    return [found.span(i + 1) for i in range(found.re.groups)] or [found.span()] if found else []


def shown(text: str) -> Iterator[re.Match[str]]:
    """The numbers that count."""
    text = HIDDEN.sub(lambda m: re.sub(r"\S", "~", m[0]), text)
    for found in NUMBER.finditer(text):
        start, stop = text.rfind("\n", 0, found.start()) + 1, found.end()
        before, after = text[start : found.start()], text[stop : stop + 40]
        table = before.startswith("|")
        decimal = "." in found[0] and (table or not re.search(r"(?:[A-Z][\w.+-]*|version|opset) $", before))
        ranged = re.match(rf"(?: to |–| and | or )[−+-]?[\d,.]+(?:{UNIT})", after)
        counted = re.match(r" of (?:the )?\d", after) or re.search(r"\d of (?:the )?$", before)
        cell = table and re.search(r"\|\s*$", before) and re.match(r"\s*\|", after)
        if decimal or re.match(UNIT, after) or ranged or counted or cell:
            yield found


def count() -> tuple[Counter[str], list[str]]:
    """How many numbers of the docs are of each kind, and the lines of those without a claim."""
    kinds, missing = Counter[str](), []
    marks: dict[str, list[tuple[int, int, str]]] = {name: [] for name in PAGES}
    for claim in CLAIMS["claim"]:
        for place in claim["figures"]:
            marks[place["file"]] += [(*span, kind(claim)) for span in spans(place)]
    for place in CLAIMS["settings"]:
        marks[place["file"]] += [(*span, "setting") for span in spans(place)]
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        for found in shown(text):
            inside = [k for start, stop, k in marks[name] if start <= found.start() and found.end() <= stop]
            kinds[(inside or ["none"])[0]] += 1
            if not inside:
                around = text[max(0, found.start() - 50) : found.start()], found[0], text[found.end() :][:30]
                missing.append(f"{name}: {'{}<{}>{}'.format(*around)}".replace("\n", " "))
    return kinds, missing


if __name__ == "__main__":
    sys.exit(main())
