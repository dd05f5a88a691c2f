"""A loaded engine over packed rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from optc.backends.tvm.engine_files import WEIGHTS_FILE, check_files, code_files
from optc.backends.tvm.fingerprint import FINGERPRINT, check_tensors_fingerprint
from optc.backends.tvm.kv_layout import POOL_TYPES, pool_shapes
from optc.backends.tvm.loaded.loader import CPU_DEVICES, kernel_library, open_vm, start_runtime
from optc.backends.tvm.loaded.packing import (
    Array,
    calls_of,
    lengths_of,
    most_tiles,
    outputs_of,
    rows_of,
    shape_of,
)
from optc.backends.tvm.loaded.pools import pages
from optc.backends.tvm.loaded.thread_pool import OwnThreads
from optc.backends.tvm.packed_data import Packed, read_packed
from optc.backends.tvm.replay.recording import tensors_of
from optc.backends.tvm.weights.weights_file import WeightFiles
from optc.errors import EngineError
from optc.runtime.executable.tensors_interface import TensorsInterface


class PackedExecutable:
    """An engine of named tensors (`optc.runtime.executable.tensors.TensorsExecutable`) that
    computes no padding. Calls of several threads take turns.

    Args:
        ffi: The ``tvm_ffi`` package.
        step: The engine's function.
        interface: Its inputs and outputs.
        packed: How these become rows.
        weights: The mapped weights.
        names: Those of the step's arguments, in order.
        threads: What loops run on.
    """

    batch_invariant = True

    def __init__(
        self,
        ffi: ModuleType,
        step: Any,
        interface: TensorsInterface,
        packed: Packed,
        weights: WeightFiles,
        names: list[str],
        threads: OwnThreads,
    ) -> None:
        self._ffi, self._step, self._packed, self._threads = ffi, step, packed, threads
        self._names = [one.name for one in interface.outputs]
        self._empty = {
            one.name: tuple(d if isinstance(d, int) else 0 for d in one.dims)
            for one in interface.outputs
        }
        self._weights = weights
        tiles = most_tiles(packed)
        pools = [
            pages(shape, POOL_TYPES[layer.dtype].element)
            for layer in packed.layers
            for shape in pool_shapes(tiles, layer)
        ]
        self._fixed = [*(weights.array(name) for name in names), *pools]
        self._tensors = [ffi.from_dlpack(array) for array in self._fixed]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name; those with a row for each token have zeros where there is padding.

        Raises:
            RequestError: Padding lies elsewhere than behind the tokens of a row, a row is empty,
                or a number is outside of its table.
            EngineError: The engine is closed.
        """
        packed = self._packed
        lengths = lengths_of(inputs, packed)
        batch, tokens = shape_of(inputs, packed)
        if not batch:
            return {name: np.zeros(shape, np.float32) for name, shape in self._empty.items()}
        parts = list(calls_of(lengths, packed))
        found = [
            self._call(rows_of(inputs, packed, part, lengths).arguments(packed)) for part in parts
        ]
        return outputs_of(self._names, found, packed, (batch, tokens), lengths)

    def _call(self, arguments: list[Array]) -> list[Array]:
        given = [self._ffi.from_dlpack(array) for array in arguments]
        with self._threads.held():
            if not self._tensors:
                raise EngineError("it is closed", where="tvm engine", hint="load it again")
            results = tensors_of(self._step(*given, *self._tensors))
        # the results have memory of their own, which the arrays keep
        return [np.from_dlpack(one) for one in results]

    def close(self) -> None:
        """Release the pools and the mapped weights; the engine cannot be used afterwards."""
        with self._threads.held():
            self._tensors.clear()
            self._fixed.clear()
            self._weights.close()


def load_encoder(
    folder: Path, interface: TensorsInterface, data: dict[str, Any], threads: int
) -> PackedExecutable:
    """Load the engine that `optc.backends.tvm.compiling.build_encoder.build_encoder` wrote.

    Raises:
        UnavailableError: The CPU lacks features of the engine, or tvm_ffi is of another release.
        ArtifactError: A file is missing, truncated or cannot be opened, or the data or the weights
            are not those of the engine.
    """
    found = read_packed(data, interface)
    code = code_files()
    engine = folder / code.engine
    check_files(engine, *(folder / name for name in (WEIGHTS_FILE, *code.libraries)))
    ffi = start_runtime(folder, found, None)
    vm = open_vm(ffi, engine, CPU_DEVICES)
    library = kernel_library(ffi, engine, FINGERPRINT)
    check_tensors_fingerprint(ffi, library, interface, found)
    weights = WeightFiles(folder / WEIGHTS_FILE, folder / WEIGHTS_FILE, found.weights)
    names = [placed.name for placed in found.weights]
    own = OwnThreads(engine, threads)
    return PackedExecutable(ffi, vm["step"], interface, found.packed, weights, names, own)
