"""The threads of parallel loops: a pool that every engine carries, in place of TVM's.

Kernels start their parallel loops through a pointer in the engine's library, which TVM sets to its
own pool whenever it loads the library. Here it is set to that of `sources/thread_pool.c`, which
says what differs. A pool belongs to the thread that loads engines and steps them; all engines of a
process use the code of the first one, so that a target and its draft have the same workers.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from optc.backends.tvm.loaded.libraries import File, file_at, name_of, open_library
from optc.errors import ArtifactError

#: Linked into every engine (`optc.backends.tvm.compiling.link`).
SOURCE = Path(__file__).parent.parent / "sources" / "thread_pool.c"
#: What kernels call to run a loop; TVM's code generator names it.
_LAUNCHER = "__TVMBackendParallelLaunch"
#: Alignment of a pool's memory.
_LINE = 64


class ThreadPool:
    """Workers for the parallel loops that one thread launches; they end with this object.

    Args:
        library: Code of the pool.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.optc_pool_bytes.restype = ctypes.c_size_t
        self._memory = np.zeros(library.optc_pool_bytes() + _LINE, np.uint8)
        address = -(-self._memory.ctypes.data // _LINE) * _LINE
        self._address = ctypes.c_void_p(address)
        self._workers = 0
        weakref.finalize(self, _stop, library, self._address, self._memory)

    def leave(self) -> None:
        """Let loops of the calling thread run on itself alone."""
        self._library.optc_pool_use(None, 1)

    def use(self, threads: int) -> None:
        """Let loops of the calling thread run on ``threads`` threads, itself included."""
        for _ in range(self._workers, threads - 1):
            threading.Thread(
                target=_work,
                args=(self._library, self._address, self._memory),
                name="optc-worker",
                daemon=True,
            ).start()
            self._workers += 1
        self._library.optc_pool_use(self._address, threads)


def _work(library: ctypes.CDLL, address: ctypes.c_void_p, memory: Any) -> None:
    """The life of a worker, which keeps the pool's ``memory``."""
    library.optc_pool_work(address)
    del memory


def _stop(library: ctypes.CDLL, address: ctypes.c_void_p, memory: Any) -> None:
    library.optc_pool_stop(address)
    del memory


class _Own(threading.local):
    """The settings of the calling thread: how many threads it wants, and its pool."""

    threads: int | None = None
    pool: ThreadPool | None = None


_own = _Own()
_lock = threading.Lock()  # several threads may load engines
_code_of_process: list[ctypes.CDLL] = []
_modules: dict[File, Any] = {}


def want_threads(threads: int) -> None:
    """Say how many threads the loops of engines that the calling thread loads next may use."""
    _own.threads = threads


class OwnThreads:
    """Threads of one engine, whichever thread calls it; calls take turns.

    Args:
        engine: Its library.
        threads: How many, the calling one included.
    """

    def __init__(self, engine: Path, threads: int) -> None:
        code = _pool_code(engine)
        _connect(engine, code)
        self._pool, self._threads = ThreadPool(code), threads
        self._turn = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """The calling thread's turn: its loops run on these threads, then on its own again."""
        with self._turn:
            self._pool.use(self._threads)
            try:
                yield
            finally:
                if _own.pool is None or _own.threads is None:
                    self._pool.leave()
                else:
                    _own.pool.use(_own.threads)


def load_library(ffi: ModuleType, engine: Path) -> Any:
    """TVM's module of ``engine``, whose parallel loops run on the calling thread's pool.

    Raises:
        ArtifactError: The engine carries no pool.
    """
    module = _module(ffi, engine)
    if _own.threads is None:
        return module
    code = _pool_code(engine)
    if _own.pool is None:
        _own.pool = ThreadPool(code)
    _own.pool.use(_own.threads)
    _connect(engine, code)
    return module


def _connect(engine: Path, code: ctypes.CDLL) -> None:
    """Let parallel loops of ``engine`` run on pools, with this code."""
    library = open_library(engine)
    if hasattr(library, _LAUNCHER):  # some loop is parallel
        launch = ctypes.cast(code.optc_pool_launch, ctypes.c_void_p)
        ctypes.c_void_p.in_dll(library, _LAUNCHER).value = launch.value


def _module(ffi: ModuleType, engine: Path) -> Any:
    """TVM's module of the file that ``engine`` is now. A process has one for each file, because
    TVM does not free all of a module that it loads again (50 KB)."""
    file = file_at(engine)
    with _lock:
        if file not in _modules:
            _modules[file] = ffi.load_module(name_of(engine))
        return _modules[file]


@cache
def _pool_code(engine: Path) -> ctypes.CDLL:
    """The code of the process's pools, which is that of the first engine."""
    library = open_library(engine)
    if not hasattr(library, "optc_pool_launch"):
        raise ArtifactError(
            "the engine has no thread pool: another optc compiled it",
            where=engine.name,
            hint="compile the artifact again",
        )
    with _lock:
        if not _code_of_process:
            _code_of_process.append(library)
        return _code_of_process[0]
