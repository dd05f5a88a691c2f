"""Says what a path is that a user gives as a model, and what to do where it is none.

Only names and the first bytes of files are looked at: an answer takes milliseconds, and no package
is loaded. What passes here may still be refused by the importer, which reads it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from optc.errors import InputError, OptcError, UnsupportedError
from optc.system.foreign.file import open_file, read_file
from optc.system.safe_json import JSONError, parse_json
from optc.system.sources import gguf_header
from optc.system.sources.adapter import CONFIG_FILE, is_adapter, read_adapter_config
from optc.system.sources.address import check_address
from optc.system.sources.kind import Kind, matching, some
from optc.system.sources.kinds import (
    FILES,
    GGUF_TYPES,
    NO_DECODERS,
    OTHERS,
    REST,
    WEIGHTS,
    WITHOUT_CONFIG,
)
from optc.system.sources.stand_in import check_file, check_stand_ins

CONFIG = "config.json"
#: ``org/name`` or ``org/name@revision``.
HUB_NAME = re.compile(
    r"(?P<repo>[0-9A-Za-z][\w.-]*/[0-9A-Za-z][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII
)
#: Names of weights that an import reads.
READ_WEIGHTS = (
    "*.safetensors",
    "*.safetensors.index.json",
    "*.gguf",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_NO_MODEL = (
    "optc imports a folder for transformers (config.json and safetensors) or a GGUF file; "
    "optc compile alone takes .onnx and .pt2 files"
)
#: Most names of a folder that are looked at.
_MOST = 4096


def check_source(given: str | Path) -> None:
    """Check that what a user gives may be a model that optc imports, or one of the Hugging Face
    Hub.

    Args:
        given: A path, or the name of a model.

    Raises:
        InputError: It is an address, or there is none; or as `check_model`.
        UnsupportedError: It is a model of a kind that optc does not import.
    """
    check_address(given)
    path = Path(given)
    if path.is_dir():
        _check_folder(path, complete=True)
    elif not os.path.lexists(path) and not of_hub(given):
        raise missing_model(path)
    else:
        check_model(path)


def check_model(path: Path) -> None:
    """As `check_source` of a path; weights may come later, as those of a model of the Hub do.

    Raises:
        InputError: It is damaged, or no model.
        UnsupportedError: It is a model of a kind that optc does not import.
    """
    if path.is_dir():
        _check_folder(path, complete=False)
    elif path.is_file():
        _check_file(path)


def of_hub(given: str | Path) -> bool:
    """True if ``given`` names a model of the Hugging Face Hub and not a path.

    A path is what exists, and what lies in a folder that exists: ``models/typo`` is no model of
    an organization ``models``.
    """
    path = Path(given)
    named = HUB_NAME.fullmatch(str(given)) is not None
    return named and not path.exists() and not path.parent.is_dir()


def missing_model(path: Path) -> InputError:
    """The error for a path that is not there, to be raised."""
    hint = f"give a folder with {CONFIG}, or a GGUF file"
    found = HUB_NAME.fullmatch(str(path))
    if found is not None and not found["revision"]:
        repo = found["repo"]
        hint += (
            f"; if this is a model of the Hugging Face Hub, download it first: "
            f"hf download {repo} --local-dir {repo.split('/')[1]}"
        )
    return InputError("no such model folder", where=str(path), hint=hint)


def refusal(where: str, names: Collection[str]) -> OptcError:
    """The error for a folder, or a repository of the Hub, with config.json but without weights that
    are read; arguments as of `refusal_without_config`."""
    for kind in WEIGHTS:
        if (sign := kind.sign(names)) is not None:
            return _refused(where, kind, sign)
    return InputError(
        "no weights here, but a config.json",
        where=where,
        hint="get the model's files of safetensors into the folder: model.safetensors, or those "
        "that model.safetensors.index.json names",
    )


def refusal_without_config(where: str, names: Collection[str]) -> OptcError:
    """The error for a folder, or a repository of the Hub, without config.json.

    Args:
        where: Its name.
        names: Of its files; those of folders end with a slash.
    """
    if matching(names, ("adapter_model.*",)):
        return InputError(
            f"the tensors of an adapter by PEFT without {CONFIG_FILE}",
            where=where,
            hint="get that file too, or give a folder that PEFT saved",
        )
    ggufs = matching(names, ("*.gguf",))
    for kind in (*OTHERS, *WITHOUT_CONFIG):
        if (sign := kind.sign(names)) is not None:
            return _refused(where, kind, sign)
    if ggufs:
        return InputError(
            f"no {CONFIG}, but GGUF files",
            where=where,
            hint=f"give one of the files: {some(sorted(ggufs))}"
            if len(ggufs) > 1
            else f"give the file itself: {ggufs[0][:100]}",
        )
    for kind in (*WEIGHTS, *REST):
        if (sign := kind.sign(names)) is not None:
            return _refused(where, kind, sign)
    if not names:
        return InputError("the folder is empty", where=where, hint=_NO_MODEL)
    return InputError(f"no {CONFIG} here, but {some(sorted(names))}", where=where, hint=_NO_MODEL)


def _check_folder(folder: Path, *, complete: bool) -> None:
    names = names_in(folder)
    if is_adapter(names, READ_WEIGHTS):
        check_stand_ins(folder, names)
        read_adapter_config(folder)
        return
    if CONFIG not in names:
        _check_without_config(folder, names)
        return
    check_stand_ins(folder, names)
    _check_config(folder)
    if complete and not matching(names, READ_WEIGHTS):
        raise refusal(str(folder), names)


def _check_without_config(folder: Path, names: list[str]) -> None:
    if "snapshots/" in names:
        return  # a model's root in the cache of the Hub
    for kind in OTHERS:
        if (sign := kind.sign(names)) is not None:
            raise _refused(folder, kind, sign)
    inner = [name.removesuffix(f"/{CONFIG}") for name in names if name.endswith(f"/{CONFIG}")]
    cached = matching(names, ("models--*/",))
    if inner or cached:
        raise InputError(
            f"no {CONFIG} here, but folders of models",
            where=str(folder),
            hint=f"give one of them: {some(sorted(inner or cached))}",
        )
    raise refusal_without_config(str(folder), names)


def _check_config(folder: Path) -> None:
    """Check that config.json is one of transformers; one that cannot be read is left to who reads
    it."""
    config = _object(folder / CONFIG)
    if config is None or config.get("architectures"):
        return
    where = str(folder / CONFIG)
    if "_class_name" in config or "_diffusers_version" in config:
        raise UnsupportedError(
            "a part of a pipeline of diffusers",
            where=where,
            hint="give the folder above, with model_index.json",
        )
    if isinstance(config.get("architecture"), str) and not config.get("model_type"):
        raise UnsupportedError(
            "a model of timm, which looks at images",
            where=where,
            hint="optc compiles language models, which generate text",
        )
    if "pretrained_config" in config or "builder_config" in config:
        raise _refused(folder, WEIGHTS[0], CONFIG)
    if "class_name" in config and "module" in config:
        raise UnsupportedError("a model of Keras", where=where, hint=_NO_MODEL)


def _check_file(file: Path) -> None:
    head = _head(file)
    if file.suffix == ".gguf" and head.startswith(gguf_header.MAGIC):
        _check_gguf(file)
        return
    check_file(file)
    if head.startswith(gguf_header.MAGIC):
        raise InputError(
            "a GGUF file whose name does not end with .gguf",
            where=str(file),
            hint="rename it, or make a link to it whose name ends so",
        )
    if file.suffix == ".gguf":
        return  # the importer says what is wrong with it
    for kind in (*FILES, *WEIGHTS, *REST):
        if kind.sign([file.name]) is None:
            continue
        beside = (file.parent / CONFIG).is_file()
        hint = f"give its folder: {file.parent}" if beside else kind.hint
        error = InputError if kind in FILES or kind in REST else UnsupportedError
        raise error(f"this is {kind.what}, and no model's folder", where=str(file), hint=hint)
    raise UnsupportedError("not a kind of model that optc imports", where=str(file), hint=_NO_MODEL)


def _check_gguf(file: Path) -> None:
    try:
        stated = gguf_header.general(file)
    except OSError:
        return
    kind, architecture = stated.get("type", ""), stated.get("architecture", "")
    what = GGUF_TYPES.get(kind, "")
    for role, names in NO_DECODERS.items():
        if architecture in names:
            what = what or f"a GGUF file of {architecture}, {role}"
    if what:
        raise UnsupportedError(
            f"{what}, and no language model that generates text",
            where=str(file),
            hint="give the GGUF file of a decoder, such as llama, qwen3 or gemma3",
        )


def _refused(where: str | Path, kind: Kind, sign: str) -> OptcError:
    error = InputError if kind in (*WITHOUT_CONFIG, *REST) else UnsupportedError
    return error(f"this is {kind.what}: {sign[:100]}", where=str(where), hint=kind.hint)


def names_in(folder: Path) -> list[str]:
    """Names in ``folder`` and in the folders in it, as `refusal` takes them.

    Raises:
        InputError: It cannot be read.
    """
    try:
        found = []
        for one in sorted(os.scandir(folder), key=lambda entry: entry.name)[:_MOST]:
            if one.name == ".git" or not one.is_dir():
                found += [] if one.name == ".git" else [one.name]
                continue
            found.append(f"{one.name}/")
            if len(found) < _MOST and os.access(one.path, os.R_OK | os.X_OK):
                found += [f"{one.name}/{name}" for name in sorted(os.listdir(one.path))[:_MOST]]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(folder)) from error
    return found


def _object(file: Path) -> Mapping[str, Any] | None:
    try:
        value = parse_json(read_file(file))
    except (OSError, JSONError):
        return None
    return value if isinstance(value, dict) else None


def _head(file: Path) -> bytes:
    try:
        with open_file(file) as stream:
            return stream.read(4)
    except OSError:
        return b""
