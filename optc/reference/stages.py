"""A decoder layer in stages: each begins with linear layers whose inputs all stages before it made.

Quantizing in stages lets a layer's rounding see what the layers before it, in the same block too,
did to its inputs. A node's stage is the number of linear layers on the longest way from the block's
source to it: norms before Q, K and V are stage 0; Q, K, V and attention 1; O and the residual 2;
gate, up and their product 3; down 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.ir.linear import Linear, find_linear
from optc.reference.partition import Block, Partition
from optc.reference.submodel import Array, extract, open_session, run_session


@dataclass(frozen=True)
class Stage:
    """Some nodes of a block.

    Attributes:
        nodes: In topological order.
        reads: Values of earlier stages, or the block's source, that the nodes read.
        gives: Values that later stages read, and the block's result.
        linears: The linear layers among the nodes.
    """

    nodes: tuple[ir.Node, ...]
    reads: tuple[ir.Value, ...]
    gives: tuple[ir.Value, ...]
    linears: tuple[Linear, ...]


def stages_of(block: Block) -> tuple[Stage, ...]:
    """The stages of ``block`` in order; those that hold no node are left out."""
    depths = {block.source: 0}
    by_depth: dict[int, list[ir.Node]] = {}
    for node in block.nodes:
        depth = max((depths.get(v, 0) for v in node.inputs if v is not None), default=0)
        depth += find_linear(node) is not None
        by_depth.setdefault(depth, []).append(node)
        depths.update(dict.fromkeys(node.outputs, depth))
    return tuple(_stage(block, by_depth[depth], depths) for depth in sorted(by_depth))


def _stage(block: Block, nodes: list[ir.Node], depths: Mapping[ir.Value, int]) -> Stage:
    made = dict.fromkeys(value for node in nodes for value in node.outputs)
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v in depths and v not in made)
    inside = set(nodes)
    gives = [v for v in made if v is block.result or any(u.node not in inside for u in v.uses())]
    linears = [linear for node in nodes if (linear := find_linear(node)) is not None]
    return Stage(tuple(nodes), tuple(v for v in read if v is not None), tuple(gives), (*linears,))


class StageRun:
    """Runs a stage over chunks of windows, with its own weights or with others.

    Args:
        model: The model that the stage is of.
        parts: Its pieces.
        stage: The stage.
        shared: Values that all blocks read, by name, for a full chunk of windows.
        threads: Threads of ONNX Runtime.
    """

    def __init__(
        self,
        model: ir.Model,
        parts: Partition,
        stage: Stage,
        shared: Mapping[str, Array],
        threads: int,
    ) -> None:
        self._stage = stage
        read = {v for node in stage.nodes for v in node.inputs if v is not None}
        used = [v for v in parts.shared if v in read]
        self._shared = {v.name or "": shared[v.name or ""] for v in used}
        part = extract(model, stage.nodes, [*stage.reads, *used], stage.gives)
        self._feeds = part.feeds()
        self._session = open_session(part.model, threads)

    def run(
        self, values: Sequence[Array], weights: Mapping[ir.Value, Array] | None = None
    ) -> list[Array]:
        """What the stage gives, each [w, ...].

        Args:
            values: What it reads, each [w, ...] in float32.
            weights: Other contents of weights, as rows [N, K].
        """
        given = [np.ascontiguousarray(value) for value in values]
        feeds = {name: array[: len(given[0])] for name, array in self._shared.items()}
        feeds |= {v.name or "": a for v, a in zip(self._stage.reads, given, strict=True)}
        other = {v.name or "": array for v, array in (weights or {}).items()}
        return run_session(self._session, self._feeds | other | feeds)
