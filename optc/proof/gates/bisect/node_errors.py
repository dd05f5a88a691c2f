"""The error that each node of a model adds: that of its outputs, computed of exact inputs.

A model is compared with the one before the pass that made it. Values that have one name in both
are the same quantity; between them, every node is given the exact values of the model before, so
that its own error is seen, not that of all nodes above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import onnx_ir as ir

from optc.ir.sources import sources_of
from optc.proof.gates.bisect.model_run import cut_at, given_name, run_model
from optc.proof.gates.bisect.step_feeds import is_ragged, step_feed
from optc.proof.gates.bisect.value_store import ValueStore, sqnr_db
from optc.proof.reference.submodel import Array
from optc.runtime.executable.executable import Int32

#: Decibels below its peers from which on a node stands out, and in units of their spread.
OUTLIER_DB = 6.0
OUTLIER_SPREADS = 5.0
#: Decibels within which two are as bad, so that the first is named.
EQUAL_DB = 1.0
#: Fewest others of a kind to compare with.
FEWEST_PEERS = 2


@dataclass(frozen=True)
class NodeError:
    """A value and what the nodes between it and the values before add to its error.

    Attributes:
        value: Its name.
        node: Name of the node that gives it.
        operator: That node's operator.
        kind: What other layers have, too: the operator and weights without their numbers.
        sqnr_db: Signal over noise.
        output: Which of the node's outputs the value is.
        peers_db: The median of the nodes it is compared with.
        outlier: Whether it is beneath them by more than their spread explains.
    """

    value: str
    node: str
    operator: str
    kind: str
    sqnr_db: float
    output: int = 0
    peers_db: float = 0.0
    outlier: bool = False


class LocalRun:
    """Runs the nodes of a model on exact values.

    Args:
        before: The model before a pass.
        after: The model after it.
        windows: [W, S] tokens.
        store: Gets the values of ``before`` that ``after`` has, too.
        threads: Threads of ONNX Runtime.

    Attributes:
        values: Names that both models have.
    """

    def __init__(
        self, before: ir.Model, after: ir.Model, windows: Int32, store: ValueStore, threads: int
    ) -> None:
        self._feed, self._store, self._threads = step_feed(after, windows), store, threads
        self._by_row = is_ragged(after)
        own = _float_values(after)
        shared = {name: value for name, value in _float_values(before).items() if name in own}
        run_model(
            before,
            step_feed(before, windows),
            set(shared.values()),
            lambda value, array: store.put(str(value.name), array),
            threads,
        )
        self.values = [name for name in own if name in store]

    def cut(self, model: ir.Model) -> ir.Model:
        """The model with every node given exact values."""
        return cut_at(model, self.values)

    def exact(self, name: str) -> Array:
        """The value in the model before, shaped as the model after has it."""
        return self._store.get(name, by_row=self._by_row)

    def outputs(self, cut: ir.Model, names: Sequence[str]) -> dict[str, float]:
        """SQNR by name of values of a cut model, in dB."""
        found: dict[str, float] = {}

        def compare(value: ir.Value, array: Array) -> None:
            exact = self.exact(str(value.name))
            if exact.size == array.size:
                found[str(value.name)] = sqnr_db(exact, array)

        self._run(cut, names, compare)
        return found

    def column_errors(
        self, cut: ir.Model, name: str, ranges: Sequence[tuple[int, int]]
    ) -> list[float]:
        """SQNR of ranges of columns of a value of a cut model, in dB."""
        found: list[float] = []

        def compare(value: ir.Value, array: Array) -> None:
            exact = self.exact(name)
            found.extend(sqnr_db(exact[..., a:b], array[..., a:b]) for a, b in ranges)

        self._run(cut, [name], compare)
        return found

    def _run(
        self, cut: ir.Model, names: Sequence[str], take: Callable[[ir.Value, Array], None]
    ) -> None:
        wanted = {v for node in cut.graph for v in node.outputs if v.name in set(names)}
        given = {given_name(name): name for name in self.values}
        run_model(
            cut,
            lambda name: self.exact(given[name]) if name in given else self._feed(name),
            wanted,
            take,
            self._threads,
        )


def node_errors(run: LocalRun, after: ir.Model) -> list[NodeError]:
    """The error that the nodes before each value add, in graph order, with its peers'."""
    sqnr = run.outputs(run.cut(after), run.values)
    producers = {str(v.name): node for node in after.graph for v in node.outputs}
    found = [_error(name, producers[name], sqnr[name]) for name in producers if name in sqnr]
    return judge_nodes(found)


def judge_nodes(errors: Sequence[NodeError]) -> list[NodeError]:
    """The same, each compared with its peers: its kind in other layers, or else its operator."""
    return [_with_peers(one, errors) for one in errors]


def first_broken(errors: Sequence[NodeError]) -> NodeError | None:
    """The node that stands out most; else the first of the kind that is worst; None without any."""
    outliers = [one for one in errors if one.outlier]
    if outliers:
        most = max(one.peers_db - one.sqnr_db for one in outliers)
        return next(one for one in outliers if one.peers_db - one.sqnr_db >= most - EQUAL_DB)
    kinds: dict[tuple[str, int], list[float]] = {}
    for one in errors:
        kinds.setdefault((one.kind, one.output), []).append(one.sqnr_db)
    if not kinds:
        return None
    medians = {key: median(values) for key, values in kinds.items()}
    worst = min(medians.values())
    return next(one for one in errors if medians[one.kind, one.output] <= worst + EQUAL_DB)


def _error(name: str, node: ir.Node, sqnr: float) -> NodeError:
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    kind = re.sub(r"\d+", "#", " ".join([operator, *weights_of(node)]))
    index = [value.name for value in node.outputs].index(name)
    return NodeError(name, node.name or node.op_type, operator, kind, sqnr, index)


def weights_of(node: ir.Node) -> list[str]:
    """Original tensors among the constants of a node."""
    constants = [v for v in node.inputs if v is not None and v.is_initializer()]
    return [source.name for value in constants for source in sources_of(value, 0)]


def _with_peers(one: NodeError, every: Sequence[NodeError]) -> NodeError:
    others = [other for other in every if other is not one and other.output == one.output]
    alike = [other.sqnr_db for other in others if other.kind == one.kind]
    if len(alike) < FEWEST_PEERS:
        alike = [other.sqnr_db for other in others if other.operator == one.operator]
    if len(alike) < FEWEST_PEERS:
        return replace(one, peers_db=one.sqnr_db)
    middle = median(alike)
    spread = 1.4826 * median(abs(value - middle) for value in alike)
    outlier = middle - one.sqnr_db > max(OUTLIER_DB, OUTLIER_SPREADS * spread)
    return replace(one, peers_db=middle, outlier=outlier)


def _float_values(model: ir.Model) -> Mapping[str, ir.Value]:
    """Float values that depend on the tokens, by name; of the graph's outputs only the logits.

    What depends on positions alone (cos and sin) is the same in every model.
    """
    others = set(model.graph.outputs[1:])  # pools, hidden states of Medusa heads
    moving = {model.graph.inputs[0]}
    found: dict[str, ir.Value] = {}
    for node in model.graph:
        if not any(value in moving for value in node.inputs):
            continue
        moving.update(node.outputs)
        made = (v for v in node.outputs if v.dtype in (None, ir.DataType.FLOAT))
        found.update((str(value.name), value) for value in made if value not in others)
    return found
