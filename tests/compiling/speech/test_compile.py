"""The folder of a Whisper becomes an artifact that writes what transformers writes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

import optc
from optc import registry
from optc.compiling.speech import compile as compiling
from optc.errors import GateError, InputError, RequestError, UnsupportedError
from optc.importer.tensors.speech import import_speech
from tests.compiling.speech.transformers_tokens import written
from tests.compiling.speech.whisper import (
    DE,
    EN,
    MOST,
    NO_TIMES,
    RATE,
    SECONDS,
    sound,
)
from tests.runtime.audio.test_wav import riff

SOUNDS = [sound(seconds, seed) for seed, seconds in enumerate((0.3, 1.0, 1.9, 2.0, 0.7))]


def test_tokens_are_those_of_transformers(folder: Path, artifact: Path) -> None:
    for code in ("en", "de"):
        wanted = written(folder, SOUNDS, language=code, task="transcribe")
        with optc.load_transcriber(artifact) as transcriber:
            whole = transcriber.transcribe_all(SOUNDS, language=code, no_speech_threshold=None)
            alone = [
                transcriber.transcribe(one, language=code, no_speech_threshold=None)
                for one in SOUNDS
            ]
        assert [list(one.tokens) for one in whole] == wanted
        assert [one.tokens for one in alone] == [one.tokens for one in whole]
        assert any(len(one) not in (0, MOST - 4) for one in wanted), "some end"
        assert len({tuple(one) for one in wanted}) > 1
        assert whole[0].text == " ".join(f"w{token}" for token in wanted[0])
        assert whole[0].language == code


def test_the_language_is_found(folder: Path, artifact: Path) -> None:
    model = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    with optc.load_transcriber(artifact) as transcriber:
        for one in SOUNDS:
            features = extractor(one.samples, sampling_rate=one.rate, return_tensors="pt")
            token = model.detect_language(features.input_features)[0].item()
            assert transcriber.transcribe(one).language == {EN: "en", DE: "de"}[token]


def test_a_long_sound_goes_window_after_window(folder: Path, artifact: Path) -> None:
    long = [sound(seconds, seed) for seed, seconds in ((5, 4.7), (6, 9.3))]
    how = {"language": "en", "task": "transcribe", "return_timestamps": True}
    wanted = written(folder, long, **how)
    with optc.load_transcriber(artifact) as transcriber:
        found = transcriber.transcribe_all(
            [*long, SOUNDS[1]], language="en", no_speech_threshold=None
        )
    for one, tokens in zip(found, wanted, strict=False):
        texts = [token for token in one.tokens if token < NO_TIMES]
        assert texts == [token for token in tokens if token < NO_TIMES]
        ends = [(segment.start, segment.end) for segment in one.segments]
        assert ends == sorted(ends)
        assert all(0 <= start <= end <= one.seconds for start, end in ends)
    assert not found[2].segments


def test_times_of_a_short_sound(folder: Path, artifact: Path) -> None:
    with optc.load_transcriber(artifact) as transcriber:
        found = transcriber.transcribe(SOUNDS[3], language="en", timestamps=True)
    assert found.segments
    assert found.tokens[0] > NO_TIMES
    assert found.text == " ".join(filter(None, (segment.text for segment in found.segments)))


def test_draws_are_seeded(artifact: Path) -> None:
    with optc.load_transcriber(artifact) as transcriber:
        found = [
            transcriber.transcribe(SOUNDS[1], language="en", temperature=3.0, seed=seed).tokens
            for seed in (1, 1, 2)
        ]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("backend", [None, "onnxruntime"])
def test_int8_is_close(folder: Path, tmp_path: Path, backend: str | None) -> None:
    for index, one in enumerate(SOUNDS):
        data = (one.samples * 32767).astype("<i2").tobytes()
        (tmp_path / f"{index}.wav").write_bytes(riff(1, 16, data, rate=one.rate))
    made = optc.compile(
        folder,
        "speech-int8",
        tmp_path / "a",
        backend=backend,
        inputs=SOUNDS,
        calibration=tmp_path,
        gate=("token_agreement=0.9", "word_error_rate_added=none"),
        set=("quantize-blocks.float_first=2",),
    )
    backends = {one.backend for one in made.manifest.engines}
    assert backends == {backend or "tvm"}
    assert not any("runs in the backend" in one for one in made.report()["warnings"])
    counts: dict[str, list[int]] = {}
    for one in made.manifest.passes:
        counts.setdefault(one.name, []).append(one.count)
    if backend is None:
        # the second layer, and cross keys and values
        assert counts["quantize-weights"] == [4 + 2 * 2]
        # two convolutions and the first layer; a decoder's layers, and the head
        assert counts["cast-weights"] == [2 + 4, 2 * 6 + 1]
        assert "calibration" not in made.report()["stages"]
    else:
        # 6 products of a layer, cross keys and values; of a decoder's 8, and the head
        assert counts["quantize-blocks"] == [14, 15]
    with optc.load_transcriber(made.path) as transcriber:
        assert transcriber.transcribe(SOUNDS[0], language="en").tokens


def test_halves_of_named_tensors(folder: Path, artifact: Path, tmp_path: Path) -> None:
    """They write the same, and say why they are there."""
    shipped = registry.recipe_files()["speech-fp32"].read_text(encoding="utf-8")
    elsewhere, other_way = tmp_path / "elsewhere.yaml", tmp_path / "other.yaml"
    elsewhere.write_text(shipped.replace("encoder:\n", "encoder:\n  backend: tvm-cuda\n"))
    other_way.write_text(shipped.replace("decoder:\n", "decoder:\n  backend: tvm-cuda\n"))
    named = ("onnxruntime", True)
    with optc.load_transcriber(artifact) as other:
        wanted = _tokens(other)
        with pytest.raises(TypeError, match="takes no named tensors"):
            other.calls(SOUNDS[0], other.transcribe(SOUNDS[0]))
    for how, own, why in (
        (
            {"recipe": other_way},
            {"encoder": ("tvm", True), "target": named},
            "its kernels run on CUDA, not on a cpu",
        ),
        (
            {"recipe": elsewhere},
            {"encoder": named, "target": ("tvm", False)},
            "the backend tvm-cuda builds no engines of named tensors",
        ),
    ):
        made = optc.compile(
            folder, output=tmp_path / "b", inputs=SOUNDS, no_gates=True, force=True, **how
        )
        engines = {one.role: (one.backend, one.step is None) for one in made.manifest.engines}
        assert engines == own
        (told,) = (one for one in made.report()["warnings"] if "runs in the backend" in one)
        assert why in told
        with optc.load_transcriber(made.path) as one:
            assert _tokens(one) == wanted


def _tokens(transcriber: optc.Transcriber) -> list[tuple[int, ...]]:
    return [
        one.tokens
        for language in ("de", None)
        for one in transcriber.transcribe_all(SOUNDS, language=language)
    ]


def test_callers_of_several_threads_share_steps(artifact: Path) -> None:
    with optc.load_transcriber(artifact) as transcriber:
        wanted = [one.tokens for one in transcriber.transcribe_all(SOUNDS)]
        with ThreadPoolExecutor(5) as pool:
            found = list(pool.map(transcriber.transcribe, SOUNDS))
    assert [one.tokens for one in found] == wanted


def test_two_compiles_are_the_same_bytes(
    folder: Path, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their imports, too."""
    monkeypatch.setattr(compiling, "import_speech", import_speech)
    again = optc.compile(folder, output=tmp_path / "b", inputs=SOUNDS)
    assert again.digest == optc.artifact.artifact.Artifact.open(artifact).digest  # type: ignore[attr-defined]


