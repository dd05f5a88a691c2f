"""The lowering as data: calls, shapes, shared weights and refusals; nothing here needs TVM."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from optc.backend import NATIVE, SharedWeights, Support
from optc.backends.tvm import BACKEND, runtime_libs
from optc.backends.tvm.lowering.lower_model import Lowered, lower_model
from optc.backends.tvm.program import Program
from optc.errors import InputError, UnsupportedError
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target, parse_target
from tests.artifact.toy import toy_engine
from tests.backends.tvm.engine_driver import (
    BF16,
    FUSED,
    INT4,
    INT4_TWO_LEVEL,
    INT8,
    OPTIONS,
    SHAPE,
)
from tests.backends.tvm.sparse.sparse_models import SPARSE, UNTIED, pruned_model
from tests.support.families import model_after
from tests.support.models import Dense, dense_model

V3 = parse_target("x86-64-v3")


def _lower(shape: Dense, pipeline: str) -> Lowered:
    return lower_model(model_after(pipeline, shape), V3, OPTIONS)


def _kernels(lowered: Lowered) -> list[str]:
    return [call.kernel for call in lowered.program.functions[0].calls]


def test_int8_layers_are_seven_calls() -> None:
    kernels = _kernels(_lower(SHAPE, INT8))
    assert kernels == [
        "quantized_embedding",
        "relax.astype",
        "relax.expand_dims",
        "relax.multiply",
        "relax.cos",
        "relax.sin",
        "rms_norm",
        *[
            "int_matmul",
            "rotary_kv",
            "paged_attention",
            "quantize",
            "int_matmul",
            "rms_norm",
            "int_matmul",
            "gated_activation",
            "int_matmul",
            "rms_norm",
        ],
        *[
            "int_matmul",
            "rotary_kv",
            "paged_attention",
            "gather_rows",
            "quantize",
            "int_matmul",
            "gather_rows",
            "rms_norm",
            "int_matmul",
            "gated_activation",
            "int_matmul",
        ],
        "elementwise",
        "rms_norm",
        "int_matmul",
        "elementwise",
    ]


def test_unfused_and_unquantized_models_lower_too() -> None:
    shape = replace(SHAPE, qkv_bias=True, qk_norm=True, activation="gelu_tanh", post_norms=True)
    lowered = _lower(shape, "kv-cache")
    kernels = _kernels(lowered)
    assert kernels.count("write_kv") == kernels.count("paged_attention") == 2
    assert kernels.count("head_rms_norm") == kernels.count("rotary") == 4
    biased = [c for c in lowered.program.functions[0].calls if c.config.get("bias")]
    assert [c.kernel for c in biased] == ["float_matmul"] * 6


def test_layers_share_their_configurations() -> None:
    def configs(layers: int) -> set[str]:
        shape = replace(SHAPE, windows=(0,) * layers)
        calls = _lower(shape, INT4).program.functions[0].calls
        return {f"{c.kernel} {c.config}" for c in calls}

    assert configs(2) == configs(5)


def test_a_tied_embedding_reads_the_packed_head() -> None:
    lowered = _lower(SHAPE, INT8)
    calls = lowered.program.functions[0].calls
    head, lookup = calls[-2], calls[0]
    assert head.inputs[3:5] == lookup.inputs[1:3]
    # per layer four matmuls and the two norm scales, then head, last norm and inverse frequencies
    assert len(lowered.weights) == 2 * 6 + 3


@pytest.mark.parametrize("bits", [5, 3, 2])
def test_few_bits_with_integer_scales_are_packed_as_such(bits: int) -> None:
    """Layers, head, and the lookup that shares the head's weight."""
    text = INT4_TWO_LEVEL.replace("bits=4", f"bits={bits}").replace("_bits=6", f"_bits={bits}")
    lowered = lower_model(model_after(text, SHAPE), parse_target("x86-64-v3"), OPTIONS)
    calls = lowered.program.functions[0].calls
    matmuls = [call for call in calls if call.kernel == "two_level_matmul"]
    assert [call.config["bits"] for call in (calls[0], *matmuls)] == [bits] * 10
    weights = {tensor.name: tensor for tensor in lowered.program.functions[0].arguments}
    assert weights[matmuls[-1].inputs[3]].shape == (2, 2 * bits, 64, 4)


