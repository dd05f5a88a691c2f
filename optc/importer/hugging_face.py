"""Import of a Hugging Face model folder."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optc.errors import InputError, UnsupportedError
from optc.importer.adapted.merge import with_adapter
from optc.importer.attach import TiedError, attach_weights, match_checkpoint, unused_tensors
from optc.importer.checkpoint import (
    check_types,
    checkpoint_files,
    read_tensors,
    weights_left_out,
)
from optc.importer.config import PASSES, check_layers_held, read_config
from optc.importer.conversion.parameters import as_parameters
from optc.importer.conversion.tensor import Tensor
from optc.importer.export import export_decoder
from optc.importer.imported import ImportedModel
from optc.importer.model_folder import model_name
from optc.importer.quantized.settings import settings_of
from optc.importer.remote_code import never_ask
from optc.importer.skeleton import Skeleton, first_line, read_skeleton
from optc.importer.source_digest import digest_source
from optc.importer.text_model.buffers import make_scalars_constant, with_stored_buffers
from optc.importer.text_model.context import read_context
from optc.importer.text_model.layers import check_layers
from optc.importer.text_model.part import text_config, text_tensors
from optc.importer.tokenizer_files import TOKENIZER_FILES
from optc.system.logs.quiet import quiet

#: What transformers raises at a config that it cannot make sense of.
_REFUSALS = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    OSError,
    ImportError,
    StrictDataclassError,
)


def import_folder(folder: Path, *, allow_remote_code: bool) -> ImportedModel:
    """Import the decoder in ``folder``; see `optc.importer.import_model.import_model`.

    Raises:
        InputError: Broken or missing config, weights or shards.
        UnsupportedError: Not a decoder that optc can capture.
    """
    config = read_config(folder, allow_remote_code=allow_remote_code)
    files = checkpoint_files(folder)
    checkpoint = read_tensors(files, settings_of(config))
    check_layers_held(config, checkpoint, folder, PASSES)
    never_ask()
    whole = build_config(folder, config, allow_remote_code)
    text = text_config(whole)
    built = whole if text is None else text
    check_layers(built, config["architectures"][0])
    max_context = read_context(built, folder)
    part_of = "" if text is None else config["architectures"][0]
    try:
        found = _match_untied(built, folder, files, checkpoint, part_of, allow_remote_code)
    except InputError:
        check_layers_held(config, checkpoint, folder)  # then layers are what is missing
        raise
    skeleton, checkpoint, matched = found.skeleton, found.checkpoint, found.matched
    warnings = [*_other_weights(folder, files), *found.warnings]
    leaves = [leaf for tensor in matched.values() for leaf in tensor.leaves]
    with ThreadPoolExecutor(1, "optc-digest") as pool:
        digest = pool.submit(copy_context().run, digest_source, folder, leaves)
        exported = export_decoder(built, allow_remote_code=allow_remote_code)
    attach_weights(exported.model, with_stored_buffers(skeleton, checkpoint), matched)
    make_scalars_constant(exported.model)
    unused = [n for n in unused_tensors(skeleton, checkpoint) if n not in skeleton.stored]
    if unused:
        warnings.append(f"{len(unused)} tensors of the checkpoint are not used, {unused[0]} first")
    if exported.fixed_rope:
        trained = read_context(built, folder, scaled=False)
        max_context = _trained_context(built, trained, folder)
        warnings.append(
            f"rotary frequencies are those of up to {max_context} tokens, to which the context is "
            "limited: beyond, they would change with the length and void cached keys"
        )
    return ImportedModel(
        model=exported.model,
        config=config,
        family=config["model_type"],
        name=model_name(folder),
        folder=folder,
        source_digest=digest.result(),
        tokenizer_files=[folder / n for n in TOKENIZER_FILES if (folder / n).is_file()],
        warnings=warnings,
        max_context=max_context,
    )


class _Matched(NamedTuple):
    """A decoder and the tensors of a checkpoint that are its own."""

    skeleton: Skeleton
    checkpoint: Mapping[str, Tensor]
    matched: dict[str, Tensor]
    warnings: list[str]


def _match_untied(
    config: PretrainedConfig,
    folder: Path,
    files: list[Path],
    stored: Mapping[str, Tensor],
    part_of: str,
    allow_remote_code: bool,
) -> _Matched:
    """As `_match`; where two tensors differ that the config ties, both are used."""
    try:
        return _match(config, folder, files, stored, part_of, allow_remote_code)
    except TiedError as error:
        if not config.tie_word_embeddings:
            raise
        config.tie_word_embeddings = False
        found = _match(config, folder, files, stored, part_of, allow_remote_code)
        found.warnings.append(f"{error.message} ({error.where}): both are used, untied")
        return found


def _match(
    config: PretrainedConfig,
    folder: Path,
    files: list[Path],
    stored: Mapping[str, Tensor],
    part_of: str,
    allow_remote_code: bool,
) -> _Matched:
    """Match the decoder of ``config``, which may be part of another class, with what is stored;
    before the export, which takes long."""
    with quiet():
        skeleton = read_skeleton(config, len(stored), allow_remote_code=allow_remote_code)
    own, notes = stored, []
    if part_of:
        own = text_tensors(skeleton, stored)
        left_out = len(stored) - len(own)
        notes.append(
            f"the text part of {part_of}: {left_out} tensors of its other parts are left out"
        )
    checkpoint, skeleton, warnings = as_parameters(files, own, skeleton)
    checkpoint, more = with_adapter(folder, checkpoint, skeleton.conversion, part_of)
    warnings += more
    try:
        matched = match_checkpoint(skeleton, checkpoint)
    except InputError as error:
        check_types(files, error.where)
        raise
    return _Matched(skeleton, checkpoint, matched, [*notes, *warnings])


def _other_weights(folder: Path, files: list[Path]) -> list[str]:
    """A warning where it can be doubted which weights of the folder are meant."""
    left_out = weights_left_out(folder, files)
    if not left_out:
        return []
    taken = _and_more([file.name for file in files])
    return [
        f"weights are those of {taken}, as transformers reads them; those of "
        f"{_and_more(left_out)} beside are not read"
    ]


def _and_more(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def build_config(folder: Path, config: dict[str, Any], allow_remote_code: bool) -> PretrainedConfig:
    """The config of the class in ``folder``, without its quantization.

    Args:
        folder: The model's folder.
        config: From `read_config`.
        allow_remote_code: Whether Python code of the folder may run.

    Raises:
        InputError: transformers does not accept it.
        UnsupportedError: It is no decoder-only language model.
    """
    try:
        built = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=allow_remote_code
        )
    except _REFUSALS as error:
        raise InputError(
            f"transformers does not accept this config: {first_line(error)}",
            where=str(folder / "config.json"),
        ) from error
    architecture = config["architectures"][0]
    known = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    if architecture not in known and not config.get("auto_map") and text_config(built) is None:
        whole = f"{architecture.removesuffix('Model')}ForCausalLM"
        raise UnsupportedError(
            f"{architecture} is not a decoder-only language model that transformers knows",
            where=str(folder / "config.json"),
            hint=f"it is the base of {whole}: save that one, which has a head"
            if architecture.endswith("Model") and whole in known
            else "optc imports the classes of transformers' AutoModelForCausalLM, and the text "
            "part of models that are made of one and others",
        )
    # the class of plain layers is exported, whatever the checkpoint's weights are stored in
    vars(built).pop("quantization_config", None)
    return built


def _trained_context(config: PretrainedConfig, max_context: int, folder: Path) -> int:
    """Tokens up to which length-dependent rotary frequencies do not change."""
    rope = config.get_text_config().rope_parameters
    kinds = [rope, *(part for part in rope.values() if isinstance(part, dict))]
    lengths = [kind.get("original_max_position_embeddings") or max_context for kind in kinds]
    for length in lengths:
        if not isinstance(length, int) or length < 1:
            raise InputError(
                f"original_max_position_embeddings is {length!r}, not a number of tokens",
                where=str(folder / "config.json"),
            )
    return min(max_context, *lengths)
