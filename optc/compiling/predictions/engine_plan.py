"""The plan of one backend's engine of a model for one target, before anything is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from optc.backend import Backend, BuildOptions, ResidentBackend, Support
from optc.compiling.resolving.engines import EngineTarget, engine_name
from optc.compiling.resolving.kv_types import kv_supports
from optc.errors import UnavailableError, UnsupportedError
from optc.proof.roofline.beyond_memory import BeyondMemory, beyond_memory
from optc.proof.roofline.estimate import (
    CONTEXT,
    EngineEstimate,
    EstimatingBackend,
    SpeedBound,
    estimate_json,
    speed_bound,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.proof.roofline.ceilings import Ceiling


@dataclass(frozen=True)
class NodeVerdict:
    """The support of the nodes of one kind by a backend.

    Attributes:
        operator: ``optc::QuantizedMatMul``; standard operators have no prefix.
        count: Nodes.
        how: As in `optc.backend.Support`.
        reason: As there.
    """

    operator: str
    count: int
    how: str
    reason: str


@dataclass(frozen=True)
class EnginePlan:
    """The plan of one backend's engine of the model for one target.

    Attributes:
        name: That its engine would have beside others.
        backend: Its backend.
        target: Its target's name.
        unavailable: Why it cannot be built on this machine; empty if it can.
        nodes: By operator, those that are not supported first.
        estimate: Weights and costs; None where the backend makes none.
        no_estimate: Why it makes none.
        kv_types: How keys and values are kept, by the type that the model asks for.
        bound: On this machine; None where it was not measured, or cannot be stated.
        beyond_memory: What a token reads from the disk here; None where all weights stay in
            memory, or cannot be anywhere else.
    """

    name: str
    backend: str
    target: str
    unavailable: str
    nodes: tuple[NodeVerdict, ...]
    estimate: EngineEstimate | None = None
    no_estimate: str = ""
    bound: SpeedBound | None = None
    kv_types: Mapping[str, Support] = field(default_factory=dict)
    beyond_memory: BeyondMemory | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Nodes by how they are taken."""
        found = Counter({"native": 0, "decomposed": 0, "unsupported": 0})
        for node in self.nodes:
            found[node.how] += node.count
        return dict(found)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "name": self.name,
            "backend": self.backend,
            "target": self.target,
            "unavailable": self.unavailable,
            "counts": self.counts,
            "nodes": [asdict(node) for node in self.nodes],
            "kv_types": {dtype: asdict(support) for dtype, support in self.kv_types.items()},
            "estimate": None if self.estimate is None else estimate_json(self.estimate),
            "no_estimate": self.no_estimate,
            "bound": None if self.bound is None else asdict(self.bound),
            "beyond_memory": None if self.beyond_memory is None else asdict(self.beyond_memory),
        }


def engine_plan(
    request: EngineTarget,
    model: ir.Model,
    limits: BuildOptions,
    ceilings: Mapping[str, Ceiling] | None,
    resident: int | None = None,
) -> EnginePlan:
    """The plan of the engine of ``request`` for ``model``, with its bound by ``ceilings``, where
    ``resident`` bytes of weights stay in memory (None leaves that to the memory)."""
    backend, target = request.backend, request.target
    nodes = _verdicts(request, model)
    estimate, reason = None, "it cannot take every node"
    if all(node.how != "unsupported" for node in nodes):
        estimate, reason = _estimate(backend, request, model, limits)
    bound = None
    if target.name == "native" and ceilings is not None and estimate is not None:
        bound = speed_bound(estimate, min(CONTEXT, limits.max_context), ceilings)
    beyond = None
    if target.name == "native" and estimate is not None and isinstance(backend, ResidentBackend):
        beyond = beyond_memory(estimate, min(CONTEXT, limits.max_context), resident, ceilings)
    name = engine_name(backend, target)
    return EnginePlan(
        name,
        backend.name,
        target.name,
        backend.available(),
        nodes,
        estimate,
        reason,
        bound,
        kv_supports(request),
        beyond,
    )


def _verdicts(request: EngineTarget, model: ir.Model) -> tuple[NodeVerdict, ...]:
    found: Counter[tuple[str, Support]] = Counter()
    for node in model.graph:
        operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        found[operator, request.steps.supports(node, request.target)] += 1
    order = {"unsupported": 0, "decomposed": 1, "native": 2}
    verdicts = [
        NodeVerdict(operator, count, support.how, support.reason)
        for (operator, support), count in found.items()
    ]
    return tuple(sorted(verdicts, key=lambda v: (order[v.how], v.operator, v.reason)))


def _estimate(
    backend: Backend, request: EngineTarget, model: ir.Model, limits: BuildOptions
) -> tuple[EngineEstimate | None, str]:
    if not isinstance(backend, EstimatingBackend):
        return None, f"the {backend.name} backend estimates nothing"
    try:
        return backend.estimate(model.clone(), request.target, limits), ""
    except (UnavailableError, UnsupportedError) as error:
        return None, error.render()
