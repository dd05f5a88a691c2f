"""Folders of encoder-decoders of text become artifacts that write what transformers writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import optc
from optc.artifact.artifact import Artifact
from optc.cli.main import cli
from optc.compiling.text_to_text import compile as compiling
from optc.errors import InputError, RequestError, UnsupportedError
from optc.importer.tensors.text_to_text import import_text_to_text
from tests.compiling.text_to_text.models import (
    CONFIGS,
    ENGLISH,
    GERMAN,
    POSITIONS,
    folder_of,
    texts,
    written,
)
from tests.support.cost.imported_once import import_once

MOST = 12
#: Of a text, at most: those of a step have to find a place, too.
WRITTEN = POSITIONS - 5
KIND = "BartForConditionalGeneration"
#: The kind besides that `make test` shows: of biases by distance. Positions that count no padding,
#: as those of M2M100, `tests/importer/tensors/test_encoder.py` shows.
SHOWN = ("T5ForConditionalGeneration",)


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("\n".join(texts()) + "\n")
    return file


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        import_once(patch, compiling, import_text_to_text)
        yield


@pytest.fixture(scope="module")
def bart(
    tmp_path_factory: pytest.TempPathFactory, text_file: Path, imported_once: None
) -> tuple[Path, Path]:
    """A folder and its artifact."""
    folder = folder_of(KIND, tmp_path_factory.mktemp("bart") / "tiny-bart")
    return folder, optc.compile(folder, output=folder.parent / "a", inputs=[text_file]).path


def _equal(folder: Path, artifact: Path) -> None:
    engines = {one.role: one.backend for one in Artifact.open(artifact).manifest.engines}
    assert engines == {"encoder": "onnxruntime", "target": "tvm"}
    wanted = written(folder, texts(), max_new_tokens=MOST)
    with optc.load_text_to_text(artifact) as generator:
        together = generator.generate(texts(), max_tokens=MOST)
        alone = [generator.generate(one, max_tokens=MOST)[0] for one in texts()]
    assert [list(one.tokens) for one in together] == wanted
    assert together == alone
    assert [one.ended for one in together] == [len(one) < MOST for one in wanted]
    assert len({tuple(one) for one in wanted}) > 1


def test_tokens_are_those_of_transformers(bart: tuple[Path, Path]) -> None:
    _equal(*bart)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in SHOWN else [pytest.mark.long])
        for kind in sorted({*CONFIGS} - {KIND})
    ],
)
def test_tokens_of_other_kinds(kind: str, tmp_path: Path, text_file: Path) -> None:
    folder = folder_of(kind, tmp_path / "m")
    _equal(folder, optc.compile(folder, output=tmp_path / "a", inputs=[text_file]).path)


def test_callers_of_several_threads_share_steps(bart: tuple[Path, Path]) -> None:
    wanted = written(bart[0], texts(), max_new_tokens=MOST)
    found: dict[int, list[list[int]]] = {}
    with optc.load_text_to_text(bart[1]) as generator:

        def call(at: int) -> None:
            some = generator.generate(texts()[at:] + texts()[:at], max_tokens=MOST, batch_size=2)
            found[at] = [list(one.tokens) for one in some]

        threads = [threading.Thread(target=call, args=(at,)) for at in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert found == {at: wanted[at:] + wanted[:at] for at in range(4)}


def test_beams_are_those_of_transformers(bart: tuple[Path, Path]) -> None:
    how: dict[str, Any] = {"max_new_tokens": 8, "num_beams": 3, "length_penalty": 0.5}
    wanted = written(bart[0], texts()[:4], **how)
    with optc.load_text_to_text(bart[1]) as generator:
        found = generator.generate(texts()[:4], max_tokens=8, beam_width=3, length_penalty=0.5)
    assert [list(one.tokens) for one in found] == wanted
    assert wanted != written(bart[0], texts()[:4], max_new_tokens=8)


def test_drafts_by_ngrams_change_nothing(bart: tuple[Path, Path]) -> None:
    wanted = written(bart[0], texts(), max_new_tokens=MOST)
    with optc.load_text_to_text(bart[1], speculate="ngram", num_speculative_tokens=3) as generator:
        found = generator.generate(texts(), max_tokens=MOST)
    assert [list(one.tokens) for one in found] == wanted
    with pytest.raises(InputError, match="nothing drafts by 'eagle' for a decoder that attends"):
        optc.load_text_to_text(bart[1], speculate="eagle")


def test_structures(bart: tuple[Path, Path]) -> None:
    pytest.importorskip("llguidance")
    with optc.load_text_to_text(bart[1]) as generator:
        # words of these texts have no tokens for parts of them, so that there is but one choice
        chosen = generator.generate(texts(), choice=["w3"])
        assert {(one.text, one.ended) for one in chosen} == {("w3", True)}
        with pytest.raises(RequestError, match="beam_width does not go together with"):
            generator.generate(texts(), choice=["w7"], beam_width=2)


def test_languages(bart: tuple[Path, Path]) -> None:
    folder, artifact = bart
    how: dict[str, Any] = {"forced_bos_token_id": GERMAN, "max_new_tokens": MOST}
    wanted = written(folder, texts()[:2], source=GERMAN, **how)
    with optc.load_text_to_text(artifact) as generator:
        found = generator.generate(
            texts()[:2], max_tokens=MOST, source_language="deu_Latn", target_language="deu_Latn"
        )
        assert generator.conventions.languages == {"eng_Latn": ENGLISH, "deu_Latn": GERMAN}
    assert [list(one.tokens) for one in found] == wanted
    assert all(one.tokens[0] == GERMAN for one in found)


def test_what_it_is(bart: tuple[Path, Path]) -> None:
    manifest = Artifact.open(bart[1]).manifest
    assert manifest.task.name == "text-to-text"
    assert sorted(engine.role for engine in manifest.engines) == ["encoder", "target"]
    report = json.loads((bart[1] / "report.json").read_text())
    values = {one["name"]: one["value"] for one in report["gates"]}
    assert values["token_agreement"] == values["text_agreement"] == 1
    with optc.load(bart[1]) as loaded:
        assert isinstance(loaded, optc.TextToTextGenerator)


def test_int8_agrees(bart: tuple[Path, Path], tmp_path: Path, text_file: Path) -> None:
    made = optc.compile(
        bart[0],
        "text2text-int8",
        tmp_path / "a",
        inputs=[text_file],
        gate="token_agreement=0.5",
        set=("quantize-blocks.float_first=0",),
    )
    counts = [one.count for one in made.manifest.passes if one.name == "quantize-blocks"]
    assert all(counts)
    with optc.load_text_to_text(made.path) as generator:
        assert generator.generate(texts(), max_tokens=MOST)


def test_the_command_line(bart: tuple[Path, Path]) -> None:
    text = texts()[0]
    with optc.load_text_to_text(bart[1]) as generator:
        wanted = generator.generate(text, max_tokens=3, target_language="deu_Latn")[0].text
    args = ["run", str(bart[1]), "--prompt", text, "--max-tokens", "3"]
    found = CliRunner().invoke(cli, [*args, "--target-language", "deu_Latn"])
    assert (found.exit_code, found.output.strip()) == (0, wanted)
    more = ["--beam-width", "2", "--speculate", "ngram", "--threads", "1"]
    assert CliRunner().invoke(cli, [*args, *more]).exit_code == 0
    refused = CliRunner().invoke(cli, [*args, "--temperature", "1"])
    assert refused.exit_code == 2
    assert "--temperature is not of models that turn texts into texts" in refused.output


def test_bad_requests(bart: tuple[Path, Path]) -> None:
    with optc.load_text_to_text(bart[1]) as generator:
        for message, how in (
            ("does not know 'fr'", {"target_language": "fr"}),
            ("max_tokens: 0 tokens", {"max_tokens": 0}),
            (f"writes {WRITTEN} tokens of a text at most", {"max_tokens": WRITTEN + 1}),
            ("batch_size", {"batch_size": 0}),
        ):
            with pytest.raises(RequestError, match=message):
                generator.generate(texts(), **how)  # type: ignore[arg-type]
        long = "w1 " * POSITIONS
        with pytest.raises(RequestError, match=f"has {POSITIONS + 2} tokens, and the model reads"):
            generator.generate(["w1", long])
        assert generator.generate(long, truncate=True, max_tokens=2)[0].tokens
        with pytest.raises(RequestError, match="no list of texts"):
            generator.generate([1])  # type: ignore[list-item]
        assert generator.generate([]) == []
    with pytest.raises(RequestError, match="closed"):
        generator.generate("w1")
    with pytest.raises(UnsupportedError, match="two engines"):
        optc.load_tensors(bart[1])


def test_bad_compiles_leave_nothing(bart: tuple[Path, Path], tmp_path: Path) -> None:
    def refused(message: str, **how: Any) -> None:
        with pytest.raises((InputError, UnsupportedError), match=message):
            optc.compile(bart[0], output=tmp_path / "a", **how)
        assert not (tmp_path / "a").exists()

    refused("recipe 'tensors-fp32' is for the task 'tensors'", recipe="tensors-fp32")
    refused("args: is not for models that turn texts", args=(1,))
    refused("judged by texts, not by dict", inputs=[{"x": 1}])
    refused("learns from texts", calibration=tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    refused("no file has a line", inputs=[tmp_path / "empty.txt"])
