"""The engines' own thread pool: every task once, whoever has a processor; and that it is used."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optc.backends.tvm.compiling import link as link_module
from optc.backends.tvm.compiling.link import link
from optc.backends.tvm.loaded import thread_pool
from optc.backends.tvm.loaded.thread_pool import SOURCE, ThreadPool
from optc.backends.tvm.replay.replay import PATIENCE
from optc.errors import ArtifactError
from tests.backends.tvm.engine_driver import Engine, EngineDriver

#: The body of a loop that takes a fifth of a millisecond a task, and notes how many tasks it has.
SPINNING = """
int spin_body(int task, struct group *group, int *seen) {
  unsigned long long begun = __builtin_ia32_rdtsc();
  while (__builtin_ia32_rdtsc() - begun < 500000) __builtin_ia32_pause();
  *seen = group->tasks;
  return task < 0;
}
"""

Body = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Group(ctypes.Structure):
    """What a loop's body is told of its launch."""

    _fields_ = [("sync", ctypes.c_void_p), ("tasks", ctypes.c_int)]


@pytest.fixture(scope="module", params=["futex", "posix"])
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The pool alone, as a library: with Linux's calls, and with those that macOS has."""
    folder = tmp_path_factory.mktemp("pool")
    path, source = folder / "pool.so", folder / "pool.c"
    define = "#define OPTC_POSIX\n" if request.param == "posix" else ""
    source.write_text(f'{define}#include "{SOURCE}"\n')
    link(str(path), [], [str(source)])
    return ctypes.CDLL(str(path))


@pytest.fixture
def threads_end() -> Iterator[None]:
    """No worker is left behind."""
    before = set(threading.enumerate())
    yield
    for worker in set(threading.enumerate()) - before:
        worker.join(timeout=60)
        assert not worker.is_alive()


def _launch(code: ctypes.CDLL, tasks: int, failing: int = -1) -> tuple[list[tuple[int, int]], int]:
    """(task, tasks) of every call of a loop's body, and what the launch returned."""
    seen: list[tuple[int, int]] = []

    @Body
    def body(task: int, group: int, _: int) -> int:
        seen.append((task, Group.from_address(group).tasks))
        return int(task == failing)

    return seen, code.optc_pool_launch(body, None, tasks)


@pytest.mark.usefixtures("threads_end")
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_task_runs_once(code: ctypes.CDLL, threads: int) -> None:
    pool = ThreadPool(code)
    pool.use(threads)
    rng = random.Random(threads)
    for _ in range(400):
        tasks = rng.choice([1, 2, 3, threads, 17])
        seen, result = _launch(code, tasks)
        assert sorted(seen) == [(task, tasks) for task in range(tasks)]
        assert result == 0
    code.optc_pool_use(None, 1)


@pytest.mark.usefixtures("threads_end")
def test_every_thread_has_the_same_number_of_tasks(code: ctypes.CDLL) -> None:
    pool = ThreadPool(code)
    pool.use(3)
    tasks = {tasks for _, tasks in _launch(code, 0)[0]}
    assert len(tasks) == 1
    assert tasks <= {1, *range(3, 49, 3)}  # 1: alone beside busy programs
    pool.use(1)
    assert _launch(code, 0)[0] == [(0, 1)]
    code.optc_pool_use(None, 1)


@pytest.mark.usefixtures("threads_end")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_failing_task_fails_the_launch_and_not_the_next_one(
    code: ctypes.CDLL, threads: int
) -> None:
    pool = ThreadPool(code)
    pool.use(threads)
    assert _launch(code, 9, failing=4)[1] == -1
    assert _launch(code, 9)[1] == 0
    code.optc_pool_use(None, 1)


def test_other_threads_than_the_pools_run_their_loops_alone(code: ctypes.CDLL) -> None:
    seen, result = _launch(code, 5)
    assert seen == [(task, 5) for task in range(5)]
    assert result == 0


@pytest.mark.usefixtures("threads_end")
def test_launches_from_several_threads_do_not_mix(code: ctypes.CDLL) -> None:
    wrong: list[Any] = []

    def serve() -> None:
        pool = ThreadPool(code)
        pool.use(3)
        for tasks in range(1, 60):
            seen, _ = _launch(code, tasks)
            if sorted(task for task, _ in seen) != list(range(tasks)):
                wrong.append(seen)
        code.optc_pool_use(None, 1)

    servers = [threading.Thread(target=serve) for _ in range(3)]
    for server in servers:
        server.start()
    for server in servers:
        server.join()
    assert not wrong


@pytest.mark.usefixtures("threads_end")
def test_work_goes_on_where_a_worker_is_held_up(code: ctypes.CDLL) -> None:
    """Tasks that nobody has begun are not left to a worker that stands still in another one."""
    pool = ThreadPool(code)
    pool.use(2)
    main, release = threading.get_ident(), threading.Event()
    done: list[int] = []
    in_time: list[bool] = []

    @Body
    def body(task: int, group: int, _: int) -> int:
        if threading.get_ident() != main and len(done) < 19:
            in_time.append(release.wait(60))
        done.append(task)
        if len(done) == 19:
            release.set()
        return 0

    for _ in range(20):
        done.clear()
        release.clear()
        assert code.optc_pool_launch(body, None, 20) == 0
        assert sorted(done) == list(range(20))
    assert all(in_time)
    code.optc_pool_use(None, 1)


