"""An artifact becomes what its task shows, by `load` and by each loader of its own. Engines are
toys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from optc import registry
from optc.artifact.manifest import EngineEntry, Manifest, Source, TokenizerEntry
from optc.artifact.tasks.classification import CLASSIFICATION
from optc.artifact.tasks.embedding import EMBEDDING
from optc.artifact.tasks.image_generation import IMAGE_GENERATION
from optc.artifact.tasks.reranking import RERANKING
from optc.artifact.tasks.task import Task
from optc.artifact.tasks.tensors import TENSORS
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT
from optc.artifact.tasks.token_classification import TOKEN_CLASSIFICATION
from optc.artifact.tasks.transcription import TRANSCRIPTION
from optc.artifact.writer import ArtifactWriter
from optc.errors import ArtifactError, InputError, OptcError, UnsupportedError
from optc.runtime.diffusion.conventions import DiffusionConventions, NoiseLevels
from optc.runtime.diffusion.generator import ImageGenerator
from optc.runtime.diffusion.load import load_image_generator
from optc.runtime.load import load
from optc.runtime.speech.load import load_transcriber
from optc.runtime.speech.transcriber import Transcriber
from optc.runtime.tensors.classifier import Classifier
from optc.runtime.tensors.embedder import Embedder
from optc.runtime.tensors.engine import TensorEngine
from optc.runtime.tensors.images import ImageInput
from optc.runtime.tensors.load import load_tensors
from optc.runtime.tensors.text_classifiers import Reranker, TextClassifier, TokenClassifier
from optc.runtime.tensors.texts import TextScores
from optc.runtime.text_to_text.conventions import TextConventions
from optc.runtime.text_to_text.generator import TextToTextGenerator
from optc.runtime.text_to_text.load import load_text_to_text
from optc.system.hardware.target import Target, parse_target, usable_threads
from tests.runtime.support.tensor_toys import INTERFACE, TensorToyBackend
from tests.runtime.support.texts import byte_level
from tests.serve.tensors.toys import SPEECH


@dataclass(frozen=True)
class Face:
    """A task, what it is loaded as, and what its artifact holds beside engines.

    Attributes:
        file, convention: Of its conventions; None where it has none.
        own: Its loader.
        reads: It needs the artifact's tokenizer.
    """

    task: Task
    kind: type
    own: Callable[..., Any] = load_tensors
    file: str = ""
    convention: msgspec.Struct | None = None
    reads: bool = False


_SCORES = {"file": "texts/input.json", "convention": TextScores(), "reads": True}
FACES = {
    "tensors": Face(TENSORS, TensorEngine),
    "images": Face(
        CLASSIFICATION, Classifier, file="images/input.json", convention=ImageInput("x")
    ),
    "texts": Face(CLASSIFICATION, TextClassifier, **_SCORES),  # type: ignore[arg-type]
    "embedding": Face(EMBEDDING, Embedder, reads=True),
    "tokens": Face(TOKEN_CLASSIFICATION, TokenClassifier, **_SCORES),  # type: ignore[arg-type]
    "pairs": Face(RERANKING, Reranker, **_SCORES),  # type: ignore[arg-type]
    "speech": Face(TRANSCRIPTION, Transcriber, load_transcriber, "speech.json", SPEECH, True),
    "text-to-text": Face(
        *(TEXT_TO_TEXT, TextToTextGenerator, load_text_to_text),
        *("text-to-text.json", TextConventions(start=0), True),
    ),
    "drawing": Face(
        *(IMAGE_GENERATION, ImageGenerator, load_image_generator, "diffusion.json"),
        *(DiffusionConventions(NoiseLevels((0.9, 0.5)), (3, 2, 2)), True),
    ),
}
#: Those whose artifacts have several engines.
SEVERAL = [name for name, face in FACES.items() if face.own is not load_tensors]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> TensorToyBackend:
    toy = TensorToyBackend()
    monkeypatch.setattr(registry, "backend", {"toy": toy}.__getitem__)
    return toy


def written(
    path: Path,
    face: Face,
    *,
    tokenizer: bool = True,
    text: str | None = None,
    roles: tuple[str, ...] = (),
    targets: tuple[Target, ...] = (Target("any", "cpu"),),
) -> Path:
    """The artifact; ``text`` stands in place of its conventions."""
    with ArtifactWriter(path) as writer:
        engines = []
        for role in roles or face.task.roles:
            for target in targets:
                name = role if len(targets) == 1 else f"{role}-{target.name}"
                (writer.subfolder(f"engines/{name}") / "engine.bin").write_bytes(b"toy")
                where = {"folder": f"engines/{name}", "files": ("engine.bin",)}
                how = {"target": target, "requires": {}, "interface": INTERFACE, "data": {}}
                engines.append(EngineEntry(name=name, role=role, backend="toy", **how, **where))  # type: ignore[arg-type]
        entry = None
        if face.reads and tokenizer:
            byte_level().save(str(writer.subfolder("tokenizer") / "tokenizer.json"))
            entry = TokenizerEntry(("tokenizer/tokenizer.json",), None, (), False)
        if face.convention is not None:
            folder, _, name = face.file.rpartition("/")
            at = writer.subfolder(folder) if folder else writer.folder
            content = msgspec.json.encode(face.convention) if text is None else text.encode()
            (at / name).write_bytes(content)
        manifest = Manifest(
            task=face.task,
            name="toy",
            source=Source("toy", "ab" * 32, "toy", {}),
            recipe={"name": "none"},
            pipeline="",
            passes=(),
            engines=tuple(engines),
            tokenizer=entry,
            files=writer.hashed_files(),
            gated=False,
            gates=(),
            packages={},
        )
        return writer.commit(manifest, {}).path


@pytest.mark.parametrize("name", FACES)
def test_a_task_is_loaded_as_what_it_shows(
    name: str, tmp_path: Path, backend: TensorToyBackend
) -> None:
    face = FACES[name]
    path = written(tmp_path / "a", face)
    for loads in (load, face.own):
        backend.loaded.clear()
        with loads(path, threads=3) as found:
            assert type(found) is face.kind
            assert found.info["name"] == "target"
            assert (found.info["backend"], found.info["target"]) == ("toy", "any")
            assert found.info["rejected"] == {}
        assert sorted(backend.loaded) == sorted((role, 3) for role in face.task.roles)
        others = face.task.roles.keys() - {"target"}
        assert {found.info[role] for role in others} == others
    backend.loaded.clear()
    face.own(path).close()
    assert {threads for _, threads in backend.loaded} == {usable_threads()}


@pytest.mark.parametrize("name", FACES)
def test_of_several_engines_those_that_fit_are_loaded(
    name: str, tmp_path: Path, backend: TensorToyBackend
) -> None:
    """The encoder's, beside the decoder's; others say why not."""
    face, native, future = (
        FACES[name],
        parse_target("native"),
        Target("future", "cpu", ("avx9000",)),
    )
    path = written(tmp_path / "a", face, targets=(Target("any", "cpu"), native, future))
    with face.own(path) as found:
        assert found.info["name"] == "target-native"
        assert found.info["target"] == "native"
        assert found.info["rejected"].keys() == {"target-any", "target-future"}
        assert "avx9000" in found.info["rejected"]["target-future"]
    assert {folder for folder, _ in backend.loaded} == {
        f"{role}-native" for role in face.task.roles
    }
    backend.loaded.clear()
    face.own(path, engine="target-any").close()
    assert {folder for folder, _ in backend.loaded} == {f"{role}-any" for role in face.task.roles}
    with pytest.raises(InputError, match="has no engine 'nothing'"):
        face.own(path, engine="nothing")


@pytest.mark.parametrize("name", FACES)
def test_a_damaged_engine_is_found_before_loading(
    name: str, tmp_path: Path, backend: TensorToyBackend
) -> None:
    path = written(tmp_path / "a", FACES[name])
    (path / "engines" / "target" / "engine.bin").write_bytes(b"tox")
    with pytest.raises(ArtifactError, match="corrupted"):
        FACES[name].own(path)
    assert not backend.loaded
    FACES[name].own(path, verify="size").close()


@pytest.mark.parametrize("name", SEVERAL)
def test_what_is_for_another_task_names_the_loader_of_all(
    name: str, tmp_path: Path, backend: TensorToyBackend
) -> None:
    path = written(tmp_path / "a", FACES["tensors"])
    with pytest.raises(UnsupportedError, match="is for the task 'tensors'") as raised:
        FACES[name].own(path)
    assert raised.value.hint == "load it with optc.load"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("speech", "load it with optc.load_transcriber"), ("text-to-text", "optc.load_text_to_text")],
)
def test_two_engines_together_are_none_of_tensors(
    name: str, hint: str, tmp_path: Path, backend: TensorToyBackend
) -> None:
    path = written(tmp_path / "a", FACES[name])
    with pytest.raises(UnsupportedError, match="by two engines together") as raised:
        load_tensors(path)
    assert hint in str(raised.value.hint)


@pytest.mark.parametrize("name", SEVERAL)
def test_one_without_its_tokenizer(name: str, tmp_path: Path, backend: TensorToyBackend) -> None:
    path = written(tmp_path / "a", FACES[name], tokenizer=False)
    with pytest.raises(ArtifactError, match="it has no tokenizer") as raised:
        FACES[name].own(path)
    assert raised.value.where == str(path)


def test_a_drawing_model_may_be_a_denoiser_alone(tmp_path: Path, backend: TensorToyBackend) -> None:
    path = written(tmp_path / "a", FACES["drawing"], tokenizer=False, roles=("target",))
    with load_image_generator(path) as found:
        assert not found.takes_prompts


@pytest.mark.parametrize("name", [name for name, face in FACES.items() if face.file])
@pytest.mark.parametrize("text", ["", "{", "[]", '{"unknown": 1}'])
def test_damaged_conventions_are_an_error_that_names_their_file(
    name: str, text: str, tmp_path: Path, backend: TensorToyBackend
) -> None:
    face = FACES[name]
    path = written(tmp_path / "a", face, text=text)
    with pytest.raises(OptcError) as raised:
        face.own(path)
    assert str(path / face.file) in str(raised.value)


@pytest.mark.parametrize("name", SEVERAL)
def test_conventions_that_are_not_there(
    name: str, tmp_path: Path, backend: TensorToyBackend
) -> None:
    path = written(tmp_path / "a", without_conventions(FACES[name]))
    with pytest.raises(ArtifactError, match=FACES[name].file):
        FACES[name].own(path)


def without_conventions(face: Face) -> Face:
    return Face(face.task, face.kind, face.own, reads=face.reads)
