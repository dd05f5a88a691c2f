"""`AdapterTable`: names of loaded adapters, and which slot of the engine each of them has."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import count as counting

from optc.errors import RequestError
from optc.runtime.executable.adapter_spec import AdapterSpec


@dataclass(frozen=True)
class Adapter:
    """A loaded adapter.

    Attributes:
        name: What requests call it.
        slot: Its place in the engine's pools.
        generation: Differs between any two that were ever loaded, also under one name, so that
            cached prefixes of a former one are never taken for its own.
    """

    name: str
    slot: int
    generation: int


class AdapterTable:
    """Slots and who uses them. Thread-safe: requests take adapters on their caller's thread, where
    a signal handler or a finalizer may interrupt them and do the same. So there is no lock: each
    change is one operation of a container, and whoever makes an adapter's last hold go frees its
    slot.

    An adapter that is unloaded keeps its slot until the last request that began with it ends.

    Args:
        spec: Of the engine; None where it takes no adapters.
    """

    def __init__(self, spec: AdapterSpec | None) -> None:
        self._spec = spec
        self._free = list(range(spec.max if spec else 0))[::-1]
        self._named: dict[str, Adapter] = {}
        self._holds: dict[Adapter, deque[None]] = {}  # one by the name, one by each completion
        self._generations = counting(1)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the loaded adapters, sorted."""
        return tuple(sorted(self._named))

    @property
    def in_use(self) -> bool:
        """Some slot of the engine holds an adapter, or will."""
        return self._spec is not None and len(self._free) < self._spec.max

    def reserve(self, name: str) -> Adapter:
        """A free slot for an adapter; `publish` makes it known once its weights are there.

        Raises:
            RequestError: The name is taken, or no slot is free.
        """
        if name in self._named:
            raise _taken(name)
        try:
            return Adapter(name, self._free.pop(), next(self._generations))
        except IndexError as error:
            most = self._spec.max if self._spec else 0
            raise RequestError(
                f"all {most} places for adapters are in use",
                where="adapter",
                hint="unload one, or compile with a larger --adapters max",
            ) from error

    def publish(self, adapter: Adapter) -> None:
        """Let requests use a reserved adapter.

        Raises:
            RequestError: Another one has got its name meanwhile.
        """
        self._holds[adapter] = deque([None])
        if self._named.setdefault(adapter.name, adapter) is not adapter:
            del self._holds[adapter]
            raise _taken(adapter.name)

    def abandon(self, adapter: Adapter) -> None:
        """Give a reserved slot back that was not published."""
        self._free.append(adapter.slot)

    def unload(self, name: str) -> None:
        """Forget a name; requests that began with it go on.

        Raises:
            RequestError: No adapter of that name.
        """
        adapter = self._named.pop(name, None)
        if adapter is None:
            raise self._unknown(name)
        self.release(adapter)

    def check(self, name: str) -> None:
        """Do nothing if there is an adapter of that name.

        Raises:
            RequestError: There is none.
        """
        if name not in self._named:
            raise self._unknown(name)

    def take(self, name: str, count: int) -> Adapter:
        """The adapter of that name, held until ``count`` times `release`.

        Raises:
            RequestError: No adapter of that name.
        """
        adapter = self._named.get(name)
        holds = None if adapter is None else self._holds.get(adapter)
        if adapter is None or holds is None:
            raise self._unknown(name)
        holds.extend([None] * count)
        if self._named.get(name) is not adapter:  # unloaded meanwhile, and its slot perhaps freed
            for _ in range(count):
                self.release(adapter)
            raise self._unknown(name)
        return adapter

    def release(self, adapter: Adapter) -> None:
        """A request that took the adapter has ended."""
        holds = self._holds.get(adapter)
        if holds is None:
            return
        holds.pop()
        if not holds and self._holds.pop(adapter, None) is not None:
            self._free.append(adapter.slot)

    def _unknown(self, name: str) -> RequestError:
        if self._spec is None:
            return RequestError(
                "the artifact takes no adapters",
                where="adapter",
                hint="compile it with --adapters max=8,rank=16",
            )
        return RequestError(
            f"no adapter {name!r} is loaded",
            where="adapter",
            hint=f"loaded: {', '.join(self.names) or 'none'}",
        )


def _taken(name: str) -> RequestError:
    return RequestError(
        f"an adapter {name!r} is loaded already",
        where="adapter",
        hint="unload it first, or choose another name",
    )
