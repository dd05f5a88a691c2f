"""Operators that the dense form does not have, by the bodies that say what they mean.

A pass measures what its own operators cost before it puts them in; those of another distribution
are known by their bodies alone. ONNX Runtime runs either, one node at a time.
"""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch import Tensor

from optc.proof.reference.execution.node import Attributes, Function, Operands, given
from optc.proof.reference.execution.program import tensor_of
from optc.proof.reference.partition import is_constant
from optc.proof.reference.submodel import extract, open_session, run_session


def body_runner(model: ir.Model, node: ir.Node, threads: int) -> Function:
    """A function that computes ``node`` in ONNX Runtime, on the CPU wherever its operands are.

    Args:
        model: The model that has the node, and the bodies of its functions.
        node: Its constant operands belong to it.
        threads: Threads of ONNX Runtime.
    """
    inputs = [v for v in dict.fromkeys(node.inputs) if v is not None and not is_constant(v)]
    part = extract(model, [node], inputs, list(node.outputs))
    session, fixed = open_session(part.model, threads), part.feeds()
    places = {value.name or "": list(node.inputs).index(value) for value in inputs}

    def compute(operands: Operands, attributes: Attributes) -> tuple[Tensor, ...]:
        tensors = {name: given(operands, place) for name, place in places.items()}
        arrays = {name: one.contiguous().cpu().numpy() for name, one in tensors.items()}
        device = next((one.device for one in tensors.values()), torch.device("cpu"))
        results = run_session(session, fixed | arrays)
        return tuple(tensor_of(array).to(device) for array in results)

    return compute
