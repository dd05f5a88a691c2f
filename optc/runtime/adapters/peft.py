"""Reads a LoRA adapter as PEFT saves it: adapter_config.json and adapter_model.safetensors.

A PEFT adapter adds ``scaling * B A x`` to a linear layer, with A [r, K], B [N, r] and scaling
``lora_alpha / r``, or ``lora_alpha / sqrt(r)`` with rank-stabilized LoRA (Kalajdzievski 2023).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from optc.errors import InputError
from optc.runtime.executable.adapter_spec import AdapterModule, AdapterSpec, Float32, ModuleWeights
from optc.runtime.executable.block_hadamard import block_hadamard
from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json
from optc.system.sources.peft_options import check_options
from optc.system.sources.peft_scaling import Scalings

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_CONFIG_BYTES, _WEIGHTS_BYTES = 1 << 20, 8 << 30
_TENSOR = re.compile(r"^(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.[^.]+)?\.weight$")


def read_peft(folder: str | Path, spec: AdapterSpec) -> tuple[ModuleWeights | None, ...]:
    """The weights for every module of an engine; None where the adapter has none.

    Raises:
        InputError: Not a PEFT folder of LoRA, an option or a layer that the engine does not
            take, a rank that is too large, or tensors of the wrong shape.
    """
    path = Path(folder)
    config = _read_config(path / CONFIG_FILE)
    pairs = _read_pairs(path / WEIGHTS_FILE)
    known = {part.name.removesuffix(".weight") for m in spec.modules for part in m.parts}
    unknown = sorted(set(pairs) - known)
    if unknown:
        raise InputError(
            f"it adapts {unknown[0]}" + (f" and {len(unknown) - 1} more" * (len(unknown) > 1)),
            where=str(path / WEIGHTS_FILE),
            hint="the engine takes adapters in the decoder layers' linear layers only",
        )
    where, scalings = str(path), Scalings(config, str(path / CONFIG_FILE))
    return tuple(_module(module, pairs, scalings, spec.rank, where) for module in spec.modules)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = parse_json(read_file(path, _CONFIG_BYTES))
    except FileNotFoundError as error:
        raise InputError(
            f"no {path.name}", where=str(path.parent), hint="give a folder that PEFT saved"
        ) from error
    except (OSError, JSONError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else None
        raise InputError(f"peft_type is {kind!r}", where=str(path), hint="only LORA is served")
    check_options(config, str(path))
    return config


def _read_pairs(path: Path) -> dict[str, dict[str, Float32]]:
    """Tensors A and B by layer name, in float32.

    Raises:
        InputError: The file is missing or damaged, or a tensor is none of LoRA's.
    """
    import safetensors

    try:
        tensors = safetensors.deserialize(read_file(path, _WEIGHTS_BYTES))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except safetensors.SafetensorError as error:
        raise InputError(f"not a safetensors file: {error}", where=str(path)) from error
    pairs: dict[str, dict[str, Float32]] = {}
    for name, tensor in tensors:
        match = _TENSOR.match(name)
        if match is None:
            raise InputError(f"the tensor {name} is none of a linear layer's", where=str(path))
        values = _float32(name, tensor, path)
        if not np.isfinite(values).all():
            raise InputError(f"the tensor {name} holds NaN or infinities", where=str(path))
        pairs.setdefault(match[1], {})[match[2]] = values
    halves = sorted(layer for layer, pair in pairs.items() if len(pair) < 2)
    if halves:
        raise InputError(f"{halves[0]} lacks lora_A or lora_B", where=str(path))
    return pairs


def _float32(name: str, tensor: Mapping[str, Any], path: Path) -> Float32:
    data, shape = tensor["data"], tensor["shape"]
    if tensor["dtype"] == "BF16":
        bits = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(shape)
    kinds = {"F32": np.float32, "F16": np.float16, "F64": np.float64}
    if tensor["dtype"] not in kinds:
        raise InputError(f"the tensor {name} is {tensor['dtype']}", where=str(path))
    wide: Float32 = np.frombuffer(data, kinds[tensor["dtype"]]).astype(np.float32)
    return wide.reshape(shape)


def _module(
    module: AdapterModule,
    pairs: Mapping[str, Mapping[str, Float32]],
    scalings: Scalings,
    rank: int,
    where: str,
) -> ModuleWeights | None:
    names = [part.name.removesuffix(".weight") for part in module.parts]
    if not any(name in pairs for name in names):
        return None
    a = np.zeros((module.k, len(names) * rank), np.float32)
    b = np.zeros((rank, module.n), np.float32)
    for index, (name, part) in enumerate(zip(names, module.parts, strict=True)):
        if name not in pairs:
            continue
        down, up = pairs[name]["A"], pairs[name]["B"]
        own = down.shape[0] if down.ndim == 2 else 0
        if down.shape != (own, module.k) or up.shape != (part.source_rows, own):
            raise InputError(
                f"{name}: lora_A {list(down.shape)} and lora_B {list(up.shape)} do not fit a "
                f"layer [{part.source_rows}, {module.k}]",
                where=where,
                hint="the adapter was trained for another model",
            )
        if own > rank:
            raise InputError(
                f"{name} has rank {own}, and the engine has room for {rank}",
                where=where,
                hint=f"compile with --adapters rank={own}; what is asked for is rounded up to a "
                "multiple of 16",
            )
        turned = block_hadamard(down, module.hadamard) if module.hadamard else down
        a[:, index * rank : index * rank + own] = turned.T
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            scaled = part.taken(up).T * np.float32(scalings.of(name, own))
        if not (np.isfinite(scaled).all() and np.isfinite(turned).all()):
            raise InputError(f"{name} is beyond what float32 holds, times its scale", where=where)
        b[:own, part.start : part.stop] = scaled
    return ModuleWeights(a, b)
