"""The engine's function ``sample``: one kernel over the logits of the last step."""

from __future__ import annotations

from optc.backends.tvm.program import Call, Function, Tensor
from optc.runtime.sampling.sample_batch import FIELDS

#: Vocabularies from here on are left to NumPy: sums of masses would not fit into an int64.
VOCAB_LIMIT = 1 << 19


def sample_function(vocab: int) -> Function:
    """``sample(logits, records as integers, as numbers, the rest of a SampleBatch, results…)``."""
    words = -(-vocab // 32)
    inputs = (
        Tensor("logits", "float32", ("R", vocab)),
        Tensor("integers", "int64", ("n", len(FIELDS))),
        Tensor("numbers", "float64", ("n", len(FIELDS))),
        Tensor("tokens", "int32", ("t",)),
        Tensor("bias_ids", "int32", ("b",)),
        Tensor("biases", "float32", ("b",)),
        Tensor("masks", "uint32", ("m", words)),
    )
    results = (
        Tensor("drawn", "int32", ("n",)),
        Tensor("best", "int32", ("n",)),
        Tensor("drawn_logprobs", "float64", ("n",)),
        Tensor("top_ids", "int32", ("n", "k")),
        Tensor("top_logprobs", "float64", ("n", "k")),
    )
    names = (tuple(t.name for t in tensors) for tensors in (inputs, results))
    given, written = names
    call = Call("sampling", {"vocab": vocab}, given, (), written)
    return Function("sample", (*inputs, *results), (call,), "logits")
