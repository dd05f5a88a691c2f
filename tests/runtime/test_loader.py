from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import optc
from optc import registry
from optc.artifact import verify
from optc.errors import InputError
from optc.system.hardware.target import Target, parse_target, usable_threads
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.runtime.support.toy import ToyModel, generate_naively


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ToyBackend:
    toy = ToyBackend()
    monkeypatch.setattr(registry, "backend", {"toy": toy}.__getitem__)
    return toy


def test_an_artifact_generates(tmp_path: Path, backend: ToyBackend) -> None:
    artifact = write_artifact(tmp_path / "toy")
    spec = artifact.manifest.engines[0].spec
    with optc.load(tmp_path / "toy", kv_memory="64KiB", threads=1) as engine:
        assert engine.eos_token_ids == (1,)
        assert engine.kv_plan.bytes <= 64 << 10
        assert engine.tokenizer is not None
        prompt = engine.tokenizer.encode("hi")
        assert prompt[0] == 0, "the manifest asks for a BOS token"
        result = engine.generate("hi", optc.SamplingParams(temperature=0, max_tokens=9))[0]
        chat = engine.tokenizer.encode_chat([{"role": "user", "content": "hi"}])
        assert chat == prompt
    expected = generate_naively(ToyModel.seeded(spec), prompt, 9, frozenset({1}))
    assert list(result.token_ids) == expected
    assert backend.calls == [(tmp_path / "toy" / "engines" / "target", {"seed": 0}, 1)]


