"""Arguments of the function that puts the states of an encoder into pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.loaded.input_memory import ALIGNMENT, aligned
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
    return [*arrays, *map(_readable, states)]


def _readable(state: Float32) -> npt.NDArray[Any]:
    """The state itself if kernels can read it where it is, else a copy."""
    flags = state.flags
    if flags.c_contiguous and flags.writeable and not state.ctypes.data % ALIGNMENT:
        return state
    copy = aligned(state.size).view(np.float32).reshape(state.shape)
    copy[:] = state
    return copy
