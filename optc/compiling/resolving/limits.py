"""Refusals before the long work: what will not fit on the disk or in ``--max-ram``."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import onnx_ir as ir

from optc.artifact.writer import ArtifactWriter
from optc.compiling.resolving.memory import tree_bytes
from optc.errors import InputError
from optc.importer.gguf.folder import is_gguf, making_bytes
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.weights import TILE_ELEMENTS
from optc.proof.gates.bisect.bisect import LOGIT_BYTES
from optc.proof.gates.bisect.model_run import PIECE_BYTES
from optc.proof.gates.weights_room import weights_room
from optc.proof.reference.blockwise import HIDDEN_BYTES
from optc.proof.reference.partition import partition
from optc.proof.reference.running.head import VOCAB_TILE
from optc.proof.reference.running.rows import widest
from optc.proof.reference.text import WINDOW_TOKENS, windows_for
from optc.system.hardware.target import usable_threads
from optc.system.units import byte_text

#: What the compiler's process takes, and a linker or assembler beside it: 150 to 195 MiB were
#: measured, of CPUs and CUDA.
COMPILER_BYTES = 195 << 20
#: A process that has imported a small model, PyTorch included (measured).
IMPORTED_BYTES = 290 << 20
#: ONNX Runtime, evaluation text, KV pools and the engine's own buffers (measured).
RUNTIME_BYTES = 60 << 20
#: Copies of a weight tile alive at once while it is read, quantized and packed.
_TILE_COPIES = 4
#: A layer's float32 weights, and a packed copy of them.
_LAYER_COPIES = 2.5
#: Tiles of the head alive at once: weights, their rows as read, logits of both models.
_HEAD_COPIES = 4


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all weights of a model as the engine will store them, without padding."""
    values = model.graph.initializers.values()
    return sum(v.const_value.nbytes for v in values if v.const_value is not None)


def weight_count(model: ir.Model) -> int:
    """Number of elements of all weights of a model."""
    values = model.graph.initializers.values()
    return sum(v.const_value.size for v in values if v.const_value is not None)


def check_disk(model: ir.Model, writer: ArtifactWriter, copies: int = 1) -> None:
    """Check that ``copies`` of the weights fit where the artifact goes.

    Raises:
        InputError: They do not; says how much is needed and how much there is.
    """
    needed, free = copies * weight_bytes(model), writer.free_bytes()
    if needed > free:
        raise InputError(
            f"cannot be written: the disk is full ({needed:,} bytes are needed, {free:,} are free)",
            where=str(writer.output),
            hint="free space or name a writable folder with -o",
        )


def check_passes(dense: ir.Model, passes: Iterable[Pass], limit: int) -> None:
    """Check that no pass is predicted to take memory beyond ``limit`` bytes; 0 is no limit.

    Args:
        dense: The model in dense form.
        passes: Those that are still to run.
        limit: ``--max-ram``.

    Raises:
        InputError: One is; says what is predicted.
    """
    if not limit:
        return
    present, pipeline = tree_bytes(os.getpid()), Pipeline(tuple(passes))
    for one, costs in zip(pipeline.passes, pipeline.costs(dense), strict=True):
        needed = present + max(costs.working, costs.reading)
        present += costs.left
        if needed > limit:
            raise InputError(
                f"pass {one.name} is predicted to need {needed:,} bytes of memory, "
                f"but {limit:,} are allowed",
                where="--max-ram",
                hint="allow more, or take a recipe without it",
            )


def reading_bytes(dense: ir.Model, passes: Iterable[Pass]) -> int:
    """The most bytes a pass takes to read the weights it leaves; ``dense`` is in dense form."""
    return max((one.reading for one in Pipeline(tuple(passes)).costs(dense)), default=0)


def check_start(model: str | Path, limit: int) -> None:
    """Check that ``limit`` bytes are enough to begin with; 0 is no limit.

    Args:
        model: As it was given.
        limit: ``--max-ram``.

    Raises:
        InputError: They are not; says what is needed at least.
    """
    path = Path(model)
    if not limit:
        return
    making = making_bytes(path) if is_gguf(path) else 0
    needed = max(making, IMPORTED_BYTES + COMPILER_BYTES)
    if needed > limit:
        raise InputError(
            f"every compile of this model needs {byte_text(needed)} of memory or more, but "
            f"{byte_text(limit)} are allowed",
            where="--max-ram",
            hint="allow more; 'optc plan' says how much a recipe is predicted to need",
        )


