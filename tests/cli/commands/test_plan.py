"""``optc plan``: how backends take a model, as text and as JSON; nothing is built."""

from __future__ import annotations

import inspect
from pathlib import Path

import onnx_ir as ir
import pytest

import optc
from optc import registry
from optc.backend import NATIVE, BuildOptions, Support
from optc.compiling.plan import plan
from optc.errors import UnavailableError
from optc.importer.imported import ImportedModel
from optc.proof.roofline import this_machine
from optc.proof.roofline.ceilings import Ceiling
from optc.proof.roofline.costs import KernelCost, StepCosts
from optc.proof.roofline.estimate import EngineEstimate, speed_bound
from optc.runtime.executable.executable import KV_TYPES
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target, host_features, known_targets
from tests.cli.conftest import Optc
from tests.proof.bench.fakes import FakeMeter
from tests.runtime.support.toy import toy_spec
from tests.support.stub import VOCAB, StubBackend

#: 1000 bytes a step, 20 operations a row.
COSTS = StepCosts("int8", {"matmul": KernelCost(1, "int8", {"1": 1000.0}, {"T": 20.0})})


class Estimating(StubBackend):
    """Takes every node, and tells what steps cost."""

    compile_s = 0.0

    def takes(self, target: Target) -> str:
        return "" if target.kind == "cpu" else "CPU only"

    def estimate(self, model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
        if target.name == "x86-64-v3":
            raise UnavailableError("nothing is known of old processors")
        spec = toy_spec(max_context=options.max_context, vocab=VOCAB)
        return EngineEstimate(spec, 4096, COSTS, compile_s=self.compile_s)


class Picky(StubBackend):
    """For one GPU; rewrites attention and lacks a norm."""

    def takes(self, target: Target) -> str:
        return "" if target.sm == (90,) else "sm_90 only"

    def supports(self, node: ir.Node, target: Target) -> Support:
        if node.op_type == "RotaryPagedAttention":
            return Support("decomposed", "attention over slots")
        if node.op_type == "AddRMSNorm":
            return Support("unsupported", "there is no such norm")
        return NATIVE

    def kv_pools(self, dtype: str, target: Target) -> Support:
        return Support("decomposed", "slots of halves") if dtype == "float16" else NATIVE


def kv_type(node: ir.Node, target: Target) -> Support:
    """Says what the pools hold, as the reason."""
    attribute = node.attributes.get("kv_dtype")
    return Support("decomposed", attribute.as_string()) if attribute else NATIVE


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> dict[str, StubBackend]:
    found = {"tvm": Estimating("tvm", 20), "picky": Picky("picky", 30)}
    found["picky"].reason = "its compiler is not installed"
    monkeypatch.setattr(registry, "backend_names", lambda: tuple(found))
    monkeypatch.setattr(registry, "backend", found.__getitem__)
    return found


@pytest.fixture
def plan_tiny(
    optc: Optc, backends: dict[str, StubBackend], quick_import: None, tiny_model: Path
) -> Optc:
    return lambda *arguments: optc("plan", tiny_model, "--recipe", "fp32", *arguments)


def test_each_backend_is_asked_about_what_the_recipe_makes_for_it(
    optc: Optc,
    backends: dict[str, StubBackend],
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "name: r\npipeline: [canonicalize, kv-cache, fuse-residual-norm]\n"
        "for_engines: {picky: {kv-cache.dtype: int8}}\n"
    )

    def types(*arguments: str) -> dict[str, str]:
        call = ("plan", tiny_model, "--recipe", recipe, "--json", *arguments)
        return {
            engine["name"]: node["reason"]
            for engine in optc(*call).json["engines"]
            for node in engine["nodes"]
            if node["operator"] == "optc::PagedAttention"
        }

    for backend in backends.values():
        backend.supports = kv_type  # type: ignore[method-assign]
    alone = {"tvm-native": "float32", "picky-sm_90": "int8"}
    assert types("--backends", "all").items() >= alone.items(), "as many compiles"
    together = {"tvm-native": "int8", "picky-sm_90": "int8"}
    assert types("--backends", "tvm,picky:sm_90") == together, "one compile, one graph"


def test_every_node_has_a_verdict_for_every_backend_and_target(
    plan_tiny: Optc, backends: dict[str, StubBackend], tmp_path: Path
) -> None:
    value = plan_tiny("--json", "--backends", "all").json
    engines = {engine["name"]: engine for engine in value["engines"]}
    cpus = [f"tvm-{t.name}" for t in known_targets().values() if t.kind == "cpu"]
    assert list(engines) == [*cpus, "picky-sm_90"]
    totals = {name: sum(engine["counts"].values()) for name, engine in engines.items()}
    assert len(set(totals.values())) == 1, "the same nodes for each"
    assert engines["tvm-native"]["counts"]["native"] == totals["tvm-native"]
    picky = engines["picky-sm_90"]
    assert picky["nodes"][:2] == [
        {
            "operator": "optc::AddRMSNorm",
            "count": 1,
            "how": "unsupported",
            "reason": "there is no such norm",
        },
        {
            "operator": "optc::RotaryPagedAttention",
            "count": 1,
            "how": "decomposed",
            "reason": "attention over slots",
        },
    ]
    assert picky["counts"] == {
        "native": totals["picky-sm_90"] - 2,
        "decomposed": 1,
        "unsupported": 1,
    }
    assert picky["unavailable"] == "its compiler is not installed"
    assert (picky["estimate"], picky["no_estimate"]) == (None, "it cannot take every node")
    native, halves = (
        {"how": h, "reason": r} for h, r in (("native", ""), ("decomposed", "slots of halves"))
    )
    assert picky["kv_types"] == {t: halves if t == "float16" else native for t in KV_TYPES}
    assert not any(backend.built for backend in backends.values())


def test_bytes_are_predicted(plan_tiny: Optc) -> None:
    value = plan_tiny("--json", "--backends", "tvm,tvm:x86-64-v3", "--max-context", "48").json
    assert (value["model"], value["recipe"], value["max_context"]) == ("tiny", "fp32", 48)
    assert value["pipeline"].startswith("canonicalize,latent-kv,fuse-qkv,")
    assert value["passes"][0]["name"] == "canonicalize"
    # embedding and head (one of each in float32), norms, QKV, output, gate and up, down
    parameters = 2 * VOCAB * 32 + 3 * 32 + 32 * 64 + 32 * 32 + 32 * 128 + 64 * 32
    assert value["weight_bytes"] == pytest.approx(4 * parameters, rel=0.01)
    assert value["kv_bytes_per_token"] == 2 * 16 * 4
    assert value["kv_bytes_per_sequence"] == 2 * 16 * 4 * 64  # two blocks of 32 tokens
    assert value["compile_peak_bytes"] >= value["compile_peak_bytes_without_gates"] > 1 << 20
    native, old = value["engines"]
    assert native["estimate"]["weight_bytes"] == 4096
    assert native["estimate"]["decode_bytes"] == 1000
    assert native["estimate"]["prefill_ops_per_token"] == 20
    assert native["bound"] is None
    assert old["no_estimate"] == "nothing is known of old processors"


def test_a_repeated_compile_finds_its_kernels(
    plan_tiny: Optc, backends: dict[str, StubBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plan_tiny("--json").json["compile_seconds_again"] == {}, "no kernel is compiled"
    monkeypatch.setattr(Estimating, "compile_s", 10)
    value = plan_tiny("--json", "--backends", "tvm").json
    first, again = value["compile_seconds"], value["compile_seconds_again"]
    assert first["build"] > again["build"] > 0
    assert {**first, "build": 0} == {**again, "build": 0}
    whole = sum(again.values())
    assert f"{whole:.0f} s with its kernels in the cache" in plan_tiny("--backends", "tvm").out


def test_without_backends_the_plan_is_of_this_machine(
    plan_tiny: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Machine(host_features())
    monkeypatch.setattr("optc.compiling.plan.this_machine", lambda: here)
    assert [engine["name"] for engine in plan_tiny("--json").json["engines"]] == ["tvm-native"]
    # code for sm_90 runs on it, that for sm_89 does not
    here = Machine(host_features(), (90,))
    names = [engine["name"] for engine in plan_tiny("--json").json["engines"]]
    assert names == ["tvm-native", "picky-sm_90"]


def test_a_measured_machine_bounds_the_speed(
    plan_tiny: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = FakeMeter(read=1e6, int8=1e5, fp32=1e5)
    monkeypatch.setattr(this_machine, "measure_machine", lambda where: meter)
    value = plan_tiny("--json", "--measure", "--backends", "tvm").json
    bound = value["engines"][0]["bound"]
    assert bound["decode_tokens_per_s"] == pytest.approx(1e6 / 1000), "by reading"
    assert bound["prefill_tokens_per_s"] == pytest.approx(1e5 / 20), "by arithmetic"
    text = plan_tiny("--measure", "--backends", "tvm").out
    assert "1000" in text
    assert "5000" in text


def test_a_peak_that_this_cpu_has_not_bounds_nothing() -> None:
    estimate = EngineEstimate(toy_spec(), 0, COSTS)
    assert speed_bound(estimate, 8, {"read": Ceiling(1.0, 1.0)}) is None


def test_the_table_names_operators_reasons_and_engines(plan_tiny: Optc) -> None:
    outcome = plan_tiny("--backends", "all")
    assert outcome.code == 0
    for text in (
        "tiny, fp32",
        "tvm-native, tvm-x86-64-v3, tvm-x86-64-v3-vnni, tvm-x86-64-v4-vnni, tvm-x86-64-amx, "
        "tvm-aarch64-dotprod, tvm-aarch64-i8mm, tvm-arm64-macos-dotprod, tvm-arm64-macos-i8mm",
        "optc::AddRMSNorm",
        "unsupported",
        "there is no such norm",
        "attention over slots",
        "keys and values by type",
        "float16: slots",
        "picky-sm_90: its compiler is not installed",
        "tvm-x86-64-v3: nothing is known of old processors",
        "peak memory of a compile",
    ):
        assert text in " ".join(outcome.out.split()), text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "fp23"], "--recipe: unknown recipe 'fp23'"),
        (["--backends", "tvn"], "--backend: unknown backend 'tvn' (did you mean 'tvm'?)"),
        (["--backends", "tvm:sm_90"], "--backend tvm:cuda:sm_90: CPU only"),
        (["--backends", "picky:sm_91"], "--backend picky:sm_91: unknown CUDA architecture 'sm_91'"),
        (["--set", "kv-cash.x=1"], "--set: unknown pass 'kv-cash'"),
        (["--max-context", "65"], "--max-context: 65 tokens exceed the model's own context of 64"),
        (["--adapters", "max"], "--adapters: 'max' is not option=value"),
    ],
)
def test_bad_usage_is_what_compile_says(
    plan_tiny: Optc, arguments: list[str], message: str
) -> None:
    outcome = plan_tiny(*arguments)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith(f"error: {message}")
    assert outcome.out == ""


def test_no_model(optc: Optc, backends: dict[str, StubBackend], tmp_path: Path) -> None:
    outcome = optc("plan", tmp_path / "absent")
    assert outcome.code == 2
    assert "no such model folder" in outcome.err


def test_as_a_function(
    backends: dict[str, StubBackend],
    quick_import: None,
    imported_tiny: ImportedModel,
    tiny_model: Path,
) -> None:
    assert inspect.unwrap(optc.plan) is plan
    found = optc.plan(tiny_model, "fp32", backends=["tvm:x86-64-v4-vnni", "picky:sm_90"])
    assert [engine.name for engine in found.engines] == ["tvm-x86-64-v4-vnni", "picky-sm_90"]
    assert found.engines[0].estimate is not None


class Streaming(Estimating):
    """Its engines can run with a part of their weights in memory."""

    def load_resident(self, *_: object) -> None:
        raise NotImplementedError


def test_what_a_token_reads_from_the_disk(
    plan_tiny: Optc, backends: dict[str, StubBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """4096 bytes of weights, of which each step reads 1000."""

    def beyond(*arguments: str) -> dict[str, object]:
        found: dict[str, object] = {
            engine["backend"]: engine["beyond_memory"]
            for engine in plan_tiny(*arguments, "--json").json["engines"]
        }
        return found

    monkeypatch.setattr("optc.compiling.predictions.engine_plan.CONTEXT", 16)
    assert set(beyond("--resident-memory", "1KiB").values()) == {None}
    backends["tvm"] = Streaming("tvm", 20)
    assert set(beyond().values()) == {None}
    rest = {"disk_bytes_per_s": None, "tokens_per_s": None}
    assert beyond("--resident-memory", "600B")["tvm"] == {
        "resident_bytes": 600,
        "read_bytes": 400,
        **rest,
    }
    shown = " ".join(plan_tiny("--resident-memory", "600B").out.split())
    assert (
        ": 600 B of the weights stay in memory; a token reads 400 B from the disk (fewer where "
        "the same experts come again); --measure says how long that takes"
    ) in shown
    meter = FakeMeter()
    monkeypatch.setattr(this_machine, "measure_machine", lambda where: meter)
    monkeypatch.setattr(
        "optc.proof.roofline.beyond_memory.disk_ceiling", lambda path: Ceiling(2e9, 1e9)
    )
    found = beyond("--resident-memory", "600B", "--measure")["tvm"]
    assert found == {
        "resident_bytes": 600,
        "read_bytes": 400,
        "disk_bytes_per_s": 2e9,
        "tokens_per_s": 5e6,
    }
    shown = " ".join(plan_tiny("--resident-memory", "600B", "--measure").out.split())
    assert ": at 2 GB/s of this disk at most 5e+06 tokens/s" in shown
