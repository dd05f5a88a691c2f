"""What a plan states of each engine; ``optc plan`` as a whole is in tests/cli/commands."""

from __future__ import annotations

from types import SimpleNamespace

import onnx_ir as ir
import pytest

from optc.backend import NATIVE, BuildOptions, Support
from optc.compiling.plan import _lower_each, _main, _requests
from optc.compiling.predictions.engine_plan import EnginePlan, NodeVerdict, _estimate, _verdicts
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.engines import EngineTarget
from optc.errors import UnavailableError
from optc.proof.roofline.costs import StepCosts
from optc.proof.roofline.estimate import EngineEstimate
from optc.system.hardware.target import Target, parse_target
from tests.runtime.support.toy import toy_spec
from tests.support.stub import StubBackend


class Picky(StubBackend):
    """Lacks one operator, rewrites another, and estimates CPUs only."""

    def supports(self, node: ir.Node, target: Target) -> Support:
        return {
            "Exp": Support("unsupported", "no such thing"),
            "Neg": Support("decomposed", "0 - x"),
        }.get(node.op_type, NATIVE)

    def estimate(self, model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
        if target.kind != "cpu":
            raise UnavailableError("nothing is known of it", where="estimate")
        model.graph.name = "changed"
        return EngineEstimate(toy_spec(max_context=options.max_context), 9, StepCosts("int8", {}))


@pytest.fixture
def model() -> ir.Model:
    nodes = [
        ir.Node(domain, name, [])
        for domain, name in (
            ("", "Neg"),
            ("optc", "Rotary"),
            ("", "Exp"),
            ("optc", "Attention"),
            ("optc", "Rotary"),
        )
    ]
    graph = ir.Graph([], [], nodes=nodes, opset_imports={"": 23}, name="g")
    return ir.Model(graph, ir_version=10)


def request(target: str = "native") -> EngineTarget:
    return EngineTarget("e", Picky("picky"), parse_target(target))


def test_nodes_by_operator_those_that_stop_a_compile_first(model: ir.Model) -> None:
    found = _verdicts(request(), model)
    assert found == (
        NodeVerdict("Exp", 1, "unsupported", "no such thing"),
        NodeVerdict("Neg", 1, "decomposed", "0 - x"),
        NodeVerdict("optc::Attention", 1, "native", ""),
        NodeVerdict("optc::Rotary", 2, "native", ""),
    )
    counts = EnginePlan("e", "picky", "native", "", found).counts
    assert list(counts.items()) == [("native", 3), ("decomposed", 1), ("unsupported", 1)]
    assert EnginePlan("e", "picky", "native", "", ()).counts == dict.fromkeys(counts, 0)


def test_estimates_and_why_there_is_none(model: ir.Model) -> None:
    limits = BuildOptions(max_context=32)
    cpu, cuda = request(), request("cuda:sm_89")
    estimate, reason = _estimate(cpu.backend, cpu, model, limits)
    assert estimate is not None
    assert (estimate.weight_bytes, estimate.spec.max_context, reason) == (9, 32, "")
    assert model.graph.name == "g", "a backend may change its copy only"
    none = (None, "estimate: nothing is known of it")
    assert _estimate(cuda.backend, cuda, model, limits) == none
    plain = EngineTarget("e", StubBackend("plain"), cpu.target)
    none = (None, "the plain backend estimates nothing")
    assert _estimate(plain.backend, plain, model, limits) == none


def test_all_backends_are_asked_about_every_target_that_they_take(
    backends: dict[str, StubBackend],
) -> None:
    pairs = {(r.backend.name, r.target.name) for r in _requests("all", "tvm")}
    cuda = {f"cuda:sm_{sm}" for sm in (80, 86, 89, 90, 100, 120)}
    assert pairs >= {("aot", name) for name in cuda} | {("tvm", "native"), ("tvm", "x86-64-v3")}
    assert ("aot", "native") not in pairs
    (one,) = _requests("aot:sm_89", "tvm")
    assert (one.backend.name, one.target.name) == ("aot", "cuda:sm_89")


def test_equal_recipes_are_lowered_once(monkeypatch: pytest.MonkeyPatch, model: ir.Model) -> None:
    lowered: list[str] = []

    def lower(model: ir.Model, options: SimpleNamespace, *, dry: bool) -> str:
        assert dry
        lowered.append(options.recipe.pipeline.spec())
        return f"lowered {len(lowered)}"

    monkeypatch.setattr("optc.compiling.plan.lower", lower)
    monkeypatch.setattr(
        "optc.compiling.plan.replace", lambda options, recipe: SimpleNamespace(recipe=recipe)
    )
    first, other = load_recipe("fp32"), load_recipe("int8-fused")
    found = _lower_each(model, [first, other, first], None)  # type: ignore[arg-type]
    assert found == ["lowered 1", "lowered 2", "lowered 1"]
    assert lowered == [first.pipeline.spec(), other.pipeline.spec()]


def test_figures_of_a_compile_are_those_of_the_recipes_backend_here() -> None:
    def of(backend: str, target: str) -> EngineTarget:
        return EngineTarget(f"{backend}-{target}", StubBackend(backend), parse_target(target))

    asked = [of("other", "native"), of("mine", "x86-64-v3"), of("mine", "native")]
    assert _main(asked, "mine") == 2
    assert _main(asked[:2], "mine") == 1
    assert _main(asked, "third") == 0
