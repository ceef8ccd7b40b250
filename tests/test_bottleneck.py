"""What holds a variant back: the right cause of planted facts, and what is not known where a fact is missing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgecompress.core.model import Artifact
from edgecompress.core.operator_graph import Graph, Op, Tensor
from edgecompress.formats import op_counts
from edgecompress.reporting import bottleneck
from edgecompress.reporting.formatting import number
from edgecompress.reporting.model import SCHEMA, Look, Outcome, Report, Run
from edgecompress.reporting.model_variant import Bottleneck, BuiltArtifact, Operator, Operators, Variant

MIB = 1 << 20
XEON = {
    "features": ["avx2", "avx512f", "avx512_vnni"],
    "caches": {"L1": 32 << 10, "L2": 2 * MIB, "L3": 32 * MIB},
    "clock_mhz": 2500.0,
    "cores": 2,
}
ROOFS = {"compute": {"gflops": 100.0}, "bandwidth": {"gb_per_s": 12.0}}  # 50 GMAC/s: 20 float32 MACs per cycle
FP32 = {"weights": {"fp32": 1000}, "computes": {"fp32": 1}, "why": ""}
INT8 = {"weights": {"int8": 1000}, "computes": {"int8": 1}, "why": ""}


def product(macs: int, weights: int, dtype: str = "float32") -> Graph:
    """A product with so many MACs by so many bytes of weights."""
    width = 1 if dtype == "int8" else 4
    reads = (Tensor("x", (1000,), dtype), Tensor("w", (weights // width,), dtype, constant=True))
    return Graph((Op("p", "Gemm", macs, reads, (Tensor("y", (1000,), dtype),)),), ())


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is told of a net with this graph, latency, empty call and operators, on a device with these facts."""

    def tell(graph: Graph, ms: float, ops: Mapping[str, float], call: float | None = 0.004, **given: Any) -> Bottleneck:
        monkeypatch.setattr(op_counts, "graph", lambda artifact, batch: graph)
        numbers = {
            "latency": number("latency", ms, status="measured", n=6),
            "call": number("call", call, status="measured", reason="its runtime has no empty model"),
        }
        timed = [Operator(kind, kind, each) for kind, each in ops.items()]
        built = BuiltArtifact("onnx", "0" * 64, 1000, precision=given.get("precision", FP32))
        of = Variant("net", numbers=numbers, artifact=built, ops=Operators(timed, sum(ops.values()) or None))
        roofs = given.get("roofs", ROOFS)
        passes = [Look("roofline", {}, {"net": Outcome("", [], dict(roofs))})] if roofs else []
        environment = dict(given.get("environment", XEON))
        report = Report(schema=SCHEMA, variants=[of], environment=environment, passes=passes, run=Run(1, 1))
        found = bottleneck.of_variant(report, of, Artifact(Path(), "onnx"))
        assert found is not None
        return found

    return tell


def test_one_huge_product_with_a_vector_waits_for_memory(told: Any) -> None:
    found = told(product(16 * MIB, 64 * MIB), ms=5.7, ops={"Gemm": 5.6})
    assert found.cause == "memory" and found.shares["memory"] == pytest.approx(0.981, abs=0.01)
    assert "98 % of the 12.0 GB/s measured" in found.says
    assert found.says.startswith("memory-bound: no cache holds 64 MiB of a call, which is 11.8 GB/s")


def test_large_convolutions_are_bound_by_arithmetic(told: Any) -> None:
    found = told(product(10**9, 4 * MIB), ms=22.0, ops={"Conv": 22.1})
    assert found.cause == "arithmetic" and found.shares["arithmetic"] == pytest.approx(0.909, abs=0.001)
    says = "18.2 of 20.0 float32 MACs per cycle (AVX-512 FMA, by the measured float32 roof)"
    assert found.says == f"compute-bound: 91 % of the float32 peak, {says}"


def test_a_tiny_net_is_held_back_by_the_calls(told: Any) -> None:
    found = told(product(10**4, 4000), ms=0.012, ops={"Gemm": 0.002}, call=0.008)
    assert found.cause == "calls"
    assert "83 % of its 0.01200 ms lie outside of its operators" in found.says
    found = told(product(10**4, 4000), ms=0.012, ops={}, call=0.008)
    assert found.cause == "calls" and "a call of an empty model takes 8.000 µs of its 0.01200 ms" in found.says


def test_layout_conversions_are_named_and_products_with_such_names_are_none(told: Any) -> None:
    ops = {"ReorderInput": 0.3, "QuantizeLinear": 0.2, "Transpose": 0.1, "QLinearConv": 0.2, "ConvTranspose": 0.2}
    found = told(product(10**6, 4 * MIB), ms=1.0, ops=ops)
    assert found.cause == "conversions" and found.shares["conversions"] == pytest.approx(0.6)
    assert "60 % of its time is spent in operators that only change layout or precision: ReorderInput" in found.says
    for kind in ("TRANSPOSE_CONV", "ConvInteger", "Convolution", "DynamicQuantizeMatMul", "QLinearConv"):
        assert not bottleneck.OPERATORS["conversions"].fullmatch(kind), kind
    for kind in ("Reorder", "Convert (NC, F32, QS8)", "Transpose (ND, X32)", "DEQUANTIZE", "aten::permute_copy.out"):
        assert bottleneck.OPERATORS["conversions"].fullmatch(kind), kind


