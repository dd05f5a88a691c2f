"""The manifest's data that a load of an engine over packed rows reads, beside the interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from optc.backends.tvm.engine_data import CpuEngineData
from optc.errors import ArtifactError
from optc.runtime.executable.executable import LayerKV
from optc.runtime.executable.tensors_interface import TensorsInterface, TensorSpec
from optc.system.foreign.typed_json import NEWER, Count, Positive, typed

_WHERE = "tvm engine: data"


class Packed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packing of named tensors into rows.

    Attributes:
        ids: Input [batch, tokens] of token ids.
        mask: Input that is 1 where a token is no padding; empty: no token is padding.
        types: Input of types of tokens; empty: there is none.
        vocabulary: Ids are below it.
        type_count: Types are below it.
        position_count: Sequences have at most so many tokens; 0: as many as the interface says.
        by_token: Outputs with a row for each token; of others a sequence has one.
        max_rows: Most rows of a call of the engine.
        max_sequences: Most sequences of one.
        layers: Shapes of keys and values, each with pools of its own.
    """

    ids: str
    mask: str
    types: str
    vocabulary: Positive
    type_count: Count
    position_count: Count
    by_token: tuple[str, ...]
    max_rows: Positive
    max_sequences: Positive
    layers: tuple[LayerKV, ...]

    def check_interface(self, interface: TensorsInterface) -> None:
        """Check that its names are those of inputs and outputs, of the shapes that packing reads,
        and that the longest sequence fits a call.

        Raises:
            ValueError: Something does not fit.
        """
        inputs = {one.name: one for one in interface.inputs}
        for part, name in (("ids", self.ids), ("mask", self.mask), ("types", self.types)):
            if name or part == "ids":
                self._check_input(part, name, inputs)
        if len({self.ids, self.mask, self.types} - {""}) < 1 + bool(self.mask) + bool(self.types):
            raise ValueError("two of 'ids', 'mask' and 'types' are the same input")
        dims = inputs[self.ids].dims
        outputs = {one.name: one for one in interface.outputs}
        for name in self.by_token:
            if name not in outputs:
                raise ValueError(f"'by_token' names {name[:80]!r}, which is no output")
        for name, one in outputs.items():
            wanted = dims if name in self.by_token else dims[:1]
            if one.dims[: len(wanted)] != wanted:
                raise ValueError(f"the output {name[:80]!r} does not begin with {list(wanted)}")
        if self.types and not self.type_count:
            raise ValueError("there are no types for the input of types")
        size = dims[1]
        longest = interface.symbols[size].most if isinstance(size, str) else size
        if min(longest, self.position_count or longest) > self.max_rows:
            raise ValueError(f"sequences of {longest} tokens, in calls of {self.max_rows} rows")

    def _check_input(self, part: str, name: str, inputs: Mapping[str, TensorSpec]) -> None:
        if name not in inputs:
            raise ValueError(f"{part!r} names {name[:80]!r}, which is no input")
        dims = inputs[self.ids].dims if part != "ids" else inputs[name].dims
        if len(dims) != 2 or inputs[name].dims != dims:
            raise ValueError(f"the input {name[:80]!r} is not of [batch, tokens]")
        if not inputs[name].dtype.startswith("int"):
            raise ValueError(f"the input {name[:80]!r} is of {inputs[name].dtype}, not of integers")


class PackedEngineData(CpuEngineData, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a CPU engine over packed rows."""

    packed: Packed


def read_packed(data: Mapping[str, Any], interface: TensorsInterface) -> PackedEngineData:
    """The data that a build wrote.

    Args:
        data: Of the manifest.
        interface: Of the engine.

    Raises:
        ArtifactError: A key is missing, unknown, of another type or out of range, weights overlap,
            or it does not fit the interface.
    """
    found = typed(data, PackedEngineData, _WHERE)
    try:
        found.packed.check_interface(interface)
    except ValueError as error:
        raise ArtifactError(str(error), where=f"{_WHERE}: packed", hint=NEWER) from error
    return found
