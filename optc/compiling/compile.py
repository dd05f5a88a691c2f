"""`compile`: any model, by what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from optc.artifact.artifact import Artifact
from optc.artifact.tasks.image_generation import IMAGE_GENERATION_NAME
from optc.artifact.tasks.tensors import TENSORS_NAME
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT_NAME
from optc.artifact.tasks.transcription import TRANSCRIPTION_NAME
from optc.compiling.text.compile import compile as compile_text
from optc.errors import InputError
from optc.system.options import CompileOptions
from optc.system.options.keywords import CompileChanges
from optc.system.options.option import with_changes
from optc.system.progress import Progress, no_progress
from optc.system.sources.diffusion_folder import may_diffuse
from optc.system.sources.dim import Dim
from optc.system.sources.encoder_folder import may_be_encoder
from optc.system.sources.speech_folder import may_transcribe
from optc.system.sources.steady import steady
from optc.system.sources.tensor_source import is_tensor_source
from optc.system.sources.text_to_text_folder import may_be_text_to_text

if TYPE_CHECKING:
    from optc.compiling.parts.parts import PartsSource

#: The recipe where none is named, by the task of a source.
_RECIPES = {
    TENSORS_NAME: "tensors-fp32",
    TRANSCRIPTION_NAME: "speech-fp32",
    IMAGE_GENERATION_NAME: "diffusion-fp32",
    TEXT_TO_TEXT_NAME: "text2text-fp32",
}


class AnyChanges(CompileChanges, total=False):
    """Keywords of `compile`, those of models of named tensors last.

    Attributes:
        args, kwargs: An example of the arguments of a module's forward.
        dynamic: Dimensions that differ from call to call, by argument and axis:
            ``{"x": {0: optc.Dim("batch", 1, 64)}}``.
        dims: Bounds of dimensions that have names already, as in an ONNX file.
        inputs: Inputs to judge a model by: arrays by name, or ``.npz`` files; none are the example,
            or random ones. Of a model of speech WAV files, or folders of them; none are sentences
            that a synthesizer spoke. Of a classifier also images and folders of them; of a pipeline
            of diffusers, or an encoder-decoder of text, files of text with a prompt a line.
        images: How images become the model's input, which makes it a classifier: the keys of a
            Hugging Face folder's ``preprocessor_config.json``, or a file with them
            (docs/how-to/classify-images.md).
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    dynamic: Mapping[str, Mapping[int, Dim]]
    dims: Sequence[Dim]
    inputs: Sequence[str | Path | Mapping[str, Any]]
    images: str | Path | Mapping[str, Any]


def _encodes(model: str | Path) -> bool:
    """True for the folder of an encoder."""
    if not may_be_encoder(Path(model)):
        return False
    from optc.importer.tensors.encoder import is_encoder

    return is_encoder(Path(model))


def _transcribes(model: Any) -> bool:
    """True for the folder of a model of speech."""
    return not is_tensor_source(model) and may_transcribe(Path(model))


def _is_text_to_text(model: Any) -> bool:
    """True for the folder of an encoder-decoder of text."""
    if is_tensor_source(model) or not may_be_text_to_text(Path(model)):
        return False
    from optc.importer.tensors.text_to_text import is_text_to_text

    return is_text_to_text(Path(model))


def source_kind(model: Any) -> str:
    """The task that recipes for a model name: what decides how it is compiled."""
    if _transcribes(model):
        return TRANSCRIPTION_NAME
    if not is_tensor_source(model) and may_diffuse(Path(model)):
        return IMAGE_GENERATION_NAME
    if _is_text_to_text(model):
        return TEXT_TO_TEXT_NAME
    if is_tensor_source(model) or _encodes(model):
        return TENSORS_NAME
    return TEXT_GENERATION.name


def default_recipe(kind: str) -> str:
    """The recipe where none is named, for a kind of `source_kind`."""
    return _RECIPES.get(kind, str(CompileOptions().recipe))


_OF_TENSORS = ("args", "kwargs", "dynamic", "dims", "inputs", "images")
#: Options that name files which are read more than once.
_READ = ("draft", "medusa", "eagle", "trained", "base", "calibration", "eval_text")


