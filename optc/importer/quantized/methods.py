"""The reader of each way of quantizing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optc.importer.conversion.tensor import Tensor
from optc.importer.quantized.bits_and_bytes import bitsandbytes_weights
from optc.importer.quantized.compressed import compressed_weights
from optc.importer.quantized.float_weights import fp8_weights, modelopt_weights, mxfp4_weights
from optc.importer.quantized.packed_integers import awq_weights, gptq_weights
from optc.importer.quantized.settings import method_of
from optc.importer.safetensors import StoredTensor

_Reader = Callable[[Mapping[str, StoredTensor], Mapping[str, Any]], dict[str, Tensor]]
_READERS: dict[str, _Reader] = {
    "awq": awq_weights,
    "bitsandbytes": bitsandbytes_weights,
    "compressed-tensors": compressed_weights,
    "fp8": fp8_weights,
    "gptq": gptq_weights,
    "modelopt": modelopt_weights,
    "mxfp4": mxfp4_weights,
}


def quantized_weights(
    tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights that the tensors of a checkpoint stand for, and its tensors of floats, by name.

    Args:
        tensors: Of all types, by name.
        settings: ``quantization_config`` of config.json, of a method that `check_method` takes.

    Raises:
        InputError: Tensors are missing, or do not fit.
        UnsupportedError: A variant of the method that is not read.
    """
    return _READERS[method_of(settings)](tensors, settings)
