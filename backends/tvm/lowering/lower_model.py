"""The whole model as a `Program`: the step, the KV copies, the weights and the engine's spec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points

import onnx_ir as ir
from msgspec.structs import replace

from optc.backend import BuildOptions
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.kv_layout import POOL_TYPES, TILE
from optc.backends.tvm.lowering import (
    lower_adapters,
    lower_attention,
    lower_convolution,
    lower_cross,
    lower_elementwise,
    lower_experts,
    lower_matmul,
    lower_medusa,
    lower_packed,
    lower_recurrence,
    lower_rows,
)
from optc.backends.tvm.lowering.lower_attention import TREE_INPUTS, kv_config, pool_names
from optc.backends.tvm.lowering.lower_sampling import VOCAB_LIMIT, sample_function
from optc.backends.tvm.lowering.walk import Handler, Lowering, width_of
from optc.backends.tvm.program import Call, Function, Program, Tensor
from optc.backends.tvm.weights.sparse_weights import SparseWeights
from optc.backends.tvm.weights.weights_file import PackedWeight
from optc.errors import InputError
from optc.ir.forms.decoder import FEATURES
from optc.ir.forms.kv_pools import KVPools
from optc.ir.forms.ragged import HIDDEN, MEDUSA_LOGITS, TREE_PARENT, RaggedStep
from optc.ir.graph import width
from optc.registry import load_point
from optc.runtime.executable.executable import KVGroup, LayerKV, StepInterface
from optc.system.hardware.target import Target

#: Every lowered operator by (domain, name); those of other packages come last.
HANDLERS: dict[tuple[str, str], Handler] = {
    **lower_adapters.HANDLERS,
    **lower_attention.HANDLERS,
    **lower_convolution.HANDLERS,
    **lower_cross.HANDLERS,
    **lower_elementwise.HANDLERS,
    **lower_experts.HANDLERS,
    **lower_matmul.HANDLERS,
    **lower_medusa.HANDLERS,
    **lower_packed.HANDLERS,
    **lower_recurrence.HANDLERS,
    **lower_rows.HANDLERS,
    **{
        key: handler
        for point in entry_points(group="optc.tvm_handlers")
        for key, handler in load_point(point, lambda module: dict(module.HANDLERS)).items()
    },
}


@dataclass(frozen=True)
class Lowered:
    """The lowering's result for the build.

    Attributes:
        program: For the compiler.
        weights: Packed weights, in the order of the step's arguments.
        spec: Limits and KV shape.
        sparse: Which weights are sparse, and why others are not.
    """

    program: Program
    weights: tuple[PackedWeight, ...]
    spec: StepInterface
    sparse: SparseWeights


def lower_model(
    model: ir.Model, target: Target, options: BuildOptions, *, exact: bool = True
) -> Lowered:
    """Lower a ragged-step model (docs/normal-form.md).

    Args:
        model: The ragged step.
        target: What the engine is for.
        options: Limits, and whose weights it shares.
        exact: Count the zeros of sparse weights, which reads these; else their sizes are estimated
            and they cannot be packed.

    Raises:
        UnsupportedError: Nodes cannot be lowered; all are listed with their reasons.
        InputError: The model is not a ragged step.
    """
    form = RaggedStep.of(model)
    kv, adapters, tree = form.kv, form.adapters, form.tree
    features = input_width(model, FEATURES) if form.features else 0
    inputs = step_inputs(
        len(kv.groups), adapters=adapters is not None, tree=tree, features=features
    )
    banks = lower_adapters.adapter_pools(adapters)
    sparse = _sparse_weights(target, options, exact)
    lowering = Lowering(len(kv.groups), kv.layers, target.kind == "cpu", sparse)
    rates = form.accept_rates
    hidden = [lower_medusa.hidden_input(model)] if rates else []
    by_name = {t.name: t for t in (*inputs, *banks, *hidden)}
    for value in model.graph.inputs:
        if value.name == TREE_PARENT:
            continue  # attention takes tree_tiles and tree_slots instead
        if value.name in by_name:
            lowering.tensors[value] = by_name[value.name]
        elif "_pool." not in str(value.name):
            raise InputError(
                f"unknown input {value.name}", where="tvm backend", hint="see docs/normal-form.md"
            )
        else:
            lowering.tensors[value] = Tensor(str(value.name), "float32", ())
    lowering.run(model.graph, HANDLERS)
    logits = lowering.tensor(model.graph.outputs[0])
    weights = tuple(lowering.weights.values())
    pools = [t for i, layer in enumerate(kv.layers) for t in pool_tensors(i, layer)]
    packed = [tensor for weight in weights for tensor in weight.tensors]
    calls, results, functions, hidden_size = lowering.calls, [logits.name], [], 0
    by_output = {value.name: value for value in model.graph.outputs}
    if rates:
        guesses = lowering.tensor(by_output[MEDUSA_LOGITS])
        calls, heads = lower_medusa.split_heads(calls, hidden[0], packed, guesses.name)
        functions.append(heads)
    if rates or form.hidden:
        states = lowering.tensor(by_output[HIDDEN])
        results.append(states.name)
        hidden_size = width_of(states) if form.hidden else 0
    arguments = (*inputs, *packed, *pools, *banks)
    step = Function("step", arguments, tuple(calls), results[0], tuple(results[1:]))
    copies = (_copy_function(g, group, kv.layers) for g, group in enumerate(kv.groups))
    if form.encoded:
        every = tuple(pool_tensors(i, layer) for i, layer in enumerate(kv.layers))
        functions.append(lower_cross.write_function(kv, every))
    bounds = {
        "T": options.max_rows,
        "B": options.max_rows if tree else options.max_sequences,
        "R": options.max_logit_rows,
        "H": options.max_sequences,
    }
    vocab = int(logits.shape[1])
    samples = vocab < VOCAB_LIMIT
    samplers = (sample_function(vocab),) if samples else ()
    called = (step, *copies, *functions, *samplers)
    program = Program(called, bounds, target.name, target.features)
    spec = replace(_spec(kv, vocab, options), adapters=adapters, tree=tree, samples=samples)
    spec = replace(spec, accept_rates=rates, hidden_size=hidden_size, features=form.features)
    spec = replace(spec, hidden_rows=form.hidden or "all", encoded=form.encoded)
    return Lowered(program, weights, spec, sparse)


def _sparse_weights(target: Target, options: BuildOptions, exact: bool) -> SparseWeights:
    """True if an engine for the target, and those that will read its weights, take sparse ones."""
    unable = [
        t.name for t in (target, *options.readers) if t.kind != "cpu" or not isa_of(t).expands
    ]
    refusal = ""
    if unable:
        refusal = f"engines for {', '.join(dict.fromkeys(unable))} have no sparse kernels"
    given = None
    if options.shared is not None:
        given = frozenset(str(item["name"]) for item in options.shared.data["weights"])
    return SparseWeights(refusal, given, exact)


def input_width(model: ir.Model, name: str) -> int:
    """Size of the last axis of an input."""
    value = next(value for value in model.graph.inputs if value.name == name)
    size = width(value)
    if size is None:
        raise ValueError(f"{name} has no width")
    return size


def step_inputs(groups: int, *, adapters: bool, tree: bool, features: int) -> tuple[Tensor, ...]:
    """The step's inputs in order, those for adapters, trees and features (of so many values) last;
    all int32 but features. ``block_size`` is beside `StepBatch`'s, as are those for trees
    (`optc.backends.tvm.loaded.tree_paths`)."""
    copies = [Tensor(name, "int32", (groups, 2, f"{name}_n")) for name in TREE_INPUTS]
    return (
        Tensor("tokens", "int32", ("T",)),
        Tensor("positions", "int32", ("T",)),
        Tensor("slot_mapping", "int32", (groups, "T")),
        Tensor("kv_lengths", "int32", (groups, "B")),
        Tensor("query_starts", "int32", ("B+1",)),
        Tensor("block_tables", "int32", (groups, "B", "P")),
        Tensor("logit_rows", "int32", ("R",)),
        Tensor("block_size", "int32", (1,)),
        *(lower_adapters.STEP_INPUTS if adapters else ()),
        *(copies if tree else ()),
        *([Tensor(FEATURES, "float32", ("T", features))] if features else ()),
    )


def pool_tensors(index: int, layer: LayerKV) -> tuple[Tensor, Tensor]:
    """A layer's K and V pool (`optc.backends.tvm.kv_layout`)."""
    tiles, heads, kind = f"S{layer.group}", layer.kv_heads, POOL_TYPES[layer.dtype]
    k_name, v_name = pool_names(index)
    return (
        Tensor(k_name, kind.element, (tiles, heads, kind.width(layer.key_dim))),
        Tensor(v_name, kind.element, (tiles, heads, kind.width(layer.value_dim))),
    )


def _copy_function(group: int, entry: KVGroup, layers: Sequence[LayerKV]) -> Function:
    """``copy_kv_<group>(src_slots, dst_slots, pools of the group's layers…)``."""
    slots = (Tensor("src_slots", "int32", ("n",)), Tensor("dst_slots", "int32", ("n",)))
    pools: list[Tensor] = []
    calls = []
    for index in entry.layers:
        pair = pool_tensors(index, layers[index])
        pools += pair
        config = kv_config(layers[index])
        names = (slots[0].name, slots[1].name)
        calls.append(Call("copy_kv", config, names, (), tuple(t.name for t in pair)))
    return Function(f"copy_kv_{group}", (*slots, *pools), tuple(calls), slots[0].name)


def _spec(kv: KVPools, vocab_size: int, options: BuildOptions) -> StepInterface:
    return StepInterface(
        vocab_size=vocab_size,
        max_context=options.max_context,
        max_rows=options.max_rows,
        max_sequences=options.max_sequences,
        max_logit_rows=options.max_logit_rows,
        block_multiple=max(TILE, *(group.state_slots for group in kv.groups)),
        batch_invariant=True,
        groups=kv.groups,
        layers=kv.layers,
    )
