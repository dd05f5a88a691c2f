"""`AdapterTable`: names of loaded adapters, and which slot of the engine each of them has."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from optc.errors import RequestError
from optc.executable.adapter_spec import AdapterSpec


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
    """Slots and who uses them. Thread-safe: requests take adapters on their caller's thread.

    An adapter that is unloaded keeps its slot until the last request that began with it ends.

    Args:
        spec: Of the engine; None where it takes no adapters.
    """

    def __init__(self, spec: AdapterSpec | None) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._free = list(range(spec.max if spec else 0))[::-1]
        self._named: dict[str, Adapter] = {}
        self._users: dict[Adapter, int] = {}
        self._generation = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the loaded adapters, sorted."""
        with self._lock:
            return tuple(sorted(self._named))

    def reserve(self, name: str) -> Adapter:
        """A free slot for an adapter; `publish` makes it known once its weights are there.

        Raises:
            RequestError: The name is taken, or no slot is free.
        """
        with self._lock:
            if name in self._named:
                raise RequestError(
                    f"an adapter {name!r} is loaded already",
                    where="adapter",
                    hint="unload it first, or choose another name",
                )
            if not self._free:
                most = self._spec.max if self._spec else 0
                raise RequestError(
                    f"all {most} places for adapters are in use",
                    where="adapter",
                    hint="unload one, or compile with a larger --adapters max",
                )
            self._generation += 1
            return Adapter(name, self._free.pop(), self._generation)

    def publish(self, adapter: Adapter) -> None:
        """Let requests use a reserved adapter."""
        with self._lock:
            self._named[adapter.name] = adapter
            self._users[adapter] = 1  # the name itself

    def abandon(self, adapter: Adapter) -> None:
        """Give a reserved slot back that was not published."""
        with self._lock:
            self._free.append(adapter.slot)

    def unload(self, name: str) -> None:
        """Forget a name; requests that began with it go on.

        Raises:
            RequestError: No adapter of that name.
        """
        with self._lock:
            self._drop(self._find(name))
            del self._named[name]

    def take(self, name: str, count: int) -> Adapter:
        """The adapter of that name, held until ``count`` times `release`.

        Raises:
            RequestError: No adapter of that name.
        """
        with self._lock:
            adapter = self._find(name)
            self._users[adapter] += count
            return adapter

    def release(self, adapter: Adapter) -> None:
        """A request that took the adapter has ended."""
        with self._lock:
            self._drop(adapter)

    def _find(self, name: str) -> Adapter:
        if self._spec is None:
            raise RequestError(
                "the artifact takes no adapters",
                where="adapter",
                hint="compile it with --adapters max=8,rank=16",
            )
        if name not in self._named:
            raise RequestError(
                f"no adapter {name!r} is loaded",
                where="adapter",
                hint=f"loaded: {', '.join(sorted(self._named)) or 'none'}",
            )
        return self._named[name]

    def _drop(self, adapter: Adapter) -> None:
        self._users[adapter] -= 1
        if not self._users[adapter]:
            del self._users[adapter]
            self._free.append(adapter.slot)
