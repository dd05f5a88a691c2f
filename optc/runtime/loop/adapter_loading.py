"""From a PEFT folder into a running engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from optc.errors import InputError
from optc.runtime.adapters.table import AdapterTable
from optc.runtime.executable.adapter_spec import AdapterSpec

if TYPE_CHECKING:
    from optc.runtime.loop.core import Core


class _Caller(Protocol):
    """Runs a function on the engine's thread and waits (`optc.runtime.loop.worker.Worker`)."""

    def call(self, function: Callable[[Core], None]) -> None: ...


def load_adapter(
    worker: _Caller,
    table: AdapterTable,
    spec: AdapterSpec | None,
    name: str,
    folder: str | Path,
) -> None:
    """Read ``folder`` on this thread, write it between two steps, then make it known.

    Raises:
        InputError, RequestError, EngineError: As `optc.runtime.engine.Engine.load_adapter`.
    """
    from optc.runtime.adapters.peft import read_peft

    if spec is None:
        raise InputError(
            "the artifact takes no adapters",
            where="load_adapter",
            hint="compile it with --adapters max=8,rank=16",
        )
    modules = read_peft(folder, spec)
    adapter = table.reserve(name)
    try:
        worker.call(lambda core: core.executable.write_adapter(adapter.slot, modules))
        table.publish(adapter)
    except BaseException:
        table.abandon(adapter)
        raise