def test_what_it_is(artifact: Path) -> None:
    manifest = optc.artifact.artifact.Artifact.open(artifact).manifest  # type: ignore[attr-defined]
    assert manifest.task.name == "transcription"
    engines = {engine.role: engine.backend for engine in manifest.engines}
    assert engines == {"encoder": "tvm", "target": "tvm"}
    assert manifest.task.roles == {"encoder": "tensors", "target": "step"}
    target = next(engine for engine in manifest.engines if engine.role == "target")
    assert target.spec.encoded == SECONDS * 50
    report = json.loads((artifact / "report.json").read_text())
    values = {one["name"]: one["value"] for one in report["gates"]}
    assert values["token_agreement"] == values["transcript_agreement"] == 1
    assert values["word_error_rate"] == 0
    assert report["samples"]["reference"] == "source"


def test_bad_requests(artifact: Path, tmp_path: Path) -> None:
    with optc.load_transcriber(artifact) as transcriber:
        for message, how in (
            ("language 'fr': the model does not know it .one of de, en", {"language": "fr"}),
            ("task: the model knows no task 'sing'", {"task": "sing"}),
            ("temperature", {"temperature": -1}),
            ("batch_size", {"batch_size": 0}),
        ):
            with pytest.raises(RequestError, match=message):
                transcriber.transcribe(SOUNDS[0], **how)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="cannot be read"):
            transcriber.transcribe(tmp_path / "absent.wav")
        with pytest.raises(RequestError, match="is no sound"):
            transcriber.transcribe(np.zeros((2, 2), np.float32))
        assert transcriber.transcribe(np.zeros(0, np.float32)).text == ""
    with pytest.raises(RequestError, match="closed"):
        transcriber.transcribe(SOUNDS[0])
    with pytest.raises(UnsupportedError, match="two engines"):
        optc.load_tensors(artifact)


