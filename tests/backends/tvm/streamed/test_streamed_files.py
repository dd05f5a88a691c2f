"""Engines of which a part of the weights stays in memory: the same bits, at every budget."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optc.backends.tvm import BACKEND
from optc.backends.tvm.engine_data import read_data
from optc.backends.tvm.streamed import hot_set
from optc.backends.tvm.streamed import pieces as pieces_module
from optc.backends.tvm.streamed.streamed_files import StreamedFiles
from optc.backends.tvm.weights.weights_file import WeightFiles
from optc.errors import ArtifactError, UnavailableError
from optc.runtime.executable.executable import Executable, StepInterface
from tests.backends.tvm.engine_driver import Engine, EngineDriver
from tests.backends.tvm.experts.models import CHOSEN, EXPERTS
from tests.backends.tvm.experts.test_engine import TOKENS, engine  # noqa: F401

KIB = 1 << 10


@pytest.fixture(autouse=True)
def small_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The experts of the test's model have few pages each; what was read once may stay."""
    monkeypatch.setattr(hot_set, "HOT", 0.0)
    monkeypatch.setattr(pieces_module, "LEAST_EXPERT", 1)
    monkeypatch.setattr(pieces_module, "CHUNK", 8 * KIB)


def load(engine: Engine, resident: int) -> Executable:  # noqa: F811
    data, spec = engine.build.backend_data, engine.build.spec
    assert isinstance(spec, StepInterface)
    return BACKEND.load_resident(engine.folder, spec, data, 2, resident)


def run(executable: Executable, steps: int = 24) -> list[np.ndarray[Any, Any]]:
    """Logits of prompts, and of decoding while other sequences come."""
    driver = EngineDriver(executable)
    logits = [driver.step({0: TOKENS[0][:30], 1: TOKENS[1][:5]})]
    logits += [driver.step({0: TOKENS[0][30 + i : 31 + i]}) for i in range(steps)]
    logits.append(driver.step({2: TOKENS[2][:33], 1: TOKENS[1][5:6]}))
    executable.close()
    return logits


@pytest.fixture(scope="module")
def expected(engine: Engine) -> list[np.ndarray[Any, Any]]:  # noqa: F811
    return run(engine.load())


@pytest.mark.parametrize("resident", [0, 64 * KIB, 150 * KIB])
def test_steps_have_the_same_bits(
    engine: Engine,  # noqa: F811
    expected: list[np.ndarray[Any, Any]],
    resident: int,
) -> None:
    for ours, theirs in zip(run(load(engine, resident)), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


class _Followed:
    """The streamer of the engine that is loaded next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[StreamedFiles] = []
        made = StreamedFiles.__init__

        def init(files: StreamedFiles, *arguments: Any) -> None:
            made(files, *arguments)
            self.files.append(files)

        monkeypatch.setattr(StreamedFiles, "__init__", init)


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> _Followed:
    return _Followed(monkeypatch)


def test_uses_are_those_of_the_router(
    engine: Engine,  # noqa: F811
    followed: _Followed,
) -> None:
    """In a step of one row, a mixture reads as many experts as a token has."""
    executable = load(engine, 64 * KIB)
    (files,) = followed.files
    driver = EngineDriver(executable)
    driver.step({0: TOKENS[0][:1]})
    cut, hot = files._pieces, files.streamer.hot
    mixtures = [t for t in range(len(cut.bounds)) if cut.by_expert(t)]
    assert mixtures
    for tensor in mixtures:
        bounds = cut.bounds[tensor]
        assert len(bounds) == EXPERTS + 1
        units = [range(a, b) for a, b in itertools.pairwise(bounds) if a < b]
        used = [any(hot.count_of(piece) for piece in unit) for unit in units]
        assert sum(used) <= CHOSEN
        assert len(units) < EXPERTS or sum(used) == CHOSEN
    for _ in range(3):
        driver.step({0: TOKENS[0][1:2]})
    files.streamer.wait()
    assert 48 * KIB < hot.bytes <= 64 * KIB
    executable.close()


def test_tables_of_which_single_rows_are_read_do_not_stay(
    engine: Engine,  # noqa: F811
    followed: _Followed,
) -> None:
    executable = load(engine, 490 * KIB)  # room for all that is asked for, not for all
    (files,) = followed.files
    driver = EngineDriver(executable)
    driver.step({0: TOKENS[0][:20]})
    names = [p.name for p in read_data(engine.build.backend_data).weights]
    (table,) = (i for i, name in enumerate(names) if "embed" in name)
    cut, hot = files._pieces, files.streamer.hot
    kept = [hot.kept[cut.of([i], None)] for i in range(len(names))]
    assert kept[table].size
    assert not kept[table].any()
    assert all(of.all() for i, of in enumerate(kept) if i != table and not cut.by_expert(i))
    executable.close()


def test_a_limit_above_the_weights_is_none(
    engine: Engine,  # noqa: F811
    followed: _Followed,
) -> None:
    executable = load(engine, 1 << 30)
    assert not followed.files
    executable.close()


def test_a_system_that_cannot_keep_pages_is_told_apart(
    engine: Engine,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[WeightFiles] = []
    close = WeightFiles.close

    def noted(files: WeightFiles) -> None:
        closed.append(files)
        close(files)

    def refuse(_: object) -> None:
        raise UnavailableError("no", where="resident_memory")

    monkeypatch.setattr(WeightFiles, "close", noted)
    monkeypatch.setattr("optc.backends.tvm.streamed.streamed_files.check_system", refuse)
    with pytest.raises(UnavailableError, match="no"):
        load(engine, 64 * KIB)
    assert len(closed) == 1


def test_a_file_that_is_too_short_is_refused(
    engine: Engine,  # noqa: F811
    tmp_path: Path,
) -> None:
    found = read_data(engine.build.backend_data)
    (tmp_path / "short").write_bytes(b"\0" * 100)
    with pytest.raises(ArtifactError, match="the file has 100 bytes"):
        StreamedFiles(tmp_path / "short", tmp_path / "none", found.weights, 0, 1000)