@pytest.mark.usefixtures("threads_end")
def test_long_loops_are_cut_into_more_tasks_than_threads(code: ctypes.CDLL) -> None:
    pool = ThreadPool(code)
    pool.use(2)
    seen: list[tuple[int, int]] = []

    @Body
    def body(task: int, group: int, _: int) -> int:
        tasks = Group.from_address(group).tasks
        seen.append((task, tasks))
        time.sleep(0.01 / tasks)
        return 0

    counts = []
    for _ in range(8):
        seen.clear()
        assert code.optc_pool_launch(body, None, 0) == 0
        counts.append(seen[0][1])
        assert sorted(seen) == [(task, counts[-1]) for task in range(counts[-1])]
    assert counts[0] in (1, 2)
    assert max(counts) > 8
    code.optc_pool_use(None, 1)


@pytest.mark.usefixtures("threads_end")
def test_a_worker_that_no_program_held_up_is_not_left_out(code: ctypes.CDLL) -> None:
    """It slept in a task, as a worker does whose processor a hypervisor has taken."""
    pool = ThreadPool(code)
    pool.use(2)
    main = threading.get_ident()
    helped: list[bool] = []

    @Body
    def body(task: int, group: int, _: int) -> int:
        helped.append(threading.get_ident() != main)
        time.sleep(0.3 if helped[-1] else 0.2)
        return 0

    for _ in range(3):
        helped.clear()
        assert code.optc_pool_launch(body, None, 2) == 0
        assert any(helped)
    code.optc_pool_use(None, 1)


@pytest.mark.usefixtures("threads_end")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_workers_beside_a_busy_program_are_left_out(tmp_path: Path) -> None:
    """Some loops then run on the launching thread alone, in one task."""
    source, library = tmp_path / "spinning.c", tmp_path / "spinning.so"
    source.write_text(f'#include "{SOURCE}"\n{SPINNING}')
    link(str(library), [], [str(source)])
    code = ctypes.CDLL(str(library))
    before = os.sched_getaffinity(0)
    own, other = sorted(before)[:2]
    os.sched_setaffinity(0, {other})  # the program and the worker inherit that
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        pool = ThreadPool(code)
        pool.use(2)
        os.sched_setaffinity(0, {own})
        tasks = ctypes.c_int(0)
        deadline = time.monotonic() + 60
        while tasks.value != 1 and time.monotonic() < deadline:
            assert code.optc_pool_launch(code.spin_body, ctypes.byref(tasks), 0) == 0
        assert tasks.value == 1
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, before)
        code.optc_pool_use(None, 1)


def test_engines_launch_their_loops_on_it(engines: Callable[[str], Engine]) -> None:
    """Also after the engine was opened again, to record a step."""
    engine = engines("int8")
    library = engine.folder / "engine.so"
    driver = EngineDriver(engine.load(threads=2))
    code = thread_pool._pool_code(library)
    ours = ctypes.cast(code.optc_pool_launch, ctypes.c_void_p).value
    pointer = ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), thread_pool._LAUNCHER)
    for token in range(PATIENCE + 2):
        assert pointer.value == ours
        driver.step({0: [token]})
    assert pointer.value == ours
    assert any(worker.name == "optc-worker" for worker in threading.enumerate())
    driver.engine.close()


def test_an_engine_without_a_pool_is_refused(tmp_path: Path) -> None:
    library = tmp_path / "old.so"
    source = tmp_path / "old.c"
    source.write_text("int nothing;\n")
    link(str(library), [], [str(source)])
    ffi = SimpleNamespace(load_module=lambda path: path)
    thread_pool.want_threads(2)
    with pytest.raises(ArtifactError, match=r"old\.so: the engine has no thread pool"):
        thread_pool.load_library(ffi, library)


def test_a_file_is_loaded_once_until_it_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, source = tmp_path / "engine.so", tmp_path / "engine.c"
    loaded: list[str] = []

    def load_module(path: str) -> int:
        """The number in the code that the system's loader gives for the path."""
        loaded.append(path)
        return ctypes.c_int.in_dll(ctypes.CDLL(path), "number").value

    ffi = SimpleNamespace(load_module=load_module)
    monkeypatch.setattr(thread_pool._own, "threads", None)  # their loops are not for us
    for number in (1, 2, 3):
        source.write_text(f"int number = {number};\n")
        link(str(tmp_path / "new.so"), [], [str(source)])
        (tmp_path / "new.so").replace(library)
        assert [thread_pool.load_library(ffi, library) for _ in range(2)] == [number] * 2
    assert len(loaded) == 3


def test_the_source_is_compiled_for_any_cpu_by_zig_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("ziglang")
    monkeypatch.setattr(link_module, "COMPILERS", ())
    output = tmp_path / "pool.so"
    link(str(output), [], [str(SOURCE)])
    assert ctypes.CDLL(str(output)).optc_pool_bytes() > 0
