"""Refusals before the long work: what will not fit on the disk or in ``--max-ram``."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from optc.artifact import ArtifactWriter
from optc.errors import InputError


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all weights of a model as the engine will store them, without padding."""
    values = model.graph.initializers.values()
    return sum(v.const_value.nbytes for v in values if v.const_value is not None)


def check_disk(model: ir.Model, writer: ArtifactWriter, output: Path) -> None:
    """Check that the weights fit where the artifact goes.

    Raises:
        InputError: They do not; says how much is needed and how much there is.
    """
    needed, free = weight_bytes(model), writer.free_bytes()
    if needed > free:
        raise InputError(
            f"cannot be written: the disk is full ({needed:,} bytes are needed, {free:,} are free)",
            where=str(output),
            hint="free space or name a writable folder with -o",
        )