def compile(
    model: Any,
    recipe: str | Path | None = None,
    output: str | Path | None = None,
    *,
    options: CompileOptions | None = None,
    progress: Progress = no_progress,
    **changes: Unpack[AnyChanges],
) -> Artifact:
    """Compile a model into an artifact and prove it against the source.

    Args:
        model: A decoder that generates text: a folder with config.json, safetensors and, usually, a
            tokenizer, a GGUF file, or ``org/name`` or ``org/name@revision`` of the Hugging Face
            Hub. Or a model of named tensors: a `torch.nn.Module`, a `torch.export.ExportedProgram`
            or ``.pt2`` file, a model of onnx or onnx_ir or ``.onnx`` file, or
            ``package.module:factory``, whose factory gives one of these, or a module and its args.
            Or the folder of a model of speech, such as Whisper, of an encoder-decoder of text, such
            as T5 or BART, or of a pipeline of diffusers.
        recipe, output: As in `CompileOptions`; here they need no name. The default recipe of models
            of named tensors is ``tensors-fp32``, of speech ``speech-fp32``, of pipelines of
            diffusers ``diffusion-fp32``, of encoder-decoders of text ``text2text-fp32``.
        options: What is asked for; None are the defaults.
        progress: Told what goes on.
        **changes: Fields of `CompileOptions` that differ from ``options``, and for models of named
            tensors those of `AnyChanges`.

    Raises:
        InputError: Bad usage, model, recipe or output; nothing is left behind.
        UnsupportedError: Something in the model is not recognized or cannot be lowered.
        UnavailableError: A compiler or package is missing.
        GateError: A gate failed; its ``details`` hold what was measured.
        TypeError: There is no option of a name in ``changes``.
    """
    given = {**changes}
    stated = {name: given[name] for name in _READ if name in given}
    read = [stated.get(name, getattr(options, name, None)) for name in _READ]
    with steady([model, *read]):
        return _compile(model, recipe, output, options, progress, given)


def _compile(
    model: Any,
    recipe: str | Path | None,
    output: str | Path | None,
    options: CompileOptions | None,
    progress: Progress,
    changes: dict[str, Any],
) -> Artifact:
    """Compile a model by what it is; raises as `compile`."""
    own = {name: changes.pop(name) for name in _OF_TENSORS if name in changes}
    kind = source_kind(model)
    if kind == TEXT_GENERATION.name:
        if given := next((name for name, value in own.items() if value), ""):
            raise InputError(
                "is for models of named tensors, and the model generates text",
                where=given,
                hint="leave it out; --max-context bounds the tokens of a decoder",
            )
        text = cast(CompileChanges, changes)
        return compile_text(model, recipe, output, options=options, progress=progress, **text)
    from optc.compiling.parts.compile import compile_parts

    asked = _asked(_RECIPES[kind], recipe, output, options, changes)
    return compile_parts(_source(kind, model, own, asked), asked, progress)


def _source(kind: str, model: Any, given: Mapping[str, Any], asked: CompileOptions) -> PartsSource:
    """A model of named tensors of a kind, with the keywords that only such models take."""
    if kind == TRANSCRIPTION_NAME:
        from optc.compiling.speech.compile import speech_source

        return speech_source(Path(model), given, asked)
    if kind == IMAGE_GENERATION_NAME:
        from optc.compiling.diffusion.compile import diffusion_source

        return diffusion_source(Path(model), given)
    if kind == TEXT_TO_TEXT_NAME:
        from optc.compiling.text_to_text.compile import text_to_text_source

        return text_to_text_source(Path(model), given, asked)
    from optc.compiling.tensors.compile import tensors_source

    return tensors_source(model, given, asked)


def _asked(
    default: str,
    recipe: str | Path | None,
    output: str | Path | None,
    options: CompileOptions | None,
    changes: Mapping[str, Any],
) -> CompileOptions:
    """The options, with the recipe ``default`` where none is named."""
    if recipe is None and (options is None or options.recipe == CompileOptions().recipe):
        recipe = default
    named = {"recipe": recipe, "output": output}
    stated = {name: value for name, value in named.items() if value is not None}
    return with_changes(options or CompileOptions(), {**changes, **stated})
