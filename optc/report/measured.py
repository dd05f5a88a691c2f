"""What ``optc bench`` measured, read from its JSON: ceilings, steps of a profile, results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optc.artifact.jsonio import Fields
from optc.errors import ArtifactError
from optc.report.numbers import SPACE, TIMES


@dataclass(frozen=True)
class Ceilings:
    """What the machine does at best: GB/s read, and Gop/s by type."""

    read: float
    peaks: dict[str, float]


@dataclass(frozen=True)
class KernelTime:
    """All calls of a kernel in a step, as docs/bench.md says."""

    name: str
    shape: str
    calls: int
    ms: float
    bytes: float
    ops: float
    roof_ms: float

    @property
    def label(self) -> str:
        """Its name, and the shape of a matmul."""
        return f"{self.name} {self.shape}".strip()


@dataclass(frozen=True)
class Step:
    """A profiled step, as docs/bench.md says."""

    phase: str
    sequences: int
    rows: int
    context: int
    ms: float
    kernel_ms: float
    roof_ms: float
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


def read_measured(value: Mapping[str, Any], where: str) -> Measured:
    """A benchmark from the JSON object of ``optc bench --json``.

    Args:
        value: The object.
        where: Its file, for messages.

    Raises:
        ArtifactError: It is something else.
    """
    f = Fields(value, where)
    engine = f.child("engine").get("name", str) if f.optional("engine", dict) else ""
    ceilings = f.child("ceilings") if f.optional("ceilings", dict) else None
    steps = f.children("profile") if "profile" in f.values else []
    return Measured(
        engine,
        f.optional("target", str) or "",
        None if ceilings is None else _ceilings(ceilings),
        tuple(_step(step) for step in steps),
    )


def _ceilings(f: Fields) -> Ceilings:
    read = _positive(f.child("read_gb_per_s"), "best")
    suffix = "_gop_per_s"
    names = [key for key in f.values if key.endswith(suffix)]
    peaks = {name.removesuffix(suffix): _positive(f.child(name), "best") for name in names}
    if not peaks:
        raise f.error("there is no peak of arithmetic")
    return Ceilings(read, peaks)


def _step(f: Fields) -> Step:
    kernels = tuple(_kernel(kernel) for kernel in f.children("kernels"))
    return Step(
        f.get("phase", str),
        f.count("sequences", 1),
        f.count("rows", 1),
        f.count("context"),
        _positive(f, "step_ms"),
        _amount(f, "kernel_ms"),
        _amount(f, "roof_ms"),
        kernels,
    )


def _kernel(f: Fields) -> KernelTime:
    return KernelTime(
        f.get("name", str),
        f.get("shape", str),
        f.count("calls"),
        *(_amount(f, key) for key in ("ms", "bytes", "ops", "roof_ms")),
    )


def _amount(f: Fields, key: str) -> float:
    value = f.number(key)
    if value is None or value < 0:
        raise _wrong(f, key, value)
    return value


def _positive(f: Fields, key: str) -> float:
    value = f.number(key)
    if value is None or value <= 0:
        raise _wrong(f, key, value)
    return value


def _wrong(f: Fields, key: str, value: float | None) -> ArtifactError:
    return f.error(f"the key {key!r} is {value}")
