"""The weights of an engine of which only a part stays in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optc.backends.tvm.streamed.moving import Mapped, check_system
from optc.backends.tvm.streamed.pieces import cut
from optc.backends.tvm.streamed.streamer import Streamer
from optc.backends.tvm.streamed.watching import Watch
from optc.backends.tvm.weights.weights_file import Placed, WeightFiles


class StreamedFiles(WeightFiles):
    """As `WeightFiles`, whose pages come from the disk as steps use them.

    Args:
        shared: As of `WeightFiles`.
        own: As there.
        placed: As there.
        experts: Of each mixture; see `optc.backends.tvm.streamed.pieces.cut`.
        resident: Most bytes of weights that stay in memory.

    Raises:
        ArtifactError: As of `WeightFiles`.
        UnavailableError: The system cannot keep a part of a file in memory.
    """

    def __init__(
        self, shared: Path, own: Path, placed: Sequence[Placed], experts: int, resident: int
    ) -> None:
        super().__init__(shared, own, placed, private=True)
        self._places = [self.array(one.name).ctypes.data for one in placed]
        mapped = [Mapped(file.descriptor, file.address) for file in self._files]
        try:
            check_system(mapped)
        except BaseException:
            super().close()
            raise
        self._pieces = cut(placed, experts)
        self.streamer = Streamer(self._pieces, mapped, resident)

    def watch(self, vm: Any) -> Watch:
        """Follow the steps of a virtual machine with these weights."""
        tensors = {address: index for index, address in enumerate(self._places)}
        watch = Watch(self.streamer, self._pieces, tensors)
        watch.follow(vm)
        return watch

    def close(self) -> None:
        """Unmap; no array of this object may be used afterwards."""
        self.streamer.close()
        super().close()
