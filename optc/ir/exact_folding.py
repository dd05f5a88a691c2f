"""`fold_exactly`: what is constant becomes a constant, by rules of onnxscript that are exact."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common as cleaning
from onnxscript import rewriter
from onnxscript.optimizer import fold_constants_ir
from onnxscript.rewriter.rules import common as rules

from optc.system.logs.quiet import quiet

#: Exact. Those of onnxscript's default that leave out sums with 0 and products with 1 are not: they
#: take a constant below 1e-8 for 0, and a logarithm behind it then gets one. Nor are those that
#: make one Clip of two, or of one and a Relu: of ranges with nothing in common the later counts.
_RULES = (
    rules.dropout_inference_rule,
    rules.two_reshapes_matmul_reshape_rule,
    rules.one_reshape_matmul_reshape_rule,
    rules.cast_constant_of_shape_rule,
    rules.cast_constant_of_shape_without_value_rule,
    rules.collapse_slice_rule,
    rules.collapse_slice2_rule,
    rules.materialize_reshape_shape_rule,
    rules.min_min_rule,
    rules.max_max_rule,
    rules.min_max_rule,
    rules.max_min_rule,
    rules.successive_relu_rule,
    rules.no_op_cast_rule,
    rules.no_op_expand_rule,
    rules.no_op_transpose_rule,
    rules.transpose_transpose_rule,
    rules.reshape_reshape_rule,
    rules.squeeze_reshape_1d_rule,
    rules.unsqueeze_unsqueeze_rule,
    rules.flatten_to_reshape_rule,
    rules.slice_split_rule,
    rules.normalize_pad_format_conv_rule,
    rules.fuse_pad_into_conv_rule,
    rules.remove_optional_bias_from_conv_rule,
    rules.remove_optional_bias_from_conv_transpose_rule,
    rules.remove_optional_bias_from_gemm_rule,
)
#: What one round makes constant, the next may fold.
_ROUNDS = 2


def fold_exactly(model: ir.Model) -> None:
    """Fold constants of ``model`` in place, apply the rules, and take out what nothing reads.

    onnxscript's own optimizer, which PyTorch's exporter runs too, is this with inexact rules.
    """
    with quiet():  # its notes about what it does not fold
        _fold(model)


def _fold(model: ir.Model) -> None:
    cleaning.InlinePass()(model)
    for _ in range(_ROUNDS):
        fold_constants_ir(model)
        rewriter.RewriteRuleSet(_RULES).apply_to_model(model)
        _keep_constants(model)
        cleaning.RemoveUnusedNodesPass()(model)
    for one in (
        cleaning.RemoveUnusedFunctionsPass(),  # type: ignore[no-untyped-call]
        cleaning.RemoveUnusedOpsetsPass(),
        cleaning.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        cleaning.LiftSubgraphInitializersToMainGraphPass(),
        cleaning.DeduplicateInitializersPass(),
        cleaning.CommonSubexpressionEliminationPass(),
        cleaning.OutputFixPass(),
        cleaning.NameFixPass(),
    ):
        one(model)


def _keep_constants(model: ir.Model) -> None:
    """Make constants that a rule made initializers again where another of the same name, as a rule
    calls them by what it replaces, has taken their place."""
    own = model.graph.initializers
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for value in node.inputs:
            if value is None or value.const_value is None or not _is_free(value):
                continue
            first, number = str(value.name), 2
            while value.name in own:
                value.name, number = f"{first}_{number}", number + 1
            own[str(value.name)] = value


def _is_free(value: ir.Value) -> bool:
    """True for what no node computes, and no graph has."""
    return value.producer() is None and value.graph is None and not value.is_graph_input()
