"""Reads from the disk while an engine runs, as Linux counts them."""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from optc.proof.bench.result import BenchResult

_READ = re.compile(r"^read_bytes: (\d+)$", re.MULTILINE)


@dataclass
class DiskReads:
    """Counts while it is entered, again and again.

    Attributes:
        bytes: Read from the disk, read ahead or for page faults; 0 where the system does not say.
        faults: Page faults that waited for the disk.
    """

    bytes: int = 0
    faults: int = 0

    def __enter__(self) -> None:
        self.bytes -= read_bytes()
        self.faults -= _faults()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bytes += read_bytes()
        self.faults += _faults()

    def noted(self, result: BenchResult, tokens: int) -> BenchResult:
        """The result with what was counted for so many generated tokens."""
        return replace(
            result,
            disk_bytes_per_token=self.bytes / tokens,
            page_faults_per_token=self.faults / tokens,
        )


def read_bytes(root: Path = Path("/")) -> int:
    """Bytes that the process has read from storage (proc(5)); 0 where the system does not say."""
    try:
        match = _READ.search((root / "proc/self/io").read_text())
    except OSError:
        return 0
    return int(match[1]) if match else 0


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
