"""A recorder of steps without a real virtual machine: what it keeps, and that it is freed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from optc.backends.tvm.replay.recording import KernelCall, Recorder


class Machine:
    """Calls its kernels one after the other, and tells the calls as TVM's does. Like TVM's, it is
    held by somebody whom Python does not know."""

    kernels = ("vm.builtin.alloc_storage", "matmul", "add")

    def __init__(self) -> None:
        self.instrument: Callable[..., int] | None = None

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.set_instrument if name == "set_instrument" else self.run

    def set_instrument(self, instrument: Callable[..., int]) -> None:
        self.instrument = instrument

    def run(self, *arguments: Any) -> tuple[str, ...]:
        assert self.instrument is not None
        for kernel in self.kernels:
            for before in (True, False):
                assert self.instrument(None, kernel, before, None, *arguments) == 0
        return ("result",)


class Library:
    def implements_function(self, name: str) -> bool:
        return name != "strange"


def test_the_kernels_of_a_run_are_recorded_in_order() -> None:
    recorder = Recorder(Machine(), Library())
    for arguments in (("a", "b"), ("c",)):
        recording = recorder.record(arguments)
        assert recording.calls == (KernelCall("matmul", arguments), KernelCall("add", arguments))
        assert recording.results == ("result",)
        assert recording.complete


def test_a_call_of_something_else_is_not_complete() -> None:
    machine = Machine()
    machine.kernels = ("matmul", "strange")
    recording = Recorder(machine, Library()).record(())
    assert [call.name for call in recording.calls] == ["matmul"]
    assert not recording.complete


class Tensor:
    """Memory that a step works on."""


def test_a_machine_that_lives_on_holds_neither_its_recorder_nor_what_was_recorded() -> None:
    machine, tensor = Machine(), Tensor()
    recorder = Recorder(machine, Library())
    recorder.record((tensor,))
    told, kept = weakref.ref(recorder), weakref.ref(tensor)
    del tensor
    gc.collect()
    assert kept() is None, "the recording is the caller's"
    del recorder
    gc.collect()
    assert told() is None
    assert machine.run("late") == ("result",), "calls of nobody's are not told"
