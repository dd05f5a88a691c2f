"""The checkpoint of a Hugging Face folder: one or several files of weights, and their digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.importer.conversion.tensor import Tensor
from optc.importer.gguf.file import SUFFIX, files_of, read_gguf
from optc.importer.json_file import read_object
from optc.importer.pickled import tensors as pickled
from optc.importer.quantized.methods import quantized_weights
from optc.importer.safetensors import StoredTensor, read_header
from optc.system.foreign.file import is_file
from optc.system.sources.recognize import names_in, refusal

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
#: How the names of files begin that a training leaves beside weights.
_OF_A_TRAINING = ("optimizer", "scheduler", "scaler", "rng_state", "training_args", "trainer_state")


def checkpoint_files(folder: Path) -> list[Path]:
    """The files of ``folder`` that transformers reads: what config.json names, else
    ``model.safetensors``, else those of its index, else ``pytorch_model.bin``, else those of its
    index; else the only safetensors file there, else its GGUF file, or all parts of one.

    Raises:
        UnsupportedError: The weights are of a kind that is not read.
        InputError: No weights, or a named file or shard is missing.
    """
    named = named_weights(folder)
    if named is not None and named.endswith(INDEX_SUFFIX):
        return _indexed_files(folder, folder / named)
    if named is not None or (folder / SINGLE).exists():
        return [folder / (named or SINGLE)]
    if (folder / INDEX).exists():
        return _indexed_files(folder, folder / INDEX)
    if (folder / pickled.SINGLE).exists():
        return [folder / pickled.SINGLE]
    if (folder / pickled.INDEX).exists():
        return _indexed_files(folder, folder / pickled.INDEX)
    others = sorted(folder.glob("*.safetensors"))
    if len(others) == 1:
        return others
    if others:
        raise InputError(f"several safetensors files and no {INDEX}", where=str(folder))
    ggufs = sorted(folder.glob(f"*{SUFFIX}"))
    if ggufs:
        return _gguf_files(folder, ggufs)
    raise refusal(str(folder), names_in(folder))


def named_weights(folder: Path) -> str | None:
    """The file of weights, or their index, that config.json names; None where it names none.

    Raises:
        InputError: It names what is no such file of this folder.
    """
    config = folder / "config.json"
    named = read_object(config).get("transformers_weights") if config.is_file() else None
    if named is None:
        return None
    where = f"{config}: transformers_weights"
    if not _is_name_of(named, ".safetensors", INDEX_SUFFIX):
        raise InputError(f"{named!r} is not a safetensors file of this folder", where=where)
    return str(named)


def weights_left_out(folder: Path, files: list[Path]) -> list[str]:
    """Names of files in ``folder`` that hold, or list, other weights than ``files`` do; indices
    come first.

    Args:
        folder: The model's.
        files: From `checkpoint_files`.
    """
    taken = {file.name for file in files}
    ends = (INDEX_SUFFIX, pickled.INDEX_SUFFIX)
    patterns = ("*.safetensors", *(f"*{end}" for end in ends), f"*{SUFFIX}", *_PICKLES)
    found = {path.name for pattern in patterns for path in folder.glob(pattern)} - taken
    found = {name for name in found if not name.startswith(_OF_A_TRAINING)}
    indices = {name for name in found if name.endswith(ends)}
    others = {name for name in indices if not _lists_only(folder / name, taken)}
    return [*sorted(others), *sorted(found - indices)]


def _lists_only(index: Path, names: set[str]) -> bool:
    try:
        return names.issuperset(shard_names(index))
    except InputError:  # transformers does not look into an index that it does not need
        return False


def _is_name_of(name: object, *suffixes: str) -> bool:
    return isinstance(name, str) and Path(name).name == name and name.endswith(suffixes)


def shard_names(index: Path) -> list[str]:
    """Names of the files of weights that an index lists, in order.

    Raises:
        InputError: It is no index, or names something outside of its folder.
    """
    named = read_object(index).get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
        raise InputError("weight_map does not map tensors to files", where=str(index))
    names = sorted({name.removeprefix("./") for name in named.values()})
    is_pickled = index.name.endswith(pickled.INDEX_SUFFIX)
    suffix, kind = (pickled.SUFFIX, "PyTorch") if is_pickled else (".safetensors", "safetensors")
    for name in names:
        if not _is_name_of(name, suffix):
            raise InputError(f"{name!r} is not a {kind} file of this folder", where=str(index))
    return names


def _indexed_files(folder: Path, index: Path) -> list[Path]:
    names = shard_names(index)
    for name in names:
        if not is_file(folder / name):
            raise InputError(
                f"shard {name[:100]} is missing",
                where=str(folder),
                hint=f"{index.name} names it; get it too",
            )
    return [folder / name for name in names]


def _gguf_files(folder: Path, found: list[Path]) -> list[Path]:
    files = files_of(found[0])
    if files != found:
        raise InputError(
            f"{len(found)} GGUF files that are not the parts of one model",
            where=str(folder),
            hint="give one of them instead of the folder",
        )
    return files


def read_tensors(files: list[Path], settings: Mapping[str, Any] | None) -> Mapping[str, Tensor]:
    """Every tensor of the files of a checkpoint by its name there, or by that of the weight that it
    is a part of.

    Args:
        files: Of the checkpoint.
        settings: ``quantization_config`` of config.json; None where the checkpoint has floats.

    Raises:
        InputError, UnsupportedError, UnavailableError: As `read_checkpoint`,
            `optc.importer.pickled.tensors.read_pickled` and `optc.importer.gguf.file.read_gguf`.
    """
    if files[0].suffix == SUFFIX:
        return read_gguf(files)
    read = pickled.read_pickled if files[0].suffix == pickled.SUFFIX else read_checkpoint
    if settings is None:
        return read(files)
    return quantized_weights(read(files, every=True), settings)


def check_types(files: list[Path], name: str) -> None:
    """Do nothing if no file holds a tensor of that name, which is missing among those of floats.

    Raises:
        InputError: One does: its values are of another type.
    """
    for file in files if files[0].suffix == ".safetensors" else ():
        found = read_header(file, every=True).get(name)
        if found is not None:
            raise InputError(
                f"the tensor is {found.dtype}, and config.json states no quantization",
                where=f"{file}: {name}",
                hint="add the quantization_config that it was quantized with, or take the model in "
                "floats",
            )


def read_checkpoint(files: list[Path], *, every: bool = False) -> dict[str, StoredTensor]:
    """Every float tensor of safetensors files by name; with ``every`` those of all types.

    Raises:
        InputError: A file is broken, or two files hold the same tensor.
    """
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        for name, tensor in read_header(file, every=every).items():
            if name in tensors:
                raise InputError(
                    f"also in {tensors[name].file.name}", where=f"{file}: {name}", hint="which one?"
                )
            tensors[name] = tensor
    return tensors
