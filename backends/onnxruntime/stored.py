"""The tensors that an engine's model keeps in the file beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optc.backend import StoredTensor
from optc.backends.onnxruntime.engine_data import MODEL_FILE
from optc.errors import UnavailableError

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.artifact.files import EngineFiles


def stored_tensors(files: EngineFiles) -> list[StoredTensor]:
    """The initializers that lie outside of the model; small ones are part of it.

    Raises:
        ArtifactError: The manifest does not list the file that one lies in.
        UnavailableError: onnx-ir is not installed, which reads the model.
    """
    try:
        import onnx_ir as ir
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "the package 'onnx-ir' is not installed, which reads the model",
            where="onnxruntime engine",
            hint="pip install 'optc[compile]'",
        ) from error
    model = ir.load(files.path(MODEL_FILE))
    values = [value.const_value for value in model.graph.initializers.values()]
    return [_stored(one, files) for one in values if isinstance(one, ir.ExternalTensor)]


def _stored(tensor: ir.ExternalTensor, files: EngineFiles) -> StoredTensor:
    entry = files.entry(str(tensor.location))
    offset, length = tensor.offset or 0, tensor.length or tensor.nbytes
    if offset + length > entry.bytes:
        raise files.error(f"the tensor {tensor.name!r} ends beyond {entry.path!r}")
    return StoredTensor(
        tensor.name,
        tensor.dtype.name.lower(),
        tuple(tensor.shape.numpy()),
        files.path(str(tensor.location)),
        offset,
        length,
    )
