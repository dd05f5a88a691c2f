"""The weights that each kernel call of a step reads, as the virtual machine makes the calls.

Steps are not replayed (`optc.backends.tvm.replay`): between two kernels there has to be a place to
ask for what the next one reads.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optc.backends.tvm.replay.recording import BOOKKEEPING
from optc.backends.tvm.streamed.pieces import Int64, Pieces
from optc.backends.tvm.streamed.step_order import Uses
from optc.backends.tvm.streamed.streamer import Streamer

#: Kernels that read single rows of their weights: nothing of them is asked for.
_LOOKUPS = "embedding"


class Watch:
    """Tells a streamer what the calls of a virtual machine read.

    Args:
        streamer: Is told.
        pieces: Of the weights.
        tensors: Places of the weights among the step's arguments, by address.
    """

    def __init__(self, streamer: Streamer, pieces: Pieces, tensors: Mapping[int, int]) -> None:
        self._streamer, self._pieces, self._tensors = streamer, pieces, tensors

    def follow(self, vm: Any) -> None:
        """Be told the calls of ``vm``."""
        vm["set_instrument"](_noting(weakref.ref(self)))

    def step(self, inputs: object, fixed: Sequence[Any]) -> None:
        """A step begins; as `optc.backends.tvm.replay.replay.Replays.step`, which this replaces,
        without results: the caller has to run it."""
        self._streamer.begin_step()

    def clear(self) -> None:
        """As `optc.backends.tvm.replay.replay.Replays.clear`; nothing was recorded."""

    def note(self, name: str, arguments: Sequence[Any]) -> None:
        """A kernel is about to run."""
        if _LOOKUPS in name:
            return
        found = [self._tensors.get(one.data_ptr()) for one in arguments if _is_tensor(one)]
        uses: Uses = tuple(one for one in found if one is not None)
        if uses:
            mixture = any(map(self._pieces.by_expert, uses))
            self._streamer.use(uses, _chosen(arguments) if mixture else None)


def _chosen(arguments: Sequence[Any]) -> Int64 | None:
    """Experts of the rows of a call, ascending, by its plan (`expert_plan`): spans int32 [M, 3],
    the first column of which are experts, and how many there are, int32 [1]."""
    for spans, count in itertools.pairwise(arguments):
        if not (_is_tensor(spans) and _is_tensor(count)):
            continue
        if len(spans.shape) == 2 and spans.shape[1] == 3 and tuple(count.shape) == (1,):
            rows: Any = np.from_dlpack(spans)
            number: Any = np.from_dlpack(count)
            return np.unique(rows[: int(number[0]), 0]).astype(np.int64)
    return None


def _is_tensor(argument: Any) -> bool:
    return hasattr(argument, "data_ptr")


def _noting(watch: weakref.ref[Watch]) -> Any:
    """The callback for a machine's calls. It must not hold the watch: see
    `optc.backends.tvm.replay.recording`."""

    def note(_: Any, name: Any, before: bool, __: Any, *arguments: Any) -> int:
        told = watch()
        if before and told is not None and not str(name).startswith(BOOKKEEPING):
            told.note(str(name), arguments)
        return 0

    return note
