"""Many requests through an engine, in order, without having all of them there at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from optc.runtime.engine import Engine
from optc.runtime.handle import Handle
from optc.runtime.outputs import RequestOutput
from optc.runtime.requests.generation_request import GenerationRequest

#: Requests that are submitted ahead, in sequences that the engine serves at once.
_AHEAD = 4


def served(engine: Engine, requests: Iterable[GenerationRequest]) -> Iterator[RequestOutput]:
    """Results in the order of ``requests``, which are made as they are needed.

    Raises:
        RequestError: A request is invalid.
        EngineError: The engine failed.
    """
    waiting: deque[Handle] = deque()
    try:
        for request in requests:
            waiting.append(engine.submit(request))
            if len(waiting) > _AHEAD * engine.spec.max_sequences:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # an interrupt must not leave requests running
        for handle in waiting:
            handle.cancel()