def test_integer_scales_have_kernels_on_cpus_and_are_int8_on_cuda() -> None:
    model = model_after(INT4_TWO_LEVEL, SHAPE)
    cpu, cuda = (lower_model(model, parse_target(t), OPTIONS) for t in ("x86-64-v3", "sm_80"))
    calls = [lowered.program.functions[0].calls for lowered in (cpu, cuda)]
    assert [c.kernel for c in calls[0]].count("two_level_matmul") == 9
    head = {"n": 128, "k": 64, "bits": 6, "group_size": 32, "bias": False}
    assert calls[0][-2].config == head
    assert {c.config["bits"] for c in calls[0][:-2] if c.kernel == "two_level_matmul"} == {4}
    assert calls[0][0].config["two_level"]
    weights = {t.name: t for t in cpu.program.functions[0].arguments}
    packed = [weights[name] for name in calls[0][-2].inputs[3:]]
    assert [t.shape for t in packed] == [(2, 12, 64, 4), (2, 2, 2, 64), (2, 1, 64)]
    assert [t.dtype for t in packed] == ["uint8", "uint8", "float32"]
    int8 = lower_model(model_after(INT8, SHAPE), parse_target("sm_80"), OPTIONS)
    assert [c.config for c in calls[1]] == [c.config for c in int8.program.functions[0].calls]


def test_weights_with_many_zeros_are_sparse_where_the_target_has_kernels() -> None:
    sparse, dense = (lower_model(pruned_model(INT8), t, OPTIONS) for t in (SPARSE, V3))
    calls = [lowered.program.functions[0].calls for lowered in (sparse, dense)]
    matmuls = [
        [c for c in of if c.kernel == kernel]
        for of, kernel in zip(calls, ("sparse_matmul", "int_matmul"), strict=True)
    ]
    assert [len(found) for found in matmuls] == [9, 9]
    assert matmuls[0][-1].config == {"n": 128, "k": 64, "bias": False}
    # layers share their kernels, whatever the number of their values
    assert len({c.key for c in matmuls[0]}) == len({c.key for c in matmuls[1]})
    arguments = {t.name: t for t in sparse.program.functions[0].arguments}
    packed = [arguments[name] for name in matmuls[0][-1].inputs[3:]]
    values = round((1 - sparse.sparse.stored[packed[0].name.removesuffix(".mask")]) * 128 * 64)
    assert [t.shape for t in packed] == [(2, 16, 4), (2, 1, 4), (values + 64,), (2, 1, 64)]
    assert [t.dtype for t in packed] == ["uint64", "int64", "uint8", "float32"]
    assert sparse.sparse.lines() == ()
    assert dense.sparse.lines()[0].endswith("engines for x86-64-v3 have no sparse kernels")


def test_tokens_are_looked_up_in_a_sparse_head() -> None:
    shape = replace(UNTIED, tied=True)
    lowered = lower_model(pruned_model(INT8, shape), SPARSE, OPTIONS)
    lookup, *_, head, _ = lowered.program.functions[0].calls
    assert (lookup.kernel, head.kernel) == ("sparse_embedding", "sparse_matmul")
    assert lookup.config == {"vocab": 128, "width": 64}
    assert lookup.inputs[1:] == head.inputs[3:]
    assert len(lowered.sparse.stored) == 9


def test_engines_that_share_weights_store_them_as_all_can_read_them() -> None:
    model = pruned_model(INT8)
    sparse = lower_model(model, SPARSE, OPTIONS)
    dense = lower_model(model, SPARSE, replace(OPTIONS, readers=(V3, parse_target("sm_80"))))
    assert not dense.sparse.stored
    (line,) = dense.sparse.lines()
    assert line.endswith("engines for x86-64-v3, cuda:sm_80 have no sparse kernels")
    for first in (sparse, dense):
        names = [{"name": t.name} for weight in first.weights for t in weight.tensors]
        shared = SharedWeights("../first", {"weights": names})
        second = lower_model(model, SPARSE, replace(OPTIONS, shared=shared))
        assert [w.tensors for w in second.weights] == [w.tensors for w in first.weights]


def test_sparse_bfloat16_weights_are_named() -> None:
    lowered = lower_model(pruned_model(BF16), SPARSE, OPTIONS)
    (line,) = lowered.sparse.lines()
    assert line.startswith("9 weights with ")
    assert line.endswith("are stored dense: there is no sparse kernel for bfloat16")


def test_softcap_of_the_logits_is_one_call() -> None:
    call = _lower(SHAPE, FUSED).program.functions[0].calls[-1]
    assert call.config == {"operation": "softcap", "width": 128, "constant": 6.0}


