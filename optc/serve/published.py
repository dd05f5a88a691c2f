"""`Published`: how long clients of streams wait for the first bit that may be shown to a user."""

from __future__ import annotations

import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from optc.runtime.engine import Engine
from optc.runtime.metrics.quantiles import Quantiles


class Published:
    """Times from requests to the first text or call of their streams, thoughts left out."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._times: WeakKeyDictionary[Engine, Quantiles] = WeakKeyDictionary()

    def timer(self) -> Callable[[Engine], None]:
        """Begins now; the call of what it gives ends it."""
        began_s = self._clock()

        def end(engine: Engine) -> None:
            self._times.setdefault(engine, Quantiles()).add(self._clock() - began_s)

        return end

    def times(self, engine: Engine) -> Quantiles:
        """In seconds, of the streams of an engine."""
        return self._times.get(engine, Quantiles())