def predicted_bytes(
    reference: ir.Model,
    present_bytes: int,
    *,
    gated: bool,
    bisected: bool = False,
    read_bytes: int = 0,
    limit: int = 0,
) -> int:
    """Peak of anonymous and shared memory that the rest of a compile will reach.

    Args:
        reference: The model in dense form.
        present_bytes: What is taken now, with the model imported and its passes run.
        gated: Whether gates will be measured.
        bisected: Whether the model will be run after every pass.
        read_bytes: What passes say that reading their weights takes (`reading_bytes`).
        limit: ``--max-ram``, by which gates keep the whole model or a layer of it; 0 is none.

    Raises:
        UnsupportedError: Gates are wanted and the model cannot be cut into layers.
    """
    tile = min(TILE_ELEMENTS, _largest_weight(reference))
    pack = (usable_threads() + 1) * _TILE_COPIES * 4 * tile
    build = COMPILER_BYTES + pack + read_bytes
    bisection = _bisection_bytes(reference, read_bytes) if bisected else 0
    return present_bytes + max(build, _gate_bytes(reference, limit) if gated else 0, bisection)


def peak_bytes(
    dense: ir.Model, present_bytes: int, passes: Collection[Pass], *, gated: bool
) -> int:
    """`predicted_bytes` of a whole compile, its passes included; ``dense`` is in dense form."""
    running, present = 0, present_bytes
    costs = Pipeline(tuple(passes)).costs(dense)
    for one in costs:
        running = max(running, present + one.working)
        present += one.left
    read = max((one.reading for one in costs), default=0)
    return max(running, predicted_bytes(dense, present, gated=gated, read_bytes=read))


def check_memory(
    reference: ir.Model,
    present_bytes: int,
    limit: int,
    *,
    gated: bool,
    bisected: bool = False,
    read_bytes: int = 0,
) -> int:
    """Check that a compile is predicted to stay within ``limit`` bytes, 0 being no limit; what is
    predicted.

    Raises:
        InputError: It is not; says what is predicted.
    """

    def needs(gated: bool) -> int:
        return predicted_bytes(
            reference,
            present_bytes,
            gated=gated,
            bisected=bisected,
            read_bytes=read_bytes,
            limit=limit,
        )

    needed = needs(gated)
    if 0 < limit < needed:
        hint = "allow more"
        if gated and needs(False) <= limit:
            hint += ", or leave the gates out with --no-gates"
        raise InputError(
            f"this compile is predicted to need {needed:,} bytes of memory, "
            f"but {limit:,} are allowed",
            where="--max-ram",
            hint=hint,
        )
    return needed


def _largest_weight(model: ir.Model) -> int:
    """Elements of the largest weight."""
    values = model.graph.initializers.values()
    return max((v.const_value.size for v in values if v.const_value is not None), default=0)


def _gate_bytes(model: ir.Model, limit: int) -> int:
    """The reference's working set: one layer, the hidden states before and after it, the head; and
    the whole model in float32, where it is kept open."""
    parts = partition(model)
    weights = [
        sum(v.const_value.size for v in _inputs(b.nodes) if v.const_value) for b in parts.blocks
    ]
    vocabulary, width = _shape(parts.embedding)
    columns = max(width, widest(parts.blocks))
    rows = WINDOW_TOKENS * windows_for(weight_count(model))
    hidden = min(HIDDEN_BYTES, 4 * rows * columns)
    head = 4 * min(VOCAB_TILE, vocabulary) * (width + WINDOW_TOKENS)
    layer = 4 * max(weights, default=0)
    whole = 4 * weight_count(model)
    kept = whole if whole <= weights_room(limit) else 0
    return int(RUNTIME_BYTES + kept + _LAYER_COPIES * layer + 2 * hidden + _HEAD_COPIES * head)


def _bisection_bytes(model: ir.Model, read_bytes: int) -> int:
    """A piece of the model as ONNX Runtime holds it, read from lazy weights, and logits."""
    piece = max(PIECE_BYTES, 4 * _largest_weight(model))
    return int(RUNTIME_BYTES + _LAYER_COPIES * piece + 2 * LOGIT_BYTES + read_bytes)


def _inputs(nodes: tuple[ir.Node, ...]) -> list[ir.Value]:
    """Distinct values that the nodes read."""
    return list({id(v): v for node in nodes for v in node.inputs if v is not None}.values())


def _shape(value: ir.Value) -> tuple[int, int]:
    rows, width = () if value.shape is None else value.shape.numpy()
    return rows, width
