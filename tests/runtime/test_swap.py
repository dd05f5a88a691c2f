"""An engine gets other weights between two requests, and back: each answer is that of one artifact
served alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import optc
from optc import registry
from optc.artifact.artifact import Artifact
from optc.errors import ArtifactError, EngineError, InputError
from optc.runtime import loader
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, StepBatch
from optc.runtime.handle import Handle
from optc.runtime.params import SamplingParams
from tests.runtime.support.artifacts import SPEC, ToyBackend, write_artifact
from tests.runtime.support.toy import SwappingToy, ToyExecutable

PATIENCE_S = 120
#: Artifacts, and their weights.
NAMED = (("a", "1"), ("b", "2"))
LONG = [5 + i % 40 for i in range(24)]
PROMPTS = [[5, 6, 7], LONG, [*LONG, 9]]
PARAMS = SamplingParams(temperature=0.9, seed=4, max_tokens=20, ignore_eos=True, logprobs=2)


class Gate:
    """Lets steps go, or holds them up."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.steps = 0

    def pass_through(self) -> None:
        self.steps += 1
        assert self.open.wait(PATIENCE_S)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Before each step of each toy."""
    found, step = Gate(), ToyExecutable.step

    def gated(self: ToyExecutable, batch: StepBatch) -> Float32:
        found.pass_through()
        return step(self, batch)

    monkeypatch.setattr(ToyExecutable, "step", gated)
    return found


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ToyBackend:
    toy = ToyBackend()
    monkeypatch.setattr(registry, "backend", {"toy": toy}.__getitem__)
    return toy


@pytest.fixture
def artifacts(tmp_path: Path, backend: ToyBackend) -> tuple[Path, Path]:
    """Two that differ in weights alone."""
    return tuple(  # type: ignore[return-value]
        write_artifact(tmp_path / name, weights=seed).path for name, seed in NAMED
    )


def load(path: Path, **settings: Any) -> Engine:
    return optc.load(path, kv_memory="1MiB", threads=1, **settings)


def answers(engine: Engine, params: SamplingParams = PARAMS) -> list[Any]:
    """Tokens and log-probabilities, bit by bit."""
    return [_answer(output) for output in engine.generate(PROMPTS, params)]


def _answer(output: optc.RequestOutput) -> Any:
    return output.token_ids, output.completions[0].logprobs


def alone(path: Path) -> list[Any]:
    with load(path) as engine:
        return answers(engine)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"answer_cache": "1MiB"},
        {"speculate": "ngram", "num_speculative_tokens": 2},
        {"prefix_spill": "1MiB", "block_size": 4},
        {"prefix_cache": False},
    ],
)
def test_there_and_back_answers_are_those_of_each_artifact_alone(
    artifacts: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    a, b = artifacts
    expected = {a: alone(a), b: alone(b)}
    assert expected[a] != expected[b]
    with load(a, **settings) as engine:
        plan = engine.kv_plan
        for path in (b, a, a, b):
            assert answers(engine) in expected.values()
            engine.swap(path)
            assert answers(engine) == expected[path]
            assert engine.info is not None
            assert engine.info.artifact == path
            assert engine.kv_plan == plan
        metrics = engine.metrics()
        assert sum(metrics.finished.values()) + metrics.answer_hits == 8 * len(PROMPTS)


def test_no_prefix_of_old_weights_is_used(artifacts: tuple[Path, Path]) -> None:
    a, b = artifacts
    with load(a, block_size=4) as engine:
        first, second = (engine.generate([LONG], PARAMS)[0] for _ in range(2))
        assert first.completions[0].metrics.cached_tokens == 0
        assert second.completions[0].metrics.cached_tokens > 0
        engine.swap(b)
        third = engine.generate([LONG], PARAMS)[0]
        assert third.completions[0].metrics.cached_tokens == 0
        assert _answer(third) == alone(b)[1]


def test_what_was_handed_in_before_ends_on_the_old_weights_and_later_ones_wait(
    artifacts: tuple[Path, Path], gate: Gate
) -> None:
    a, b = artifacts
    expected = {path: alone(path) for path in artifacts}
    with load(a, max_sequences=2) as engine:
        gate.open.clear()
        begun = gate.steps
        before = [engine.submit(prompt, PARAMS) for prompt in PROMPTS]
        until(lambda: gate.steps > begun)
        many = threading.Thread(target=lambda: engine.generate(PROMPTS, PARAMS))
        waiting = engine._worker._inbox.qsize()  # of those before, some may have been taken
        many.start()
        until(lambda: engine._worker._inbox.qsize() == waiting + 1)
        swapping = threading.Thread(target=lambda: engine.swap(b))
        swapping.start()
        until(lambda: engine._worker._inbox.qsize() == waiting + 2)
        after = [engine.submit(prompt, PARAMS) for prompt in PROMPTS]
        assert swapping.is_alive()
        assert not any(handle.done for handle in before)
        gate.open.set()
        swapping.join(PATIENCE_S)
        many.join(PATIENCE_S)
        assert all(handle.done for handle in before)
        assert [_answer(handle.result()) for handle in before] == expected[a]
        assert [_answer(handle.result()) for handle in after] == expected[b]
        digests = [[one.served_by.digest for one in of if one.served_by] for of in (before, after)]
        assert [set(of) for of in digests] == [{digest(a)}, {digest(b)}]


def held_up(gate: Gate, engine: Engine, params: SamplingParams) -> Handle:
    """A request whose first step has begun and does not end: all messages wait."""
    gate.open.clear()
    begun = gate.steps
    handle = engine.submit([5], params)
    until(lambda: gate.steps > begun)
    return handle


def digest(path: Path) -> str:
    from optc.artifact.artifact import read_manifest

    return read_manifest(path).digest


def test_a_batch_that_came_before_runs_on_the_old_weights_to_its_last_text(
    artifacts: tuple[Path, Path], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optc.runtime.loop.worker.AT_ONCE", 1)  # others have their turns between
    a, b = artifacts
    with load(a) as engine:
        expected = [_answer(one) for one in engine.generate([LONG[:9]] * 6, PARAMS)]
        held = held_up(gate, engine, PARAMS)
        found: list[Any] = []
        texts = [LONG[:9]] * 6
        many = threading.Thread(target=lambda: found.extend(engine.generate(texts, PARAMS)))
        many.start()
        until(lambda: engine._worker._inbox.qsize() == 1)
        swapping = threading.Thread(target=lambda: engine.swap(b))
        swapping.start()
        until(lambda: engine._worker._inbox.qsize() == 2)
        gate.open.set()
        for thread in (many, swapping):
            thread.join(PATIENCE_S)
        assert held.done
        assert [_answer(one) for one in found] == expected


def test_ends_are_not_held_up_by_a_swap_that_waits(
    artifacts: tuple[Path, Path], gate: Gate
) -> None:
    a, b = artifacts
    with load(a) as engine:
        running = held_up(gate, engine, PARAMS.changed(max_tokens=60))
        errors: list[BaseException] = []

        def swap() -> None:
            try:
                engine.swap(b)
            except EngineError as error:
                errors.append(error)

        swapping = threading.Thread(target=swap)
        swapping.start()
        until(lambda: engine._worker._inbox.qsize() > 0)
        later, last = (engine.submit(LONG, PARAMS) for _ in range(2))
        later.cancel()
        running.cancel()
        gate.open.set()
        swapping.join(PATIENCE_S)
        assert running.result().finish_reason == "cancelled"
        assert later.result().finish_reason == "cancelled"
        assert _answer(last.result()) == alone(b)[1]
        assert not errors

        running = held_up(gate, engine, PARAMS)
        swapping = threading.Thread(target=swap)
        swapping.start()
        until(lambda: engine._worker._inbox.qsize() > 0)
        closing = threading.Thread(target=engine.close)
        closing.start()
        until(lambda: engine._worker._inbox.qsize() > 1)
        gate.open.set()
        for thread in (swapping, closing):
            thread.join(PATIENCE_S)
    assert running.result().finish_reason == "cancelled"
    assert [str(error) for error in errors] == ["the engine failed"]


def test_kept_answers_are_those_of_the_weights(artifacts: tuple[Path, Path]) -> None:
    a, b = artifacts
    with load(a, answer_cache="1MiB") as engine:
        first = answers(engine)
        engine.swap(b)
        second = answers(engine)
        assert engine.metrics().answer_hits == 0
        engine.swap(a)
        steps = engine.metrics().steps
        assert answers(engine) == first
        assert (engine.metrics().answer_hits, engine.metrics().steps) == (len(PROMPTS), steps)
        engine.swap(b)
        assert answers(engine) == second


def test_an_answer_is_kept_for_the_weights_that_gave_it(
    artifacts: tuple[Path, Path], gate: Gate
) -> None:
    """Looked for under the old weights, computed with the new ones."""
    a, b = artifacts
    expected = {path: alone(path) for path in artifacts}
    with load(a, answer_cache="1MiB") as engine:
        held = held_up(gate, engine, PARAMS)
        swapping = threading.Thread(target=lambda: engine.swap(b))
        swapping.start()
        until(lambda: engine._worker._inbox.qsize() > 0)
        asked = engine.submit(LONG, PARAMS)
        gate.open.set()
        swapping.join(PATIENCE_S)
        assert held.done
        assert _answer(asked.result()) == expected[b][1]
        engine.swap(a)
        assert answers(engine) == expected[a]
        engine.swap(b)
        assert answers(engine)[1] == expected[b][1]


def test_who_sleeps_wakes_with_the_new_weights(artifacts: tuple[Path, Path]) -> None:
    a, b = artifacts
    with load(a, sleep_after=0.02) as engine:
        until(lambda: engine.health().asleep)
        engine.swap(b)
        assert answers(engine) == alone(b)
        until(lambda: engine.health().asleep)
        assert answers(engine) == alone(b)


def test_what_drafts_comes_from_the_new_artifact(tmp_path: Path, backend: ToyBackend) -> None:
    a, b = (
        write_artifact(tmp_path / name, weights=seed, roles=("target", "draft")).path
        for name, seed in NAMED
    )
    plain = alone(b)
    backend.calls.clear()
    backend.loaded.clear()
    with load(a, speculate="draft", num_speculative_tokens=2) as engine:
        engine.swap(b)
        target, old, new = backend.loaded
        assert [one.closed for one in (target, old, new)] == [False, True, False]
        assert backend.calls[-1][0] == b / "engines" / "draft"
        assert answers(engine) == plain
        assert engine.metrics().accepted_tokens > 0
    assert new.closed


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "code": ({"code": b"other"}, "another engine: engines/target/engine.bin differs"),
    "interface": ({"vocab": 260}, "another engine: the 'interface' of 'target' differs"),
    "template": ({"chat_template": "hi"}, "tokenizer/chat_template.jinja differs"),
    "tokenizer": ({"tokenizer": False}, "the conventions of the tokenizer differ"),
    "generation": ({"generation": {"top_k": 3}}, "the defaults of generation differ"),
    "engine": ({"roles": ("draft",)}, "has no engine 'target'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_differs_in_more_than_weights_is_refused(
    artifacts: tuple[Path, Path], tmp_path: Path, what: str
) -> None:
    changes, message = REFUSED[what]
    other = write_artifact(tmp_path / "other", **{"weights": "2", **changes}).path
    with load(artifacts[0]) as engine:
        with pytest.raises(InputError) as refused:
            engine.swap(other)
        assert refused.value.message == message
        assert str(other) in refused.value.where
        assert answers(engine) == alone(artifacts[0])


def test_a_damaged_artifact_leaves_the_old_weights(artifacts: tuple[Path, Path]) -> None:
    a, b = artifacts
    (b / "engines" / "target" / "weights.bin").write_text("3")
    with load(a) as engine:
        with pytest.raises(ArtifactError, match="corrupted"):
            engine.swap(b)
        assert answers(engine) == alone(a)


def test_weights_that_cannot_be_opened_leave_the_old_ones(
    artifacts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: SwappingToy, folder: Path) -> None:
        raise ArtifactError("the weights are too few", where="weights.bin")

    monkeypatch.setattr(SwappingToy, "use_weights", refuse)
    a, b = artifacts
    with load(a, speculate="ngram") as engine:
        with pytest.raises(ArtifactError, match="too few"):
            engine.swap(b)
        assert engine.info is not None
        assert engine.info.artifact == a
        assert answers(engine) == alone(a)


def test_an_engine_that_cannot_go_on_ends(
    artifacts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = artifacts
    with load(a, prefix_spill="1MiB", speculate="ngram", num_speculative_tokens=1) as engine:

        def fail(*arguments: object) -> None:
            raise InputError("no room", where="pools")

        monkeypatch.setattr(SwappingToy, "allocate_kv", fail)
        with pytest.raises(EngineError) as failed:
            engine.swap(b)
        assert "cannot go on with new weights" in str(failed.value.__cause__)
        assert engine.health().state == "failed"


def test_kinds_of_engines_that_swap_nothing(tmp_path: Path, backend: ToyBackend) -> None:
    paths = [write_artifact(tmp_path / name).path for name in "ab"]
    with load(paths[0]) as engine, pytest.raises(InputError) as refused:
        engine.swap(paths[1])
    assert "the weights of this kind of engine cannot be exchanged" in refused.value.message
    with (
        Engine(lambda: ToyExecutable(SPEC)) as engine,
        pytest.raises(InputError, match="loaded from no artifact"),
    ):
        engine.swap(paths[0])


def test_weights_in_a_stated_memory_are_not_exchanged(
    artifacts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = artifacts
    with load(a) as engine:
        expected = answers(engine)
        kept = loader.with_changes(engine.settings, {"resident_memory": "1MiB"})
        opened = Artifact.open(a)
        monkeypatch.setattr(
            engine,
            "replacement",
            lambda path: loader._replacement(opened, opened.choose(), path, (), kept),
        )
        with pytest.raises(InputError, match="keeps a part of its weights in memory"):
            engine.swap(b)
        assert answers(engine) == expected
