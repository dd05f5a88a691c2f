"""Values of a model that float16 does not hold, by layer, before an engine computes in it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.linear import linear_of
from optc.proof.reference.activation_ranges import RangeObserver
from optc.proof.reference.blockwise import BlockwiseReference
from optc.runtime.executable.executable import Int32

#: The largest finite float16.
LARGEST = 65504.0
#: Tokens that are run, and layers that a message names.
WINDOWS = 1
MOST_NAMED = 3


def check_float16(
    reference: ir.Model, windows: Int32, engines: Sequence[str], threads: int
) -> None:
    """Check that every value of the decoder layers lies within float16 on a window of text.

    Sums inside of norms, softmax and matmuls are no values of the graph: engines keep those in
    float32.

    Args:
        reference: The model in dense form; it runs in float32, layer by layer.
        windows: [W, S] token ids, of which the first is run.
        engines: Names of those that compute in float16.
        threads: Threads of ONNX Runtime.

    Raises:
        UnsupportedError: Values exceed float16; the layers are named, the largest first.
    """
    run = BlockwiseReference(reference, threads)
    try:
        blocks = run.parts.blocks
        layer = {
            v: index for index, b in enumerate(blocks) for node in b.nodes for v in node.outputs
        }
        floats = (value for value in layer if value.dtype in (None, ir.DataType.FLOAT))
        observer = RangeObserver([blocks[0].source, *floats])
        run.run(windows[:WINDOWS], [observer])
    finally:
        run.close()
    beyond = {value: size for value, size in observer.ranges.items() if not size <= LARGEST}
    if not beyond:
        return
    worst = sorted(beyond, key=lambda value: -beyond[value])
    named = "; ".join(_place(v, layer.get(v), beyond[v]) for v in worst[:MOST_NAMED])
    more = f" and {len(worst) - MOST_NAMED} more" if len(worst) > MOST_NAMED else ""
    raise UnsupportedError(
        f"values of the model exceed float16, whose largest is {LARGEST:g}: {named}{more}",
        where=f"engine {', '.join(engines)}",
        hint="use a recipe that computes in bfloat16 (bf16-fused) or leave the engine out",
    )


def _place(value: ir.Value, layer: int | None, size: float) -> str:
    """A value as people know it: by its weight, where a linear layer gives it."""
    linear, producer = linear_of(value), value.producer()
    name = value.name if producer is None else producer.name or producer.op_type
    what = f"the result of {linear.name if linear is not None else name}"
    where = "the embedding" if layer is None else f"layer {layer}"
    return f"{what} ({where}) reaches {size:.3g}"
