"""The manifest's data that a load of an engine over packed rows reads, beside the interface."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from optc.backends.tvm.engine_data import CpuEngineData
from optc.errors import ArtifactError
from optc.runtime.executable.executable import LayerKV
from optc.runtime.executable.tensors_interface import TensorsInterface, TensorSpec
from optc.system.foreign.typed_json import NEWER, Count, Positive, typed

_WHERE = "tvm engine: data"


class PackedPatches(Struct, frozen=True, forbid_unknown_fields=True):
    """Rows that are patches; as `optc.ir.forms.packed.Patches`.

    Attributes:
        input: Input f32[batch, channels, …].
        sizes: Of a patch along the axes behind the channels.
        tokens: Of each sequence.
        rate: Rows that are read for each token.
        lead: Rows of zeros before the patches of a sequence.
    """

    input: str
    sizes: tuple[Positive, ...]
    tokens: Positive
    rate: Positive
    lead: Count

    @property
    def rows(self) -> int:
        """Rows of a sequence that are read."""
        return self.rate * self.tokens

    def check_input(self, one: TensorSpec) -> None:
        """Check that patches fill the input, and its rows hold them.

        Raises:
            ValueError: They do not.
        """
        axes = one.dims[2:]
        fixed = [size for size in one.dims[1:] if isinstance(size, int) and size]
        if len(fixed) != len(one.dims) - 1 or len(axes) != len(self.sizes) or not axes:
            raise ValueError(f"the input {one.name[:80]!r} {list(one.dims)} has no such patches")
        pairs = list(zip(fixed[1:], self.sizes, strict=True))
        if any(size % part for size, part in pairs):
            raise ValueError(f"patches of {list(self.sizes)} do not fill {list(axes)}")
        if self.lead + math.prod(size // part for size, part in pairs) > self.rows:
            raise ValueError(f"a sequence has {self.rows} rows, and more patches")
        if one.dtype != "float32":
            raise ValueError(f"the input {one.name[:80]!r} is of {one.dtype}, not of float32")


class Packed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The packing of named tensors into rows.

    Attributes:
        ids: Input [batch, tokens] of token ids; empty where rows are patches.
        mask: Input that is 1 where a token is no padding; empty: no token is padding.
        types: Input of types of tokens; empty: there is none.
        vocabulary: Ids are below it.
        type_count: Types are below it.
        position_count: Sequences have at most so many tokens; 0: as many as the interface says.
        by_token: Outputs with a row for each token; of others a sequence has one.
        max_rows: Most rows of a call of the engine.
        max_sequences: Most sequences of one.
        layers: Shapes of keys and values, each with pools of its own.
        patches: Rows that are patches; None of texts.
        heads: By name, heads of outputs by token, which are [batch, heads, tokens, D].
    """

    ids: str
    mask: str
    types: str
    vocabulary: Count
    type_count: Count
    position_count: Count
    by_token: tuple[str, ...]
    max_rows: Positive
    max_sequences: Positive
    layers: tuple[LayerKV, ...]
    patches: PackedPatches | None = None
    heads: dict[str, Positive] = {}

    def check_interface(self, interface: TensorsInterface) -> None:
        """Check that its names are those of inputs and outputs, of the shapes that packing reads,
        and that the longest sequence fits a call.

        Raises:
            ValueError: Something does not fit.
        """
        inputs = {one.name: one for one in interface.inputs}
        lead, longest = self._of_patches(inputs) if self.patches else self._of_texts(interface)
        outputs = {one.name: one for one in interface.outputs}
        for name in (*self.by_token, *self.heads):
            if name not in outputs:
                raise ValueError(f"'by_token' names {name[:80]!r}, which is no output")
        for name, one in outputs.items():
            wanted = lead if name in self.by_token else lead[:1]
            if name in self.heads:
                wanted = (lead[0], self.heads[name], *lead[1:])
            if one.dims[: len(wanted)] != wanted:
                raise ValueError(f"the output {name[:80]!r} does not begin with {list(wanted)}")
        if min(longest, self.position_count or longest) > self.max_rows:
            raise ValueError(f"sequences of {longest} tokens, in calls of {self.max_rows} rows")

    def _of_patches(self, inputs: Mapping[str, TensorSpec]) -> tuple[tuple[int | str, ...], int]:
        """Axes of sequences and tokens, and the most tokens of a sequence."""
        patches = self.patches
        if patches is None or patches.input not in inputs or len(inputs) > 1:
            raise ValueError("'patches' names another input")
        if self.ids or self.mask or self.types:
            raise ValueError("it has 'patches' and ids")
        patches.check_input(inputs[patches.input])
        return (inputs[patches.input].dims[0], patches.tokens), patches.tokens

    def _of_texts(self, interface: TensorsInterface) -> tuple[tuple[int | str, ...], int]:
        """The same of texts."""
        inputs = {one.name: one for one in interface.inputs}
        for part, name in (("ids", self.ids), ("mask", self.mask), ("types", self.types)):
            if name or part == "ids":
                self._check_input(part, name, inputs)
        if len({self.ids, self.mask, self.types} - {""}) < 1 + bool(self.mask) + bool(self.types):
            raise ValueError("two of 'ids', 'mask' and 'types' are the same input")
        if not self.vocabulary:
            raise ValueError("there are no ids for the input of ids")
        if self.types and not self.type_count:
            raise ValueError("there are no types for the input of types")
        dims = inputs[self.ids].dims
        size = dims[1]
        return dims, interface.symbols[size].most if isinstance(size, str) else size

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
