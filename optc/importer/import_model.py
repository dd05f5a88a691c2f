"""Import: a model as people publish it becomes an `onnx_ir.Model` with lazy weights."""

from __future__ import annotations

from pathlib import Path

from optc.errors import UnsupportedError
from optc.importer.checkpoint import checkpoint_files
from optc.importer.config import read_config
from optc.importer.imported import ImportedModel
from optc.importer.model_folder import model_folder
from optc.importer.private_caches import private_caches
from optc.system.sources.recognize import missing_model

__all__ = ["ImportedModel", "import_model"]


def import_model(source: str | Path, *, allow_remote_code: bool = False) -> ImportedModel:
    """Import the model at ``source``: a Hugging Face folder (config.json and safetensors), or a
    model's root in the Hugging Face cache, or a GGUF file.

    The graph is float32, opset 23, with ``input_ids i64[B, S]`` and ``position_ids i64[B, S]``
    as inputs and ``logits f32[B, S, V]`` as output; weights are `optc.ir.weights.LazyWeight`
    and nothing of them is read but headers and, once and streaming, bytes for the digest.
    The passes of group ``canonicalize`` bring the graph to the normal form.

    Raises:
        InputError: Nothing usable at ``source``, or a broken config or checkpoint.
        UnsupportedError: A kind of source, or a model, that optc does not take.
    """
    path = model_folder(Path(source))
    if not path.exists():
        raise missing_model(path)
    if path.is_dir():
        read_config(path, allow_remote_code=allow_remote_code)
        checkpoint_files(path)
        # torch and transformers take seconds to import: only when a model is really imported
        with private_caches():
            from optc.importer.hugging_face import import_folder

            return import_folder(path, allow_remote_code=allow_remote_code)
    raise UnsupportedError(
        "not a kind of model that optc imports",
        where=str(source),
        hint="give a Hugging Face folder with config.json and safetensors",
    )
