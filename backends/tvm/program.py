"""The engine as data: what the lowering produces and the compiler's process turns into Relax.

A `Program` is a list of kernel calls over named tensors. It holds no weights and needs no TVM, so
that the process that reads the model never loads the compiler, and the compiler never sees the
model (docs/adr/0006-the-tvm-backend-lowers-to-data-first.md).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

#: A dimension: a number, or a symbol such as ``T`` or ``B+1``.
Dim = int | str


@dataclass(frozen=True)
class Tensor:
    """A tensor of the engine.

    Attributes:
        name: Unique in the program.
        dtype: TVM's name of the element type: ``float32``, ``int8``, …
        shape: Dimensions; symbols are T, B, P, R, H (rows of Medusa's heads) and S0, S1, …
            (16-token tiles of a KV group), also as ``B+1``, ``4*H`` and ``8*T``.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class Call:
    """One kernel call.

    Attributes:
        kernel: Name in the kernel table, or ``relax.<op>`` for an operator that TVM lowers.
        config: Fields of the kernel's config dataclass (JSON values).
        inputs: Names of the tensors read.
        updated: Names of the tensors updated in place; they follow the inputs.
        outputs: Fresh tensors.
    """

    kernel: str
    config: dict[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    updated: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Kernel and configuration; calls with equal keys share one kernel."""
        return f"{self.kernel} {sorted(self.config.items())}"


@dataclass(frozen=True)
class Function:
    """A function of the engine: its arguments in order, its calls, and the tensor it returns, or
    with ``more_results`` the tensors."""

    name: str
    arguments: tuple[Tensor, ...]
    calls: tuple[Call, ...]
    result: str
    more_results: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """Everything the compiler needs.

    Attributes:
        functions: ``step`` and one ``copy_kv_<group>`` for each KV group.
        bounds: Largest value of each symbol that intermediate tensors depend on.
        target: Name of the compilation target.
        features: CPU features of the target.
        fingerprint: What the engine says that it was compiled for
            (`optc.backends.tvm.fingerprint`); empty where it says nothing.
    """

    functions: tuple[Function, ...]
    bounds: dict[str, int]
    target: str
    features: tuple[str, ...] = field(default=())
    fingerprint: tuple[int, ...] = ()

    def to_json(self) -> str:
        """The program as JSON text; the same program gives the same text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Program:
        """The program that `to_json` wrote."""
        return msgspec.json.decode(text, type=Program)


def kernel_names(program: Program) -> dict[str, str]:
    """Name in the engine of every kernel, by `Call.key`: kind and index, in order of first use.

    Operators that TVM lowers (``relax.…``) are named by TVM and left out.
    """
    names: dict[str, str] = {}
    for call in (call for function in program.functions for call in function.calls):
        if not call.kernel.startswith("relax."):
            names.setdefault(call.key, f"{call.kernel}_{len(names)}")
    return names


def replayable(program: Program) -> bool:
    """True if no tensor that a step computes depends on P, the width of the block tables.

    Recorded steps (`optc.backends.tvm.replay.replay`) rely on it: P grows while a sequence does.
    """
    steps = (f for f in program.functions if f.name == "step")
    outputs = (t for f in steps for call in f.calls for t in call.outputs)
    return not any(str(d).split("+")[0] == "P" for t in outputs for d in t.shape)
