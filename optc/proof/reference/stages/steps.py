"""The steps of a stage beside its linear layers, computed by ONNX Runtime or by PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from optc.proof.reference.partition import Partition
from optc.proof.reference.stages.fused_attention import fused_attention
from optc.proof.reference.submodel import Array, SubModel, extract, open_session, run_session


@dataclass(frozen=True)
class Step:
    """Some nodes, one after the other.

    Attributes:
        reads: What they read of each window.
        gives: What is read after them.
        run: Gives that, of what they read.
    """

    reads: tuple[ir.Value, ...]
    gives: tuple[ir.Value, ...]
    run: Callable[[Sequence[Array]], Sequence[Array]]


def steps_of(
    model: ir.Model,
    parts: Partition,
    nodes: Sequence[ir.Node],
    given: set[ir.Value],
    wanted: Sequence[ir.Value],
    shared: Mapping[str, Array],
    threads: int,
    *,
    fused: bool,
) -> list[Step]:
    """The steps that ``nodes`` take.

    Args:
        model: What they are of.
        parts: Its pieces.
        nodes: In topological order.
        given: Values of each window that are there before them.
        wanted: What is to be given at last.
        shared: Values that all blocks read, by name, for as many windows as run at once.
        threads: Threads of ONNX Runtime.
        fused: Whether PyTorch computes attention.
    """
    known, found = set(given), list[Step]()
    for group in _groups(nodes, fused=fused):
        inside = set(group)
        made = [value for node in group for value in node.outputs]
        read = dict.fromkeys(v for node in group for v in node.inputs if v is not None)
        reads = tuple(value for value in read if value in known)
        gives = tuple(
            value
            for value in made
            if value in wanted or any(use.node not in inside for use in value.uses())
        )
        attention = fused_attention(group[0]) if fused and len(group) == 1 else None
        if attention is not None:
            reads = tuple(value for value in group[0].inputs if value is not None)
            found.append(Step(reads, gives, _one(attention)))
        else:
            used = [value for value in parts.shared if value in read]
            part = extract(model, group, [*reads, *used], gives)
            found.append(Step(reads, gives, _session(part, reads, used, shared, threads)))
        known.update(made)
    return found


def _groups(nodes: Sequence[ir.Node], *, fused: bool) -> Iterator[list[ir.Node]]:
    """Nodes that run together: an attention that PyTorch computes is alone."""
    group: list[ir.Node] = []
    for node in nodes:
        if not fused or fused_attention(node) is None:
            group.append(node)
            continue
        if group:
            yield group
        yield [node]
        group = []
    if group:
        yield group


def _one(kernel: Callable[[Sequence[Array]], Array]) -> Callable[[Sequence[Array]], list[Array]]:
    return lambda operands: [kernel(operands)]


def _session(
    part: SubModel,
    reads: Sequence[ir.Value],
    used: Sequence[ir.Value],
    shared: Mapping[str, Array],
    threads: int,
) -> _Session:
    """Runs ``part``, which reads values of each window and those ``used`` of the shared ones."""
    feeds = {value.name or "": shared[value.name or ""] for value in used}
    names = [value.name or "" for value in reads]
    return _Session(open_session(part.model, threads), names, part.feeds(), feeds)


@dataclass(frozen=True)
class _Session:
    """Runs nodes in ONNX Runtime.

    Attributes:
        session: Of the nodes.
        names: Of what they read, in order.
        weights: By name.
        shared: By name, for a full chunk of windows.
    """

    session: ort.InferenceSession
    names: Sequence[str]
    weights: dict[str, Array]
    shared: Mapping[str, Array]

    def __call__(self, operands: Sequence[Array]) -> list[Array]:
        feeds = {name: array[: len(operands[0])] for name, array in self.shared.items()}
        for name, array in zip(self.names, operands, strict=True):
            feeds[name] = np.ascontiguousarray(array)
        return run_session(self.session, self.weights | feeds)
