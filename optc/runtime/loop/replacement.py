"""`Replacement`: other weights for a loaded engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from optc.runtime.executable.executable import Executable
from optc.runtime.speculative.drafting import Drafting

if TYPE_CHECKING:
    from optc.runtime.engine_info import EngineInfo

OpenExecutable = Callable[[], Executable]


@dataclass(frozen=True)
class Replacement:
    """The same engine in another artifact, whose weights take the place of the loaded ones.

    Attributes:
        folder: The engine's, in that artifact.
        open_executable: Loads it there.
        drafting: With what tokens are drafted then.
        info: Where it comes from.
    """

    folder: Path
    open_executable: OpenExecutable
    drafting: Drafting
    info: EngineInfo