def test_a_tied_bfloat16_table_is_stored_once() -> None:
    lowered = _lower(SHAPE, BF16)
    lookup = lowered.program.functions[0].calls[0]
    assert lookup.config == {"vocab": 128, "width": 64, "dtype": "bfloat16", "packed": True}
    vocabulary = [w.tensors[0] for w in lowered.weights if w.tensors[0].name.startswith("head")]
    assert [(t.dtype, t.shape) for t in vocabulary] == [("uint16", (2, 32, 64, 2))]
    assert not any(t.name.startswith("embed") for w in lowered.weights for t in w.tensors)


def test_an_untied_bfloat16_table_is_looked_up_by_rows() -> None:
    lowered = _lower(replace(SHAPE, tied=False), BF16)
    lookup = lowered.program.functions[0].calls[0]
    assert lookup.config == {"vocab": 128, "width": 64, "dtype": "bfloat16"}
    (table,) = [w.tensors[0] for w in lowered.weights if w.tensors[0].name.startswith("embed")]
    assert (table.dtype, table.shape) == ("uint16", (128, 64))


def test_engine_limits_and_kv_are_stated() -> None:
    lowered = _lower(SHAPE, BF16)
    spec = lowered.spec
    assert (spec.vocab_size, spec.max_context, spec.max_rows) == (128, 256, 96)
    assert [group.window for group in spec.groups] == [0, 24]
    assert [layer.group for layer in spec.layers] == [0, 1]
    assert spec.block_multiple == 16
    assert spec.batch_invariant
    assert lowered.program.bounds == {"T": 96, "B": 8, "R": 96, "H": 8}


def test_programs_survive_json() -> None:
    program = _lower(SHAPE, INT4).program
    text = program.to_json()
    assert Program.from_json(text) == program
    assert _lower(SHAPE, INT4).program.to_json() == text


def _append(model: ir.Model, op_type: str, domain: str = "", **attributes: int) -> None:
    """Put a node of one operand between the logits and the output."""
    graph = model.graph
    logits = graph.outputs[0]
    node = ir.Node(
        domain,
        op_type,
        [logits],
        ir.convenience.convert_attributes(attributes),
        name=f"bad_{op_type}",
    )
    graph.append(node)
    graph.outputs[0] = node.outputs[0]


def test_all_unsupported_nodes_are_listed_at_once() -> None:
    model = model_after(FUSED, SHAPE)
    first = next(n for n in model.graph if n.op_type == "GatedActivation")
    first.attributes["activation"] = ir.AttrString("activation", "swish2")
    _append(model, "TopK")
    with pytest.raises(UnsupportedError) as caught:
        lower_model(model, V3, OPTIONS)
    assert "activation 'swish2' has no kernel" in caught.value.message
    # the node behind it hangs on the first failure, which is named; it is not blamed itself
    assert caught.value.message.startswith("1 nodes cannot be lowered")

    model = model_after(FUSED, SHAPE)
    _append(model, "TopK")
    with pytest.raises(UnsupportedError, match=r"bad_TopK \(TopK\): operator TopK has no kernel"):
        lower_model(model, V3, OPTIONS)


def test_two_independent_failures_are_both_listed() -> None:
    model = model_after(FUSED, SHAPE)
    graph = model.graph
    tokens = graph.inputs[0]
    for name in ("one", "two"):
        graph.append(ir.Node("", "NonZero", [tokens], name=name))
    with pytest.raises(UnsupportedError) as caught:
        lower_model(model, V3, OPTIONS)
    assert "one (NonZero)" in caught.value.message
    assert "two (NonZero)" in caught.value.message


@pytest.mark.parametrize(
    ("head_dim", "reason"), [(12, "key_dim 12 is not a multiple of 8"), (16, "")]
)
def test_head_dimensions_are_checked(head_dim: int, reason: str) -> None:
    shape = replace(SHAPE, head_dim=head_dim, rotary_dim=head_dim)
    if not reason:
        assert _lower(shape, FUSED).program.functions
        return
    with pytest.raises(UnsupportedError, match=reason):
        _lower(shape, FUSED)


def test_attention_takes_what_heads_have_of_their_own() -> None:
    shape = replace(SHAPE, sinks=True, alibi=True, chunks=(16, 0))
    calls = [
        c for c in _lower(shape, FUSED).program.functions[0].calls if c.kernel == "paged_attention"
    ]
    kinds = [{name: c.config.get(name) for name in ("chunk", "sinks", "slopes")} for c in calls]
    assert kinds == [
        {"chunk": 16, "sinks": True, "slopes": True},
        {"chunk": None, "sinks": True, "slopes": True},
    ]
    assert [c.inputs[-3] for c in calls] == ["block_size"] * 2
    plain = _lower(SHAPE, FUSED).program.functions[0].calls
    assert all("sinks" not in c.config for c in plain)


