"""The tensors of a checkpoint of any kind as the parameters of the model's class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from optc.errors import InputError
from optc.importer.conversion.checkpoint import convert_checkpoint
from optc.importer.conversion.tensor import Tensor
from optc.importer.gguf.config import ARCHITECTURE, unread_keys
from optc.importer.gguf.file import SUFFIX, metadata_of, open_gguf
from optc.importer.gguf.parameters import FACTORS, gguf_parameters, rotary_factors
from optc.importer.skeleton import Skeleton

#: How names of buffers of rotary frequencies end.
_FREQUENCIES = "inv_freq"


def as_parameters(
    files: Sequence[Path], checkpoint: Mapping[str, Tensor], skeleton: Skeleton
) -> tuple[Mapping[str, Tensor], Skeleton, list[str]]:
    """The tensors by the names of the class's parameters.

    Args:
        files: Of the checkpoint.
        checkpoint: Its tensors by their names there.
        skeleton: Of the class.

    Returns:
        The tensors; those that the class has no parameter for by their own names. The skeleton,
        with the rotary frequencies that the checkpoint states. And what the user should know.

    Raises:
        InputError, UnsupportedError: As `convert_checkpoint` and `gguf_parameters`.
    """
    conversion = skeleton.conversion
    if conversion is None:
        return checkpoint, skeleton, []
    if files[0].suffix != SUFFIX:
        return convert_checkpoint(checkpoint, conversion), skeleton, []
    metadata = metadata_of(open_gguf(files[0]))
    unread = unread_keys(metadata)
    warnings = []
    if unread:
        warnings.append(
            f"{len(unread)} settings of the GGUF file have no place in transformers' config: "
            + ", ".join(unread)
        )
    found = gguf_parameters(checkpoint, conversion.model, str(metadata[ARCHITECTURE]))
    found.pop(FACTORS, None)
    return found, _scaled(skeleton, checkpoint), warnings


def _scaled(skeleton: Skeleton, checkpoint: Mapping[str, Tensor]) -> Skeleton:
    """The skeleton with rotary frequencies divided by the factors of the file, if it has some."""
    factors = rotary_factors(checkpoint)
    if factors is None:
        return skeleton
    buffers = dict(skeleton.buffers)
    for name, values in buffers.items():
        if name.endswith(_FREQUENCIES):
            if values.shape != factors.shape:
                raise InputError(
                    f"{len(factors)} factors of rotary frequencies, of which the model has "
                    f"{len(values)}",
                    where=checkpoint[FACTORS].where,
                    hint="the file is damaged",
                )
            buffers[name] = (values / factors).astype(np.float32)
    return replace(skeleton, buffers=buffers)
