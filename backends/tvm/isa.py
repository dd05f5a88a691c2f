"""The instructions of the CPU kernels, chosen from a target's features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from optc.errors import UnavailableError
from optc.system.hardware.platforms import AARCH64, LINUX, MACOS_ARM, X86_64, platform_of
from optc.system.hardware.target import VNNI, Target, processor_of

if TYPE_CHECKING:
    import tvm

_AVX2 = ("avx2", "f16c", "fma")
#: The products of bytes of AVX-512 VNNI on 256 bits, of processors without AVX-512.
_AVX_VNNI = (*_AVX2, "avx_vnni")
_AVX512_VNNI = (*_AVX2, "avx512bw", "avx512dq", "avx512f", "avx512vl", "avx512_vnni")
#: Used where there are.
_AVX512_EXTRA = ("avx512_bf16", "avx512_vbmi2")
#: Tiles and their products of bytes and of bfloat16; all processors that have them have these.
_AMX = ("amx_bf16", "amx_int8", "amx_tile", "avx512_bf16")
_NEON = ("asimd", "asimddp", "atomics")
_I8MM = "i8mm"
#: LLVM's spelling where it differs from Linux's.
_LLVM_NAMES = {
    "avx_vnni": "avxvnni",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_vbmi2": "avx512vbmi2",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
    "amx_tile": "amx-tile",
    "asimd": "neon",
    "asimddp": "dotprod",
    "atomics": "lse",
}
#: What the compiler is told of a platform. The release of macOS is that of the linker's (`link`).
_PLAIN = {
    X86_64: {"mcpu": "x86-64"},
    AARCH64: {"mtriple": "aarch64-linux-gnu"},
    MACOS_ARM: {"mtriple": "arm64-apple-macos12.0"},
}


@dataclass(frozen=True)
class Isa:
    """The instruction set that kernels are written for.

    Attributes:
        name: ``amx``, ``avx512_vnni``, ``avx_vnni``, ``avx2``, ``neon_dotprod`` or ``neon_i8mm``.
        features: CPU features (Linux names, sorted) that generated code may use, no others.
        lanes: float32 (and int32) values of one vector register.
        max_rows: Rows of the largest register tile of a matmul.
        system: System that the code is for (`optc.system.hardware.platforms`).
    """

    name: str
    features: tuple[str, ...]
    lanes: int
    max_rows: int
    system: str = LINUX

    @property
    def platform(self) -> str:
        """The platform that the code is for (`optc.system.hardware.target.Target.platform`)."""
        return platform_of(processor_of(self.features), self.system)

    @property
    def vnni(self) -> bool:
        """True if vpdpbusd exists: four u8 x s8 products added to an int32 without saturation."""
        return not VNNI.isdisjoint(self.features)

    @property
    def arm(self) -> bool:
        """True for processors of aarch64."""
        return "asimd" in self.features

    @property
    def i8mm(self) -> bool:
        """True if usdot and usmmla exist: products of u8 and s8, added to int32."""
        return _I8MM in self.features

    @property
    def amx(self) -> bool:
        """True if tiles of 16 rows are multiplied at once: u8 x s8 added to int32, bf16 to
        float32."""
        return "amx_tile" in self.features

    @property
    def dots(self) -> bool:
        """True if one instruction adds four products of bytes to an int32, exactly."""
        return self.vnni or self.arm

    @property
    def bf16(self) -> bool:
        """True if vdpbf16ps exists: two bf16 products added to a float32."""
        return "avx512_bf16" in self.features

    @property
    def expands(self) -> bool:
        """True if sparse weights have kernels: vpexpandb spreads bytes to where a mask has ones."""
        return self.vnni and "avx512_vbmi2" in self.features

    @property
    def peaks(self) -> tuple[str, ...]:
        """The types that it has a multiply-add for; where none adds four products of bytes, that
        of 4 bits is faster."""
        integers = ("int8",) if self.dots else ("int8", "int4")
        return (*integers, "bf16", "fp32") if self.bf16 else (*integers, "fp32")

    def columns(self, rows: int) -> int:
        """Columns of the register tile that has ``rows`` rows; divides 64.

        The accumulators, one column of weights and one broadcast value have to fit into the
        registers: 32 of 16 lanes, 16 of 8 lanes of which some hold intermediate products, or 32 of
        4 lanes.
        """
        if self.lanes == 16:
            return 64
        return 64 if rows == 1 else 32 if rows == 2 else 16

    def tvm_target(self) -> tvm.target.Target:
        """The compiler's target: the plain processor and system plus exactly `features`.

        No number of cores is baked in; the thread pool decides when the engine is loaded.
        """
        import tvm

        attributes = [f"+{_LLVM_NAMES.get(name, name)}" for name in self.features]
        if self.expands:
            attributes.append("+popcnt")  # every processor with AVX-512 has it
        plain = _PLAIN[self.platform]
        return tvm.target.Target({"kind": "llvm", **plain, "mattr": attributes})


def isa_of(target: Target) -> Isa:
    """The best instruction set of the kernels that ``target`` has.

    Raises:
        UnavailableError: The target is no CPU, or lacks even AVX2 or products of bytes; the message
            names what lacks.
    """
    available = frozenset(target.features)
    if target.kind == "cpu" and target.processor == AARCH64:
        return _neon(target, available)
    if target.kind == "cpu" and available.issuperset(_AVX512_VNNI):
        extra = [name for name in _AVX512_EXTRA if name in available]
        if available.issuperset(_AMX):
            features = {*_AVX512_VNNI, *_AMX, *extra}
            return Isa("amx", tuple(sorted(features)), lanes=16, max_rows=6)
        return Isa("avx512_vnni", tuple(sorted((*_AVX512_VNNI, *extra))), lanes=16, max_rows=6)
    if target.kind == "cpu" and available.issuperset(_AVX_VNNI):
        # of six rows, sums of unpacked weights of 4 bits are not in registers
        return Isa("avx_vnni", tuple(sorted(_AVX_VNNI)), lanes=8, max_rows=5)
    missing = sorted(set(_AVX2) - available)
    if target.kind != "cpu" or missing:
        lacking = f"lacks {', '.join(missing)}" if missing else f"is of kind {target.kind}"
        raise UnavailableError(
            f"the CPU kernels need avx2, f16c and fma; the target {lacking}",
            where=f"target {target.name}",
            hint="compile with --target x86-64-v3 or x86-64-v4-vnni",
        )
    return Isa("avx2", tuple(sorted(_AVX2)), lanes=8, max_rows=4)


def _neon(target: Target, available: frozenset[str]) -> Isa:
    missing = sorted(set(_NEON) - available)
    if missing:
        raise UnavailableError(
            f"the CPU kernels need asimddp and atomics on aarch64; the target lacks "
            f"{', '.join(missing)}",
            where=f"target {target.name}",
            hint="compile with --target aarch64-dotprod for a processor of Armv8.2 or later",
        )
    name, extra = ("neon_i8mm", (_I8MM,)) if _I8MM in available else ("neon_dotprod", ())
    features = tuple(sorted((*_NEON, *extra)))
    return Isa(name, features, lanes=4, max_rows=6, system=target.system)
