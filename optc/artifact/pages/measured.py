"""The measurements of ``optc bench``, read from its JSON: ceilings, steps of a profile, results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from optc.artifact.pages.numbers import SPACE, TIMES
from optc.errors import ArtifactError
from optc.system.foreign.typed_json import NEWER, Count, Positive, typed

_Amount = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True)
class Ceilings:
    """The best rates of the machine: GB/s read, and Gop/s by type."""

    read: float
    peaks: dict[str, float]


class KernelTime(Struct, frozen=True):
    """All calls of a kernel in a step, as docs/bench.md says."""

    name: str
    shape: str
    calls: Count
    ms: _Amount
    bytes: _Amount
    ops: _Amount
    roof_ms: _Amount

    @property
    def label(self) -> str:
        """Its name, and the shape of a matmul."""
        return f"{self.name} {self.shape}".strip()


class Step(Struct, frozen=True):
    """A profiled step, as docs/bench.md says."""

    phase: str
    sequences: Positive
    rows: Positive
    context: Count
    ms: Annotated[float, Meta(gt=0)] = field(name="step_ms")
    kernel_ms: _Amount
    roof_ms: _Amount
    kernels: tuple[KernelTime, ...]

    @property
    def label(self) -> str:
        """``decode, 8 sequences`` or ``prefill, 512 tokens``."""
        if self.phase == "prefill":
            return f"prefill, {self.rows:,} tokens"
        several = "" if self.sequences == 1 else "s"
        return f"{self.phase}, {self.sequences:,} sequence{several}"

    @property
    def short(self) -> str:
        """``decode x 8`` or ``prefill 512``: sequences of a decode, rows of a prefill."""
        if self.phase == "prefill":
            return f"prefill{SPACE}{self.rows:,}"
        return f"{self.phase}{SPACE}{TIMES}{SPACE}{self.sequences:,}"

    @property
    def bytes(self) -> float:
        """That must come from memory."""
        return sum(kernel.bytes for kernel in self.kernels)

    @property
    def ops(self) -> float:
        """Operations."""
        return sum(kernel.ops for kernel in self.kernels)


@dataclass(frozen=True)
class Measured:
    """A benchmark.

    Attributes:
        engine: Name of the engine that ran; empty where it is not said.
        target: What it was compiled for; empty where it is not said.
        ceilings: None where the engine's backend measures none.
        steps: Of a profile; empty of other benchmarks.
    """

    engine: str
    target: str
    ceilings: Ceilings | None
    steps: tuple[Step, ...]


class _Best(Struct, frozen=True):
    best: Annotated[float, Meta(gt=0)]


class _Engine(Struct, frozen=True):
    name: str


class _Benchmark(Struct, frozen=True):
    """The fields of ``optc bench --json`` that are read."""

    engine: _Engine | None = None
    target: str | None = None
    ceilings: dict[str, Any] | None = None
    profile: tuple[Step, ...] = ()


def read_measured(value: Mapping[str, Any], where: str) -> Measured:
    """A benchmark from the JSON object of ``optc bench --json``.

    Args:
        value: The object.
        where: Its file, for messages.

    Raises:
        ArtifactError: It is something else.
    """
    found = typed(value, _Benchmark, where)
    return Measured(
        "" if found.engine is None else found.engine.name,
        found.target or "",
        None if found.ceilings is None else _ceilings(found.ceilings, f"{where}: ceilings"),
        found.profile,
    )


def _ceilings(found: Mapping[str, Any], where: str) -> Ceilings:
    """From the keys ``read_gb_per_s`` and ``TYPE_gop_per_s``; others say how it was measured."""
    read, suffix = "read_gb_per_s", "_gop_per_s"
    wanted = {k: v for k, v in found.items() if k == read or k.endswith(suffix)}
    best = {key: one.best for key, one in typed(wanted, dict[str, _Best], where).items()}
    if read not in best or len(best) < 2:
        raise ArtifactError(f"it lacks {read}, or a peak of arithmetic", where=where, hint=NEWER)
    peaks = {k.removesuffix(suffix): value for k, value in best.items() if k != read}
    return Ceilings(best[read], peaks)