@pytest.mark.parametrize(
    ("macs", "dtype", "ms", "ops", "given", "cause", "says"),
    [
        pytest.param(10**6, "float32", 1.0, {"Relu": 0.4, "BatchNormalization": 0.3, "Conv": 0.3}, {},
                     "unfused", "were not fused: Relu, BatchNormalization", id="operators that were not fused"),
        pytest.param(10**7, "float32", 1.0, {"Conv": 0.95}, {}, "kernels",
                     "4.00 of 20.0 float32 MACs per cycle (AVX-512 FMA, by the measured float32 roof)", id="small"),
        pytest.param(10**7, "int8", 0.35, {"QLinearConv": 0.33}, {"precision": INT8}, "unknown",
                     "11.4 of at most 128 int8 MACs per cycle (AVX-512 VNNI), and no roof is measured in int8",
                     id="a roof of float32 tells nothing of int8"),
        pytest.param(10**9, "int8", 22.0, {"Conv": 22.1}, {}, "arithmetic", "(AVX-512 FMA",
                     id="weights that are narrower than the arithmetic have its peak"),
        pytest.param(10**9, "float32", 22.0, {"Conv": 22.1}, {"roofs": None}, "arithmetic",
                     "18.2 of at most 32.0 float32 MACs per cycle (AVX-512 FMA)",
                     id="most of the peak of an instruction needs no measured roof"),
    ],
)  # fmt: skip
def test_the_cause_is_named_with_its_numbers(
    told: Any, macs: int, dtype: str, ms: float, ops: Mapping[str, float], given: Any, cause: str, says: str
) -> None:
    found = told(product(macs, 4 * MIB, dtype), ms=ms, ops=ops, **given)
    assert found.cause == cause and says in found.says
    assert found.shares["arithmetic"] == pytest.approx(0.0893, abs=0.001) or "QLinearConv" not in ops


NO_CLOCK = {**XEON, "clock_mhz": None}
PI = {"features": ["asimd", "asimddp"], "caches": XEON["caches"], "clock_mhz": 1500.0, "cores": 4}


@pytest.mark.parametrize(
    ("macs", "dtype", "given", "says"),
    [
        (9 * 10**9, "int8", {"precision": INT8}, "409 int8 GMAC/s (AVX-512 VNNI), more than the clock that the device"),
        (2 * 10**9, "float32", {"roofs": None}, "90.9 float32 GMAC/s (AVX-512 FMA), more than the clock that the dev"),
        (2 * 10**9, "float32", {}, "90.9 float32 GMAC/s (AVX-512 FMA), more than the measured roof allows"),
        (3 * 10**9, "int8", {"precision": INT8, "environment": PI}, "136 int8 GMAC/s (SDOT), more than the clock that"),
        (9 * 10**9, "int8", {"precision": INT8, "environment": NO_CLOCK}, "peak is not known: the device reports"),
        (10**9, "int8", {"precision": INT8, "environment": {}}, "the instruction it uses is not known"),
    ],
)
def test_a_peak_that_the_variant_exceeds_or_that_no_clock_gives_is_none(
    told: Any, macs: int, dtype: str, given: Mapping[str, Any], says: str
) -> None:
    found = told(product(macs, 4 * MIB, dtype), ms=22.0, ops={"Conv": 21.5}, **given)
    assert says in found.says and "MACs per cycle" not in found.says
    assert "arithmetic" not in found.shares and (found.macs_per_cycle, found.peak_macs_per_cycle) == (None, None)
    assert found.cause != "arithmetic"


def test_a_rate_of_memory_that_the_variant_exceeds_is_no_limit(told: Any) -> None:
    found = told(product(16 * MIB, 64 * MIB), ms=2.7, ops={"Gemm": 2.6})
    assert "memory" not in found.shares and found.cause == "unknown"
    assert "which is 24.9 GB/s, more than the 12.0 GB/s measured" in found.says


def test_no_share_is_above_all_of_the_latency(told: Any) -> None:
    assert told(product(10**4, 4000), ms=0.012, ops={}, call=0.018).shares["calls"] == 1.0


def test_what_does_not_fit_a_cache_is_said(told: Any) -> None:
    large = {"weights": {"int8": 14 * MIB}, "computes": {"int8": 1}, "why": ""}
    found = told(product(10**7, 14 * MIB, "int8"), ms=0.35, ops={"QLinearConv": 0.33}, precision=large)
    assert found.says.endswith("its weights of 14 MiB do not fit the L2 of 2 MiB")
    assert found.shares["memory"] == 0.0, "the last level holds them"


def test_without_measured_roofs_the_sentence_says_so_and_guesses_nothing(told: Any) -> None:
    found = told(product(16 * MIB, 64 * MIB), ms=5.7, ops={"Gemm": 5.6}, roofs=None)
    assert found.cause == "unknown" and {"memory", "arithmetic"} == set(found.unknown)
    assert found.says.startswith("bottleneck unknown: memory (no cache holds 64 MiB of a call")
    assert "the rate of memory was not measured: the profiler roofline did not run" in found.says
    assert "1.18 of at most 32.0 float32 MACs per cycle (AVX-512 FMA)" in found.says


def test_a_device_that_tells_nothing_has_no_peak_and_no_caches(told: Any) -> None:
    found = told(product(10**9, 4 * MIB), ms=22.0, ops={}, call=None, roofs=None, environment={})
    assert found.cause == "unknown" and found.shares == {} and found.macs == 10**9
    assert "the sizes of its caches are not known" in found.says and "its runtime has no empty model" in found.says


def test_a_file_whose_operators_cannot_be_counted_says_why(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(Graph((Op("?", "Odd", None, (), ()),), ()), ms=1.0, ops={"Odd": 1.0})
    assert found.unknown == {"arithmetic": "its MACs cannot be counted"}


def test_each_rendering_has_the_sentence() -> None:
    of = Variant("net", bottleneck=Bottleneck("memory", "memory-bound: planted", {"memory": 0.9}, {}))
    assert bottleneck.table(Report(schema=SCHEMA, variants=[of])).rows == (("net", "memory-bound: planted"),)
