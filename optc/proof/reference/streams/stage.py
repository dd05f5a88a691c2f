"""A decoder layer in stages: each begins with linear layers whose inputs all stages before it made.

Quantizing in stages lets a layer's rounding see what the layers before it, in the same block too,
did to its inputs. A node's stage is the number of linear layers on the longest way from the block's
source to it: norms before Q, K and V are stage 0; Q, K, V and attention 1; O and the residual 2;
gate, up and their product 3; down 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.ir.linear import Linear, find_linear
from optc.ir.weights import Array
from optc.proof.reference.execution.part import open_part
from optc.proof.reference.partition import Block, Partition
from optc.proof.reference.streams.products import Products


@dataclass(frozen=True)
class Stage:
    """Some nodes of a block.

    Attributes:
        nodes: In topological order.
        reads: Values of earlier stages, or what the block is given, that the nodes read.
        gives: Values that later stages or blocks read, and the block's result.
        linears: The linear layers among the nodes.
    """

    nodes: tuple[ir.Node, ...]
    reads: tuple[ir.Value, ...]
    gives: tuple[ir.Value, ...]
    linears: tuple[Linear, ...]


def stages_of(block: Block) -> tuple[Stage, ...]:
    """The stages of ``block`` in order; those that hold no node are left out."""
    depths = dict.fromkeys(block.given, 0)
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

    Linear layers are multiplied by `Products`; everything else is one part.

    Args:
        model: The model that the stage is of.
        parts: Its pieces.
        stage: The stage.
        shared: Values that all blocks read, by name, for a full chunk of windows.
        threads: Threads of a CPU.

    Attributes:
        stage: The stage.
    """

    def __init__(
        self,
        model: ir.Model,
        parts: Partition,
        stage: Stage,
        shared: Mapping[str, Array],
        threads: int,
    ) -> None:
        self.stage = stage
        self._products: Products | None = None
        self._weights: dict[ir.Value, Any] = {}
        layers = {linear.matmul for linear in stage.linears}
        rest = [node for node in stage.nodes if node not in layers]
        made = {value for node in rest for value in node.outputs}
        read = dict.fromkeys(v for node in rest for v in node.inputs if v is not None)
        multiplied = [linear.matmul.outputs[0] for linear in stage.linears]
        self._reads = [value for value in (*stage.reads, *multiplied) if value in read]
        self._gives = [value for value in stage.gives if value in made]
        used = [value for value in parts.shared if value in read]
        self._shared = [shared[value.name or ""] for value in used]
        self._rest = open_part(model, rest, [*self._reads, *used], self._gives, threads)

    def load(self, products: Products, weights: Mapping[ir.Value, Array] | None = None) -> None:
        """Take weights, as rows [N, K] by initializer; the stage's own where there is no other.
        ``products`` multiply them."""
        self._products = products
        self._weights = {
            one.initializer: products.weight(
                _own(one)
                if weights is None or one.initializer not in weights
                else weights[one.initializer]
            )
            for one in self.stage.linears
        }

    def unload(self) -> None:
        """Let the weights go."""
        self._weights = {}

    def run(self, values: Sequence[Array]) -> list[Array]:
        """Compute the results of the stage, each [w, ...] in float32.

        Args:
            values: What it reads, each [w, ...] in float32, or as `Products.dtype` where only
                linear layers read it.
        """
        known = dict(zip(self.stage.reads, values, strict=True))
        known |= self._multiplied(known)
        if self._gives:
            shared = (array[: len(values[0])] for array in self._shared)
            results = self._rest.run([*(known[value] for value in self._reads), *shared])
            known |= dict(zip(self._gives, results, strict=True))
        return [known[value] for value in self.stage.gives]

    def _multiplied(self, given: Mapping[ir.Value, Array]) -> dict[ir.Value, Array]:
        """Results of the linear layers."""
        found: dict[ir.Value, Array] = {}
        if self._products is None:  # no weights are loaded: there are no layers
            return found
        for x in dict.fromkeys(one.x for one in self.stage.linears):
            readers = [one for one in self.stage.linears if one.x is x]
            weights = [self._weights[one.initializer] for one in readers]
            for one, result in zip(readers, self._products(given[x], weights), strict=True):
                found[one.matmul.outputs[0]] = result
        return found


def _own(linear: Linear) -> Array:
    return np.asarray(linear.weight.read_rows(0, linear.weight.rows_shape[0]))
