"""The contract between the runtime and a loaded engine: `Executable` and the ragged step.

One call covers prefill, a chunk of prefill, decode and verification of drafts: the T new rows of
all B sequences are concatenated, and each sequence's KV lives in blocks that its block table
names (PagedAttention: Kwon et al., 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from optc.runtime.executable.adapter_spec import AdapterSpec, ModuleWeights
from optc.runtime.executable.encoder_states import EncoderStates
from optc.runtime.executable.kv_layout import KVLayout
from optc.system.foreign.typed_json import Count, Positive, Share

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class KVGroup:
    """Layers that share block tables and slots: full attention, or one sliding window.

    Attributes:
        window: Tokens that a row sees, itself included; 0 means all.
        layers: Which of the spec's layers are in this group.
        state_slots: 0, or of layers with a recurrent state, in how many of a block's slots the
            state behind the last of its tokens lies (`optc.runtime.executable.recurrent_state`).
            Such a block is copied whole, and drafts have no slots in it: tokens cannot be taken
            back from a state.
    """

    window: Count
    layers: tuple[Count, ...]
    state_slots: Count = 0


#: Rows of a step: all of them, or those whose logits are wanted.
HiddenRows = Literal["all", "logits"]

#: Channels of a group of int4 pools.
INT4_GROUP = 16
#: Types of KV pools: bytes of an element, and of the scale of each token and KV head. An element
#: of int4 is half a byte and its share of the byte of its group.
KV_TYPES: dict[str, tuple[float, int]] = {
    "float32": (4, 0),
    "float16": (2, 0),
    "bfloat16": (2, 0),
    "int8": (1, 4),
    "int4": (1 / 2 + 1 / INT4_GROUP, 2),
}


#: KV heads of a layer, and elements of a head: far above any model's, and so few that the bytes of
#: a token in a layer (at most 2 * 4 * 2**32) stay far within int64.
_Extent = Annotated[int, Meta(ge=1, le=1 << 16)]


@dataclass(frozen=True)
class LayerKV:
    """Shape of one layer's keys and values. ``dtype`` is the pool's, one of `KV_TYPES`."""

    group: Count
    kv_heads: _Extent
    key_dim: _Extent
    value_dim: _Extent
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in KV_TYPES:
            raise ValueError(f"the KV type {self.dtype[:80]!r} is none of {', '.join(KV_TYPES)}")

    def alike(self, other: LayerKV) -> bool:
        """True if both have pools of one shape and type, whichever groups they are in."""
        return replace(self, group=other.group) == other

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V, scales included, that one token occupies in this layer."""
        element, scale = KV_TYPES[self.dtype]
        return int(self.kv_heads * ((self.key_dim + self.value_dim) * element + 2 * scale))


def bytes_beyond_windows(groups: Sequence[KVGroup], layers: Sequence[LayerKV]) -> int:
    """Bytes of a token in the layers of groups without a window."""
    return sum(one.bytes_per_token for one in layers if not groups[one.group].window)