def test_bad_compiles_leave_nothing(folder: Path, tmp_path: Path) -> None:
    def refused(message: str, **how: Any) -> None:
        with pytest.raises((InputError, UnsupportedError, GateError), match=message):
            optc.compile(folder, output=tmp_path / "a", **how)
        assert not (tmp_path / "a").exists()

    refused("recipe 'tensors-fp32' is for the task 'tensors'", recipe="tensors-fp32")
    refused("max_context|max-context", max_context=64)
    refused("args: is not for models of speech", args=(1,))
    refused("judged by sounds, not by dict", inputs=[{"x": 1}])
    refused("has no .wav file", inputs=[tmp_path])
    refused("absent.wav: cannot be read", inputs=[tmp_path / "absent.wav"])
    long = (sound(9).samples * 32767).astype("<i2").tobytes()
    (tmp_path / "long.wav").write_bytes(riff(1, 16, long, rate=RATE))
    refused(
        "writes no words for any of the sounds",
        recipe="speech-int8",
        backend="onnxruntime",
        calibration=tmp_path / "long.wav",
    )
    refused(
        "transcript_agreement: 1 is below the bound 2",
        gate="transcript_agreement=2",
        backend="onnxruntime",
    )


def test_the_best_recipe_of_a_task_is_found(folder: Path, tmp_path: Path) -> None:
    made = optc.compile(
        folder,
        "auto",
        tmp_path / "a",
        backend="onnxruntime",  # whose int8 learns from sounds
        inputs=SOUNDS[:2],
        gate=["token_agreement=0"],
    )
    ladder = made.report()["ladder"]
    rungs = {one["recipe"]: one for one in ladder["rungs"]}
    assert rungs["speech-fp32"]["measured"]["speed"] > 0
    assert rungs["speech-int8"]["outcome"] == "left out"  # shipped sounds are beyond its window
    assert "writes no words for any of the sounds" in rungs["speech-int8"]["why"]
    assert made.manifest.recipe["name"] == ladder["chosen"] == "speech-fp32"
    with optc.load_transcriber(made.path) as transcriber:
        assert transcriber.transcribe(SOUNDS[0]).tokens
