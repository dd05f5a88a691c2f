"""Instruments around passes: IR dumps. They see the model after each pass and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.pipeline.record import PassRecord

#: Called with what a pass did and the model after it.
Instrument = Callable[[PassRecord, ir.Model], None]


def model_text(model: ir.Model) -> str:
    """The model as ONNX text without the values of its weights."""
    return ir.to_onnx_text(model, exclude_initializers=True)


def dump_to(folder: Path) -> Instrument:
    """Write ``NN-name.onnx.txt`` into ``folder`` after each pass.

    Raises (when called):
        InputError: The folder cannot be written.
    """

    def dump(record: PassRecord, model: ir.Model) -> None:
        path = folder / f"{record.index:02}-{record.name}.onnx.txt"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(model_text(model), encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"cannot write the IR dump: {error.strerror}", where=str(path)
            ) from error

    return dump
