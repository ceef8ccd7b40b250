"""The ladder of the guard in a report: gains, costs, and how much of the loss is recovered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgecompress.core.model import Context, Request
from edgecompress.reporting import model, model_variant
from edgecompress.reporting.request import ReportRequest
from edgecompress.reporting.sections import guard


def top1(lost: int, gained: int = 0) -> dict[str, Any]:
    return {
        "name": "top1",
        "unit": "fraction",
        "before": 0.9,
        "after": 0.9,
        "n": 500,
        "items_lost": lost,
        "items_gained": gained,
        "net_lost": lost - gained,
    }


def rung(label: str, lost: int | None, chosen: bool = False, **more: Any) -> dict[str, Any]:
    facts = {} if lost is None else {"metric": top1(lost, 2), "size_bytes": 2048}
    recipe = {"before": (), "options": {}}
    known = {"rung": label, "label": label, "inside": chosen, "chosen": chosen, "sqnr_db": None, "reason": ""}
    return {**known, "facts": facts, "recipe": recipe, **more}


def found(judged: dict[str, Any] | None, plain: dict[str, Any] | None) -> model.Report:
    """The report's part, from what a guard hands on."""
    rungs = [rung("plain", 20, sqnr_db=-1.5), rung("smooth", None, reason="no norm"), rung("keep-1", 1, chosen=True)]
    facts = {"variant": "int8", "runtime": "onnx", "split": "select", "reason": "keep-1: inside", "ladder": rungs}
    cells = [{"name": "a", "gain": 0.1, "cost": -0.02, "sqnr_db": 30.0, "reason": ""}]
    facts |= {"budget": {"items_lost": 1}, "costs": {"plain": 1.0, "keep-1": 1.07}, "cells": cells, "plain_test": plain}
    metric = msgspec.convert(judged, model_variant.Metric | None)
    variants = [model_variant.Variant("int8", verify=model_variant.Verification(metric=metric))]
    report = model.Report(schema=model.SCHEMA, variants=variants)
    request = Request({}, Path(), {}, Context())
    report.rest = {guard.KEY: guard.found(request, ReportRequest(guards={"int8/guard": facts}), report)}
    return report


def test_what_is_recovered_is_a_share_of_the_plain_loss_on_test() -> None:
    (ladder,) = found(top1(6, 1), top1(22, 2)).rest[guard.KEY]
    assert (ladder.plain_loss, ladder.loss, ladder.limit) == (0.04, 0.01, 0.002)
    assert ladder.recovered == pytest.approx(0.75)


def test_where_plain_lost_nothing_nothing_is_recovered() -> None:
    assert found(top1(0), top1(1, 3)).rest[guard.KEY][0].recovered is None
    assert found(None, top1(9)).rest[guard.KEY][0].recovered is None


def test_each_rung_is_told_with_its_gain_its_cost_or_why_it_does_not_apply() -> None:
    rows = guard.rungs(found(top1(1), top1(20))).rows
    assert rows[0] == ("int8", "plain", "4 %", "−1.5 dB", "1.00", "2 KiB", "")
    assert rows[1] == ("int8", "smooth", "–", "–", "–", "–", "no norm")
    assert rows[2][1:3] == ("keep-1", "0.2 %") and rows[2][4] == "1.07" and rows[2][6] == "chosen, inside"


def test_layers_that_were_kept_alone_are_told_with_what_they_cost() -> None:
    assert guard.layers(found(top1(1), top1(20))).rows == (("int8", "a", "30.0 dB", "−2.0 % of the latency", ""),)


def test_a_run_without_a_guard_has_no_ladder() -> None:
    report = model.Report(schema=model.SCHEMA, variants=[])
    assert guard.found(Request({}, Path(), {}, Context()), ReportRequest(), report) == []
    assert not guard.table(report).rows and not guard.figure(report).panels
