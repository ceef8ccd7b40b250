"""Figures of the docs: their places, records and commands exist; what reads, judges and counts them is right."""

from __future__ import annotations

import json
from typing import Any

import prove
import pytest

claims = prove.benchmark("claims")
CLAIMS: list[dict[str, Any]] = claims.CLAIMS["claim"]


def test_every_place_stands_in_the_docs_every_record_its_figures_and_most_are_covered() -> None:
    verdicts = [(row[0], row[3]) for claim in CLAIMS for row in claims.checked(claim, minutes=0)]
    assert [v for v in verdicts if v[1].startswith(claims.WRONG)] == []
    assert [place for place in claims.CLAIMS["settings"] if not claims.spans(place)] == []
    assert len({claim["name"] for claim in CLAIMS}) == len(CLAIMS)
    kinds, _ = claims.count()
    assert sum(kinds[k] for k in claims.KINDS) >= 0.6 * (kinds.total() - kinds["setting"])


@pytest.mark.parametrize("claim", [c for c in CLAIMS if "run" in c], ids=lambda c: c["name"])
def test_every_command_exists(claim: dict[str, Any]) -> None:
    program, what, *rest = claim["run"]
    assert "minutes" in claim or "last" in claim
    if program == "edgecompress":
        from edgecompress.cli.main import parser

        parser([what, *rest]).parse_args([what, *rest])
    elif what != "-c":
        script = (claims.ROOT / ("Makefile" if program == "make" else what)).read_text(encoding="utf-8")
        assert [f for f in rest if f.startswith("--") and f not in script and f[2:] not in claims.figures.FLAGS] == []
    assert [file for file in rest if file.endswith(".toml") and not (claims.ROOT / file).is_file()] == []


def test_figures_are_read_by_a_pattern_or_by_paths() -> None:
    text = json.dumps({"rows": [{"net": "a b", "x.y": 0}, {"net": "c", "top": [0.5, 0.912]}]})
    assert claims.read(text, ["rows.net=c.top.1 * 100", "rows.1.top.0 / rows.1.top.0 * -3"]) == [91.2, -3]
    assert claims.read("1,234 s, −1.5 dB;\nfive of 7", r"(\S+) s, (\S+) dB;.*(five) of") == [1234, -1.5, 5]
    with pytest.raises(LookupError, match="the last line"):
        claims.read("none here\nthe last line\n", r"(\d+)")


TOLD = [("not <there>", "NO"), ("2026-11-<22>", "NO"), ("2026-11-<7>", "NO"), ("Change<log>", "FAILED")]


@pytest.mark.parametrize(("quote", "verdict"), TOLD)
def test_a_figure_that_has_no_place_or_is_another_is_told(quote: str, verdict: str) -> None:
    place = {"file": "CHANGELOG.md", "quote": quote, "read": r"(\d+)"}
    claim = {"name": "a", "run": ["python", "-c", "print(7)"], "minutes": 0.1, "figures": [place]}
    assert [row[3].split()[0] for row in claims.checked(claim, 1)] == [verdict]


JUDGED = [("1.73", 1.7349, None, True), ("1.73", 1.7351, None, False), ("−1,200", -1200, None, True)]
JUDGED += [("2.0", 2.2, 0.1, True), ("2.0", 2.3, 0.1, False), ("28", 29.4, [28, 45], True), ("28", 27, [28, 45], False)]


@pytest.mark.parametrize(("said", "found", "within", "holds"), JUDGED)
def test_a_figure_holds_as_printed_or_within_what_is_allowed(said: str, found: float, within: Any, holds: bool) -> None:
    assert claims.holds(said, found, within) is holds


def test_what_counts_is_what_prose_and_tables_show() -> None:
    text = """# 0.3.0, 2026-11-27
Python 3.11 takes 0.5 of 2 cores, 28 to 45 dB, 1,000 images, 2.40× and 9.4x (8.1–9);
`7 %` ([a](b-4.5.md)) of 3x3 in 16 of 22.

| net | ms |
|---|---|
| a 3 | 12 |
<!-- generated: x -->
5 %
<!-- end -->
```sh
6 %
```
"""
    assert " ".join(match[0] for match in claims.shown(text)) == "0.5 2 28 45 1,000 2.40 9.4 8.1 16 22 12"
