"""Exchange of a running engine's weights for those of another artifact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optc.runtime.engine_info import EngineInfo
from optc.runtime.loop.core_factory import CoreFactory
from optc.runtime.loop.replacement import Replacement
from optc.runtime.loop.worker import Worker

if TYPE_CHECKING:
    from optc.runtime.loop.core import Core


@dataclass(frozen=True)
class Swapping:
    """A running engine whose weights can be exchanged.

    Attributes:
        worker: Runs its steps.
        opening: Made its core.
    """

    worker: Worker
    opening: CoreFactory

    def swap(self, new: Replacement, taken: Callable[[EngineInfo], None]) -> None:
        """Compute with other weights, once requests of before have ended.

        Args:
            new: The same engine with these.
            taken: Told between two steps what is served from then on.

        Raises:
            InputError, EngineError: As `optc.runtime.engine.Engine.swap`.
        """

        def change(core: Core) -> Core:
            changed = self.opening.swapped(core, new)
            self.worker.serves = new.info
            taken(new.info)
            return changed

        self.worker.change(change)
