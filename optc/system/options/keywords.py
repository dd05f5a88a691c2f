"""Keywords of `optc.compile` and `optc.plan`, with types: type checkers see a wrong name.

They are fields of `optc.CompileOptions`. Paths may be texts, and one text stands for a list of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from optc.system.options.compile_options import Auto


class PlanChanges(TypedDict, total=False):
    """Those that a plan depends on: the ones of `optc.system.options.PLANNED`, but for
    ``recipe``."""

    objective: str | None
    ladder: str | Sequence[str]
    gate: str | Sequence[str]
    set: str | Sequence[str]
    calibration: str | Path | None
    budget: str | None
    calibration_cache: str | Path | None
    max_context: int | None
    medusa: str | Path | None
    adapters: str | None
    base: str | Path | None
    allow_remote_code: bool


class CompileChanges(PlanChanges, total=False):
    """All, but for ``recipe`` and ``output``, which are arguments of their own."""

    backend: str | Sequence[str] | None
    target: str | None
    eval_text: str | Path | None
    max_ram: str | int | None
    device: str
    draft: str | Path | None
    draft_text: str | Sequence[str]
    eagle: str | Path | None
    trained: str | Path | None
    self_draft: int | Auto | None
    no_gates: bool
    bisect: bool
    allow_unmeasured: bool
    keep_failed: bool
    dump_dir: str | Path | None
    force: bool
