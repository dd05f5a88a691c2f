"""Recording the kernel calls of one step, with the tensors they work on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: The virtual machine's own work between kernels: memory, views and shapes. It computes no values.
BOOKKEEPING = ("vm.builtin.", "shape_func")


@dataclass(frozen=True)
class KernelCall:
    """One kernel call: its name in the engine and its arguments (``tvm_ffi`` tensors)."""

    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Recording:
    """One run of a function.

    Attributes:
        calls: The kernel calls in order.
        results: The tensors that it returned.
        complete: The kernel calls are all that a repetition has to run.
    """

    calls: tuple[KernelCall, ...]
    results: tuple[Any, ...]
    complete: bool


class Recorder:
    """Runs a function of an engine on a virtual machine of its own that tells every call.

    Args:
        vm: A virtual machine of the engine (`optc.backends.tvm.loaded.loader.open_vm`).
        library: Holds the engine's kernels by name.
        function: Which function.
    """

    def __init__(self, vm: Any, library: Any, function: str = "step") -> None:
        self._library = library
        self._calls: list[KernelCall] = []
        self._complete = True
        vm["set_instrument"](_noting(weakref.ref(self)))
        self._run = vm[function]

    def record(self, arguments: Sequence[Any]) -> Recording:
        """Run the function with ``arguments``; it does all that it does elsewhere."""
        self._calls, self._complete = [], True
        results = tensors_of(self._run(*arguments))
        calls, self._calls = tuple(self._calls), []
        return Recording(calls, results, self._complete)

    def note(self, _: Any, name: Any, before: bool, __: Any, *arguments: Any) -> int:
        """Called before and after each call; the returned 0 lets the machine go on."""
        if before and not str(name).startswith(BOOKKEEPING):
            if self._library.implements_function(name):
                self._calls.append(KernelCall(str(name), arguments))
            else:
                self._complete = False
        return 0


def _noting(recorder: weakref.ref[Recorder]) -> Callable[..., int]:
    """The callback for a machine's calls. It must not hold the recorder, which holds the machine:
    the machine's own references are unknown to Python, so that neither would ever be freed."""

    def note(*call: Any) -> int:
        told = recorder()
        return 0 if told is None else told.note(*call)

    return note


def tensors_of(result: Any) -> tuple[Any, ...]:
    """The result of a function of the virtual machine, one tensor or several, as a tuple."""
    return (result,) if hasattr(result, "data_ptr") else tuple(result)