def test_operands_of_heads_are_one_of_each() -> None:
    model = model_after(FUSED, replace(SHAPE, sinks=True))
    sinks = model.graph.initializers["0.sinks"]
    sinks.const_value, sinks.shape = ir.tensor(np.zeros(3, np.float32)), ir.Shape([3])
    with pytest.raises(UnsupportedError, match=r"0.sinks is float32 \[3\], not one of each head"):
        lower_model(model, V3, OPTIONS)


def test_dense_models_are_refused() -> None:
    with pytest.raises(InputError, match="is not the ragged step") as caught:
        lower_model(dense_model(SHAPE), V3, OPTIONS)
    assert "a pass that leads to it" in caught.value.hint


def test_supports_answers_for_each_node() -> None:
    model = model_after(INT4, SHAPE)
    assert {BACKEND.supports(node, V3) for node in model.graph} == {NATIVE}
    matmul = next(n for n in model.graph if n.op_type == "QuantizedMatMul")
    matmul.attributes["group_size"] = ir.AttrInt64("group_size", 48)
    assert BACKEND.supports(matmul, V3) == Support(
        "unsupported", "no kernel for 4 bits in groups of 48"
    )
    softmax = ir.Node("", "Softmax", [matmul.outputs[0]])
    assert BACKEND.supports(softmax, V3) == Support("unsupported", "operator Softmax has no kernel")
    ours = ir.Node("optc", "Attention", [matmul.outputs[0]])
    assert BACKEND.supports(ours, V3) == Support(
        "unsupported", "operator optc::Attention has no kernel"
    )
    old = Target("x86-64-v2", "cpu", ())
    assert "the CPU kernels need avx2" in BACKEND.supports(matmul, old).reason


def test_the_machine_and_the_release_of_the_runtime_decide_what_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = toy_engine(target=V3)
    engine.requires["apache-tvm-ffi"] = "0.1.15"
    monkeypatch.setattr(runtime_libs, "ffi_version", lambda: "0.1.15.post2")
    assert BACKEND.can_load(engine, Machine(frozenset(V3.features))) == ""
    assert "it needs avx2, f16c, fma" in BACKEND.can_load(engine, Machine(frozenset()))
    monkeypatch.setattr(runtime_libs, "ffi_version", lambda: "0.2.0")
    assert BACKEND.can_load(engine, Machine(frozenset(V3.features))) == (
        "the engine needs apache-tvm-ffi 0.1.15, installed is 0.2.0: "
        "pip install 'apache-tvm-ffi==0.1.15.*'"
    )


def test_constants_fold_into_the_calls() -> None:
    """Scaling rows by a constant (as Gemma scales embeddings) needs no weight."""
    model = model_after(FUSED, replace(SHAPE, logit_softcap=0.0))
    graph = model.graph
    scale = ir.Value(name="scale", const_value=ir.tensor(np.float32(3.0)))
    graph.register_initializer(scale)
    node = ir.Node("", "Mul", [graph.outputs[0], scale])
    graph.append(node)
    graph.outputs[0] = node.outputs[0]
    call = lower_model(model, V3, OPTIONS).program.functions[0].calls[-1]
    assert call.config == {"operation": "scale", "width": 128, "constant": 3.0}


def test_lowering_does_not_load_the_compiler() -> None:
    import subprocess

    script = (
        "import sys\n"
        "from tests.backends.tvm.lowering.test_walk import _lower, SHAPE, INT8\n"
        "_lower(SHAPE, INT8)\n"
        "print([m for m in ('tvm', 'tvm_ffi', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_convolutions_read_and_write_their_pools() -> None:
    shape = replace(SHAPE, windows=(0, 0), convolutions=(3, 0))
    lowered = _lower(shape, "kv-cache")
    calls = lowered.program.functions[0].calls
    (call,) = [call for call in calls if call.kernel == "causal_conv"]
    size = {"channels": SHAPE.hidden, "kernel": 3, "width": 8, "bias": False}
    assert call.config == {**size, "group": 1, "groups": 2}
    assert call.updated == ("k_pool.1", "v_pool.1")
    weights = {tensor.name: tensor for tensor in lowered.program.functions[0].arguments}
    assert weights[call.inputs[1]].shape == (3, SHAPE.hidden)
