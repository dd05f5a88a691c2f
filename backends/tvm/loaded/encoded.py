"""Arguments of the function that puts the states of an encoder into pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.loaded.input_memory import aligned
from optc.errors import InputError
from optc.runtime.executable.executable import Float32, Int32, StepInterface


def encoded_arguments(
    spec: StepInterface, slots: Int32, states: Sequence[Float32]
) -> list[npt.NDArray[Any]]:
    """Slots [1, n], and keys and values of each layer [n, …], where kernels can read them.

    Raises:
        InputError: The engine attends to no encoder, or a shape does not fit.
    """
    if not spec.encoded:
        raise InputError("the engine attends to no encoder", where="write_encoded")
    layers = [spec.layers[index] for index in spec.groups[-1].layers]
    widths = [one.kv_heads * dim for one in layers for dim in (one.key_dim, one.value_dim)]
    wanted = [(slots.size, width) for width in widths]
    if [one.shape for one in states] != wanted:
        shapes = [list(one.shape) for one in states]
        raise InputError(
            f"states have the shapes {shapes}, not {list(map(list, wanted))}", where="write_encoded"
        )
    arrays: list[npt.NDArray[Any]] = [aligned(slots.size).reshape(1, -1)]
    arrays[0][0] = slots
    for one in states:
        copy = aligned(one.size).view(np.float32).reshape(one.shape)
        copy[:] = one
        arrays.append(copy)
    return arrays