def test_a_part_of_the_weights_stays_where_a_backend_can_do_that(
    tmp_path: Path, backend: ToyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_artifact(tmp_path / "toy")
    with pytest.raises(InputError, match="backend toy keep all their weights") as raised:
        optc.load(tmp_path / "toy", resident_memory="1MiB")
    assert raised.value.where == "resident_memory"
    asked: list[int] = []

    def load_resident(folder: Path, spec: Any, data: Any, threads: int, resident: int) -> Any:
        asked.append(resident)
        return backend.load(folder, spec, data, threads)

    monkeypatch.setattr(backend, "load_resident", load_resident, raising=False)
    with optc.load(tmp_path / "toy", resident_memory="1MiB", kv_memory="64KiB") as engine:
        assert engine.generate([[1, 2]])[0].output_tokens == 16
    assert asked == [1 << 20]


def test_an_artifact_without_tokenizer_takes_tokens(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "toy", tokenizer=False)
    with optc.load(tmp_path / "toy", kv_memory=64 << 10) as engine:
        assert engine.tokenizer is None
        assert engine.generate([[1, 2]])[0].output_tokens == 16
    assert backend.calls[0][2] == usable_threads()


def test_of_several_engines_the_best_is_loaded_and_says_so(
    tmp_path: Path, backend: ToyBackend
) -> None:
    native, future = parse_target("native"), Target("future", "cpu", ("avx9000",))
    targets = (Target("any", "cpu"), native, future)
    path = write_artifact(tmp_path / "toy", targets=targets, roles=("target", "draft")).path
    with optc.load(path, kv_memory="1MiB") as engine:
        info = engine.info
    assert info is not None
    assert (info.artifact, info.name, info.backend, info.target) == (
        path,
        "target-native",
        "toy",
        "native",
    )
    assert [(other.name, other.reason) for other in info.rejected] == [
        ("target-any", "it fits, but target-native is preferred: it uses more of this CPU"),
        ("target-future", "it needs avx9000, which this CPU lacks"),
    ]
    with optc.load(path, engine="target-any", speculate="draft", kv_memory="1MiB") as engine:
        assert engine.info is not None
        assert engine.info.rejected[0].reason == "target-any was asked for"
    folders = [folder.name for folder, _, _ in backend.calls]
    assert folders == ["target-native", "target-any", "draft-any"]
    with pytest.raises(optc.UnavailableError, match="it needs avx9000"):
        optc.load(path, engine="target-future")
    with pytest.raises(optc.InputError, match="has no engine 'target-all'"):
        optc.load(path, engine="target-all")


def test_a_damaged_byte_is_found_before_loading(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "toy")
    damaged = tmp_path / "toy" / "engines" / "target" / "engine.bin"
    damaged.write_bytes(b"tox")
    with pytest.raises(optc.ArtifactError, match="corrupted") as caught:
        optc.load(tmp_path / "toy")
    assert caught.value.where == str(damaged)
    assert not backend.calls
    optc.load(tmp_path / "toy", verify="size").close()


_HEAVY = ("optc.runtime.engine", "optc.runtime.speculative.drafting", "tokenizers", "tvm_ffi")
_IMPORTED = f"import sys, optc.runtime.loader; print([m for m in {_HEAVY} if m in sys.modules])"


def test_little_is_imported_before_weights_are_hashed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.strip() == "[]"


class PreparedToy(ToyBackend):
    prepared: threading.Event

    def prepare(self) -> None:
        assert not self.calls
        self.prepared.set()


def test_backends_are_prepared_while_weights_are_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = PreparedToy()
    toy.prepared = threading.Event()
    monkeypatch.setattr(registry, "backend", {"toy": toy}.__getitem__)
    monkeypatch.setattr(verify, "_LARGE", 0)  # all files count as large
    check, waited = verify.check_contents, []

    def wait(path: Path, part: verify.Range) -> None:
        waited.append(toy.prepared.wait(60))
        check(path, part)

    monkeypatch.setattr(verify, "check_contents", wait)
    write_artifact(tmp_path / "toy")
    optc.load(tmp_path / "toy").close()
    assert waited
    assert all(waited)
    assert len(toy.calls) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_memory": "much"}, "kv_memory: 'much' is not a size"),
        ({"kv_memory": 10}, "kv_memory: 10 bytes hold no KV block"),
        ({"threads": 0}, "threads: 0 is too few"),
        ({"threads": 99_999}, "threads: 99999 threads on a machine with "),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens: 0 is too few"),
        ({"num_speculative_tokens": 4}, "num_speculative_tokens: 4 drafts are asked for, but n"),
        ({"token_budget": 0}, "token_budget: 0 is too few"),
        ({"max_sequences": 0}, "max_sequences: 0 is too few"),
        ({"max_drafted": 0}, "max_drafted: 0 is too few"),
        ({"prefill_chunk": -1}, "prefill_chunk: -1 is too few"),
    ],
)
def test_bad_options_are_named(
    tmp_path: Path, backend: ToyBackend, options: dict[str, int], message: str
) -> None:
    write_artifact(tmp_path / "toy")
    with pytest.raises(optc.InputError) as caught:
        optc.load(tmp_path / "toy", **options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_as_many_threads_as_cpus_are_allowed(
    tmp_path: Path, backend: ToyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_artifact(tmp_path / "toy")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    for threads in (1, 3):
        optc.load(tmp_path / "toy", threads=threads).close()
    assert [count for *_, count in backend.calls] == [1, 3]
    with pytest.raises(optc.InputError, match="4 threads on a machine with 3 CPUs"):
        optc.load(tmp_path / "toy", threads=4)


def test_an_engine_shows_what_it_is(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "toy")
    engine = optc.load(tmp_path / "toy", kv_memory="1MiB")
    shown = f"<optc.Engine '{tmp_path / 'toy'}': target (toy for any), "
    size = f"{engine.kv_plan.bytes / 2**20:.1f} MiB for keys and values"
    assert repr(engine) == f"{shown}{size}, running>"
    engine.close()
    assert repr(engine) == f"{shown}{size}, closed>"


def test_an_engine_takes_conversations(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "toy")
    greedy = optc.SamplingParams(temperature=0, max_tokens=5)
    messages = [{"role": "user", "content": "hi</s>"}]
    with optc.load(tmp_path / "toy", kv_memory="1MiB") as engine:
        output = engine.chat(messages, greedy)
        assert engine.tokenizer is not None
        assert list(output.prompt_token_ids) == engine.tokenizer.encode_chat(messages)
        assert 1 not in output.prompt_token_ids, "contents are text"
        chat = optc.Chat(messages)
        assert engine.submit(chat, greedy).result().token_ids == output.token_ids
        for prompts in (chat, [chat]):
            assert engine.generate(prompts, greedy)[0].token_ids == output.token_ids
        named = engine.chat(messages, greedy, variables={"bos_token": ""}, salt="a")
        assert named.prompt_token_ids == output.prompt_token_ids[1:]
        with pytest.raises(optc.RequestError, match="messages: the chat template fails"):
            engine.chat([])


DEFAULTS = {"repetition_penalty": 1.5, "max_tokens": 7, "top_k": 3, "stop": ["no such text"]}


def test_the_model_s_own_settings_hold_where_a_request_states_none(
    tmp_path: Path, backend: ToyBackend
) -> None:
    path = write_artifact(tmp_path / "toy", generation=DEFAULTS).path
    stated = {"temperature": 0, "ignore_eos": True, "repetition_penalty": 1.5, "max_tokens": 7}
    with optc.load(path, kv_memory="64KiB", generation_defaults=False) as engine:
        assert engine.defaults == {}
        plain = engine.generate("hi", optc.SamplingParams(temperature=0, ignore_eos=True))[0]
        wanted = engine.generate("hi", optc.SamplingParams(**stated))[0].token_ids
    with optc.load(path, kv_memory="64KiB") as engine:
        assert engine.defaults == DEFAULTS
        found = engine.generate("hi", optc.SamplingParams(temperature=0, ignore_eos=True))[0]
        undone = {**stated, "repetition_penalty": 1.0, "max_tokens": 16}
        again = engine.generate("hi", optc.SamplingParams(**undone))[0]
        assert len(engine.generate("hi")[0].token_ids) <= 7, "without params too"
        beams = engine.generate("hi", optc.SamplingParams(beam_width=2, ignore_eos=True))[0]
    assert found.token_ids == wanted != plain.token_ids[:7]
    assert again.token_ids == plain.token_ids
    assert {len(one.token_ids) for one in beams.completions} == {7}


@pytest.mark.parametrize("generation", [{"top_p": 3}, {"nope": 1}, {"temperature": "hot"}])
def test_settings_that_are_damaged_name_the_artifact(
    tmp_path: Path, backend: ToyBackend, generation: dict[str, object]
) -> None:
    path = write_artifact(tmp_path / "toy", generation=generation).path
    with pytest.raises(optc.ArtifactError, match="generation: ") as caught:
        optc.load(path)
    assert caught.value.where == str(path)
    optc.load(path, generation_defaults=False).close()