class StepInterface(Struct, frozen=True, tag="step", forbid_unknown_fields=True):
    """The ragged step as an engine takes it: what the scheduler has to know; in the manifest.

    Attributes:
        vocab_size: V, the width of a row of logits.
        max_context: Longest sequence, prompt and output together, in tokens.
        max_rows: Largest T of one step.
        max_sequences: Largest B of one step.
        max_logit_rows: Largest R of one step.
        block_multiple: KV block sizes must be multiples of this many tokens.
        batch_invariant: A row's logits are bit-identical whatever shares its step.
        groups: KV groups.
        layers: KV shape of every decoder layer; behind these, of those that keep their latest
            tokens in pools of another type too, that of these pools.
        adapters: Room for LoRA adapters; None where it takes none.
        tree: The rows of a sequence may form a tree (``StepBatch.tree_parent``).
        accept_rates: Of Medusa's heads, by head and rank: how often the guess of that rank was
            right when they were trained. Empty where there are no heads.
        hidden_size: D, where the engine is a `HiddenExecutable`; else 0.
        hidden_rows: Of which rows of a step a `HiddenExecutable` gives states.
        features: Steps read ``StepBatch.features``: the engine is a layer that drafts by the hidden
            states of another (docs/normal-form.md).
        samples: The engine is a `SamplingExecutable`.
        shared_kv: Of an engine that drafts: by layer, the target's layer whose keys and values are
            of the same meaning, so that its pools serve both (`SharingExecutable`). Empty where the
            engine needs pools of its own.
        kv_layout: ``paged``, or ``slots``: a sequence has one block in each group, as long as the
            longest sequence, so that block tables have one column.
        encoded: States of an encoder that a sequence attends to at most: the engine is an
            `optc.runtime.executable.encoded.EncodedExecutable`, and the last KV group holds their
            keys and values, which no step writes. 0: it attends to its own tokens alone.
    """

    vocab_size: Positive
    max_context: Positive
    max_rows: Positive
    max_sequences: Positive
    max_logit_rows: Positive
    block_multiple: Positive
    batch_invariant: bool
    groups: tuple[KVGroup, ...]
    layers: tuple[LayerKV, ...]
    tree: bool = False
    adapters: AdapterSpec | None = None
    accept_rates: tuple[tuple[Share, ...], ...] = ()
    hidden_size: Annotated[int, Meta(ge=0, le=1 << 16)] = 0
    hidden_rows: HiddenRows = "all"
    features: bool = False
    samples: bool = False
    shared_kv: tuple[Count, ...] = ()
    kv_layout: KVLayout = "paged"
    encoded: Annotated[int, Meta(ge=0, le=1 << 20)] = 0

    def __post_init__(self) -> None:
        listed = sorted((index, g) for g, group in enumerate(self.groups) for index in group.layers)
        if listed != [(index, layer.group) for index, layer in enumerate(self.layers)]:
            raise ValueError(
                "the layers that 'groups' lists are not those that 'layers' puts there"
            )

    @property
    def state_groups(self) -> tuple[int, ...]:
        """The groups whose blocks hold recurrent states."""
        return tuple(index for index, group in enumerate(self.groups) if group.state_slots)

    @property
    def own_layers(self) -> tuple[LayerKV, ...]:
        """The layers that keep a sequence's own tokens."""
        last = len(self.groups) - 1
        return tuple(one for one in self.layers if not (self.encoded and one.group == last))

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV pool that one token needs over all layers; states of an encoder are none."""
        return sum(layer.bytes_per_token for layer in self.own_layers)

    @property
    def kv_bytes_beyond_windows(self) -> int:
        """Those of them that a token needs for as long as its sequence runs."""
        return bytes_beyond_windows(self.groups, self.own_layers)


@dataclass(frozen=True)
class StepBatch:
    """Inputs of one step. All arrays are C-contiguous int32, but for ``features``.

    Shapes: T new rows, B sequences, G KV groups, P blocks a sequence at most, R wanted rows.

    Attributes:
        tokens: [T] token ids.
        positions: [T] absolute position of each row in its sequence; in a tree, one more than
            its parent's.
        slot_mapping: [G, T] slot (block * block_size + offset) where the row's K and V go;
            -1 is padding and not written.
        query_starts: [B + 1] rows of sequence b are query_starts[b]:query_starts[b + 1].
        kv_lengths: [G, B] tokens of each sequence in the pool after this step's writes. Row i of
            the n rows of a sequence has KV index ``kv_lengths - n + i`` and sees indices up to
            its own, and only the last ``window`` of them in a windowed group.
        block_tables: [G, B, P] block of each run of block_size tokens; -1 where released.
        logit_rows: [R] rows of the step whose logits are wanted; the scheduler always asks for
            at least one.
        tree_parent: [T] row of the step that each row follows: the row before in a linear
            sequence, an earlier one of the same sequence in a tree, -1 at a sequence's first row.
            A row sees its sequence's earlier tokens and its ancestors, not the other rows of the
            step; windows count along that path. Slots and KV indices follow the order of rows all
            the same. None, or the row before everywhere, is linear; else ``spec.tree`` must hold.
        adapters: [T] slot of each row's LoRA adapter, -1 for none; None is none everywhere.
        features: float32 [T, D] hidden state of the token before each row's, where
            ``spec.features`` holds; None is zeros everywhere.
        encoded: What each sequence attends to, of `optc.runtime.encoded.attending`, which puts it
            into a KV group of its own; engines themselves are given None.
    """

    tokens: Int32
    positions: Int32
    slot_mapping: Int32
    query_starts: Int32
    kv_lengths: Int32
    block_tables: Int32
    logit_rows: Int32
    tree_parent: Int32 | None = None
    adapters: Int32 | None = None
    features: Float32 | None = None
    encoded: tuple[EncoderStates, ...] | None = None


class Executable(Protocol):
    """A loaded engine. Every call must come from one thread."""

    spec: StepInterface

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """Allocate (or replace) the KV pools: ``blocks_per_group[g]`` blocks of ``block_size``
        tokens for every layer of group g.

        Raises:
            optc.errors.InputError: ``block_size`` is not a multiple of ``spec.block_multiple``.
        """
        ...

    def step(self, batch: StepBatch) -> Float32:
        """Run one ragged step; returns logits [R, V]. The result is only valid until the next
        call (it may be a view of the engine's own buffer)."""
        ...

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        """Copy K and V of ``src_slots`` [n] to ``dst_slots`` [n] in every layer of ``group``; no
        slot is the target of one pair and the source of a later one."""
        ...

    def read_blocks(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        """Contents [n, bytes] of blocks [n] in all layers of ``group``, as opaque bytes: all that a
        block holds, and of one size. Logits of the last step stay valid."""
        ...

    def write_blocks(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        """Replace the contents of blocks [n] by what `read_blocks` gave for n blocks."""
        ...

    def write_adapter(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        """Set the LoRA adapter in ``slot``: weights for each module of ``spec.adapters``, None
        where it has none."""
        ...

    def close(self) -> None:
        """Release memory maps and pools."""
        ...


@runtime_checkable
class HeadedExecutable(Protocol):
    """The further abilities of an engine whose ``spec.accept_rates`` state Medusa heads (Cai et
    al., 2024)."""

    spec: StepInterface

    def guess(self, rows: Int32) -> Float32:
        """Logits [n, K, V] of the K heads behind ``rows`` [n] (at most ``spec.max_sequences``) of
        the logits of the last step: head k guesses the token k + 1 places after the one that the
        row's own logits give. Valid until the next call.

        Raises:
            optc.errors.InputError: There are no heads, or no step was run.
        """
        ...


@runtime_checkable
class HiddenExecutable(Protocol):
    """The further abilities of an engine whose ``spec.hidden_size`` is not 0."""

    spec: StepInterface

    def hidden_states(self) -> Float32:
        """Last hidden states of the last step, as the head reads them: [T, D] of all its rows, or
        [R, D] of those whose logits were wanted (``spec.hidden_rows``). Valid until the next call.

        Raises:
            optc.errors.InputError: The engine gives none, or no step was run.
        """
        ...


@runtime_checkable
class SharingExecutable(Protocol):
    """The abilities of an engine that drafts with the keys and values of its target."""

    spec: StepInterface

    def share_kv(self, owner: Executable) -> None:
        """Use from now on the pools of ``owner``, an engine of the same backend that has allocated
        its own, instead of pools of one's own: those of the layers ``spec.shared_kv``.

        Raises:
            optc.errors.InputError: It has none, or is of another backend.
        """
        ...


@runtime_checkable
class SwappingExecutable(Protocol):
    """The abilities of an engine whose weights can be exchanged while it is loaded."""

    spec: StepInterface

    def use_weights(self, folder: Path) -> None:
        """Compute with the weights in ``folder`` from now on: that of the same engine in another
        artifact, compiled to the same code. Pools must be allocated anew before the next step.

        Raises:
            optc.errors.ArtifactError: They are not there, or too few; the engine is as before.
        """
        ...
