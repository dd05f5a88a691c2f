"""Steps of a shape that comes again and again, launched as one CUDA graph.

A decode step is some hundred short kernels, and what the host does for each of them takes longer
than many of them run. For steps of one shape all of that is the same, so their launches are
captured once, on memory that stays, and later started by one call. The kernels and their order are
the same, and so are the results.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optc.backends.tvm.loaded.staging import StepInputs
from optc.backends.tvm.replay.recording import KernelCall, Recorder
from optc.backends.tvm.replay.replay_plan import NotReplayableError
from optc.backends.tvm_cuda.loaded.arena import Arena
from optc.backends.tvm_cuda.loaded.capture import Capture, Graph, NotCapturedError

#: Rows up to which it is worth while: larger steps keep the device busy for longer.
MAX_ROWS = 64
#: Steps of a shape before it is captured, which costs as much as some steps.
PATIENCE = 8
#: Shapes that are kept; the oldest goes.
MAX_SHAPES = 64


@dataclass
class _Steps:
    """Steps of one shape.

    Attributes:
        inputs: What they read, the same object for one shape; kept, so that its identity is.
        count: Those that were not captured.
        graph: Once captured.
        tensors: What the graph works on, kept as long as it is.
    """

    inputs: StepInputs
    count: int = 0
    graph: Graph | None = None
    tensors: tuple[KernelCall, ...] = ()


class Graphs:
    """Decides which steps are captured, and launches them. Use it from one thread.

    Args:
        arena: For what captured steps compute in between.
        open_recorder: Makes the recorder when the first step is to be captured.
        open_capture: Makes what captures.
        function: Gives a kernel of the engine by its name.

    Attributes:
        enabled: Whether steps are captured and launched as graphs.
        launched: Steps that were.
    """

    def __init__(
        self,
        arena: Arena,
        open_recorder: Callable[[], Recorder],
        open_capture: Callable[[], Capture],
        function: Callable[[str], Callable[..., Any]],
    ) -> None:
        self.enabled = True
        self.launched = 0
        self._arena = arena
        self._open_recorder = open_recorder
        self._open_capture = open_capture
        self._function = function
        self._recorder: Recorder | None = None
        self._capture: Capture | None = None
        self._steps: dict[int, _Steps] = {}  # by the identity of their inputs

    def step(self, inputs: StepInputs, arguments: Sequence[Any]) -> bool:
        """Run a step if its shape was captured, or has come often enough to be captured now.

        Args:
            inputs: Of the step.
            arguments: All of the step's arguments, inputs up to date; for the same inputs they are
                the same, or `clear` has been called.

        Returns:
            Whether the step was run; else the caller has to.
        """
        if not self.enabled or inputs.shape[0] > MAX_ROWS:
            return False
        steps = self._steps.get(id(inputs)) or self._remember(inputs)
        if steps.graph is not None:
            steps.graph.launch()
            self.launched += 1
            return True
        steps.count += 1
        return steps.count >= PATIENCE and self._capture_step(steps, arguments)

    def clear(self) -> None:
        """Forget the captured steps: weights, pools or results have moved, or the engine is
        closed."""
        self._steps.clear()

    def _remember(self, inputs: StepInputs) -> _Steps:
        if len(self._steps) >= MAX_SHAPES:
            self._steps.pop(next(iter(self._steps)))
        return self._steps.setdefault(id(inputs), _Steps(inputs))

    def _capture_step(self, steps: _Steps, arguments: Sequence[Any]) -> bool:
        """Run a step and capture its kernels; without graphs where that is not possible."""
        if self._recorder is None:
            self._recorder = self._open_recorder()
        recording = self._recorder.record(arguments)
        try:
            calls = self._arena.place(recording, arguments)
            if self._capture is None:
                self._capture = self._open_capture()
            run = self._runner(calls)
            run()  # loads what is loaded at a kernel's first call, and gives the same results
            steps.graph = self._capture.graph_of(run)
            steps.tensors = tuple(calls)
        except (NotReplayableError, NotCapturedError) as error:
            self.enabled = False
            warnings.warn(f"steps run without CUDA graphs: {error}", RuntimeWarning, stacklevel=2)
        return True

    def _runner(self, calls: Sequence[KernelCall]) -> Callable[[], None]:
        functions = [(self._function(call.name), call.arguments) for call in calls]

        def run() -> None:
            for function, arguments in functions:
                function(*arguments)

        return run
