"""Linear layers: what counts as one, and merging."""

from __future__ import annotations

import numpy as np
import pytest

from optc.ir.graph import width
from optc.ir.linear import (
    find_linear,
    find_linears,
    fixed_metadata,
    head_of,
    linear_of,
    mark_pruned,
    merge_linears,
    merged_name,
)
from optc.ir.sources import Source, sources_of
from tests.support.ir_text import f32, model_of


def test_the_bias_belongs_to_the_layer() -> None:
    for add in ("Add (t, b)", "Add (b, t)"):
        model = model_of(
            "g (float[S,4] x) => (float[S,6] y)",
            f"t = MatMul (x, w)\ny = {add}",
            {"w": f32(4, 6), "b": f32(6)},
        )
        linear = find_linear(model.graph[0])
        assert linear is not None
        assert linear.bias is not None
        assert linear.bias.name == "b"
        assert linear.output is model.graph.outputs[0]
        assert linear_of(model.graph.outputs[0]) == linear
        assert linear_of(model.graph[0].outputs[0]) is None
        np.testing.assert_array_equal(linear.weight.read_rows(0, 6), f32(4, 6).T)
        assert width(linear.matmul.outputs[0]) == 6


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ("t = MatMul (x, w)\ny = Add (t, x)", {"w": f32(4, 4)}),  # a residual
        ("t = MatMul (x, w)\nu = Add (t, b)\ny = Add (u, t)", {"w": f32(4, 4), "b": f32(4)}),
        ("t = MatMul (x, w)\ny = Add (t, b)", {"w": f32(4, 4), "b": f32(1)}),  # broadcast
    ],
)
def test_other_adds_are_no_bias(nodes: str, weights: dict[str, np.ndarray]) -> None:  # type: ignore[type-arg]
    linear = find_linear(model_of("g (float[S,4] x) => (float[S,4] y)", nodes, weights).graph[0])
    assert linear is not None
    assert linear.add is None


def test_matmul_of_two_computed_values_is_no_layer() -> None:
    model = model_of("g (float[4,4] x) => (float[4,4] y)", "y = MatMul (x, x)")
    assert find_linear(model.graph[0]) is None
    assert head_of(model) is None


def test_a_matrix_that_stays_as_it_is_makes_no_layer() -> None:
    model = model_of("g (float[4,4] x) => (float[4,4] y)", "y = MatMul (x, w)", {"w": f32(4, 4)})
    assert find_linear(model.graph[0]) is not None
    model.graph.initializers["w"].metadata_props.update(fixed_metadata())
    assert find_linear(model.graph[0]) is None


def test_the_head_is_found_through_a_softcap() -> None:
    model = model_of(
        "g (float[S,4] x) => (float[S,6] y)",
        "h = MatMul (x, w)\nt = MatMul (h, head)\na = Div (t, cap)\nb = Tanh (a)\ny = Mul (b, cap)",
        {"w": f32(4, 4), "head": f32(4, 6), "cap": np.array([3.0], np.float32)},
    )
    head = head_of(model)
    assert head is not None
    assert head.name == "head"


def test_merging_stacks_rows_and_remembers_sources() -> None:
    model = model_of(
        "g (float[S,4] x) => (float[S,2] a, float[S,3] c)",
        "a = MatMul (x, u)\nb = MatMul (x, v)\nc = Add (b, bias)",
        {"u": f32(4, 2), "v": f32(4, 3), "bias": f32(3)},
    )
    first, second = find_linear(model.graph[0]), find_linear(model.graph[1])
    assert first is not None
    assert second is not None
    nodes, result = merge_linears(model.graph, [first, second])
    assert [n.op_type for n in nodes] == ["MatMul", "Add"]
    assert result is nodes[-1].outputs[0]
    weight, bias = nodes[0].inputs[1], nodes[1].inputs[1]
    assert weight is not None
    assert weight.const_value is not None
    assert bias is not None
    assert bias.const_value is not None
    np.testing.assert_array_equal(weight.const_value.numpy(), np.hstack([f32(4, 2), f32(4, 3)]))
    np.testing.assert_array_equal(bias.const_value.numpy(), [0, 0, *f32(3)])
    assert sources_of(weight, 5) == (Source("u", 0, 2), Source("v", 2, 5))
    # merging what was merged lists the originals
    model.graph.insert_before(model.graph[0], nodes)
    again = find_linear(nodes[0])
    assert again is not None
    more, _ = merge_linears(model.graph, [first, again])
    merged = more[0].inputs[1]
    assert merged is not None
    assert sources_of(merged, 7) == (Source("u", 0, 2), Source("u", 2, 4), Source("v", 4, 7))


def test_a_merged_weight_is_pruned_if_one_of_its_parts_is() -> None:
    model = model_of(
        "g (float[S,4] x) => (float[S,2] a, float[S,3] b)",
        "a = MatMul (x, u)\nb = MatMul (x, v)",
        {"u": f32(4, 2), "v": f32(4, 3)},
    )
    first, second = find_linears(model)
    assert not first.pruned
    plain, _ = merge_linears(model.graph, [first, second])
    mark_pruned(second.initializer)
    assert [one.pruned for one in find_linears(model)] == [False, True]
    merged, _ = merge_linears(model.graph, [first, second])
    found = [find_linear(nodes[0]) for nodes in (plain, merged)]
    assert [one.pruned for one in found if one is not None] == [False, True]


def test_merged_names_state_what_is_shared_once() -> None:
    names = [f"layers.0.attn.{k}_proj.weight" for k in "qkv"]
    assert merged_name(names) == "layers.0.attn.q_proj+k_proj+v_proj.weight"
    assert merged_name(["a", "b"]) == "a+b"
    assert merged_name(["m.a.w", "m.b"]) == "m.a.w+b"
    assert merged_name(["m.w", "m.w"]) == "m.w+w"
