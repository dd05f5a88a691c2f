"""Whisper out of a CTranslate2 file: a Hugging Face folder in float16.

The file (binary versions 4 to 6, https://github.com/OpenNMT/CTranslate2) is a list of named
variables. Queries, keys and values of self-attention are stacked in it, keys and values of
cross-attention too; Whisper's keys have no bias (Radford et al. 2022), where the file has zeros.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from optc.errors import InputError

Array = npt.NDArray[Any]
_TYPES: dict[int, Any] = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
_VERSIONS = range(4, 7)
#: Entries of the multilingual vocabulary; that of English alone has one fewer.
_MULTILINGUAL = 51865
#: Names of a layer's parts: the file's and transformers'.
_ENCODER_PARTS = {
    "self_attention/linear_1": "self_attn.out_proj",
    "self_attention/layer_norm": "self_attn_layer_norm",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
    "ffn/layer_norm": "final_layer_norm",
}
_DECODER_PARTS = _ENCODER_PARTS | {
    "attention/linear_0": "encoder_attn.q_proj",
    "attention/linear_2": "encoder_attn.out_proj",
    "attention/layer_norm": "encoder_attn_layer_norm",
}
_KINDS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}


def convert(folder: Path) -> None:
    """Turn ``model.bin`` of a folder into weights and configuration of transformers.

    Raises:
        InputError: It is no CTranslate2 file of Whisper, or not complete.
    """
    file = folder / "model.bin"
    try:
        known = read_variables(file)
        tensors = dict(_tensors(known))
        config = _config(known, tensors)
    except (struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise InputError(
            f"no whole CTranslate2 file of Whisper: {error}", where=str(file)
        ) from error
    half = {name: np.ascontiguousarray(a, dtype=np.float16) for name, a in tensors.items()}
    save_file(half, folder / "model.safetensors", metadata={"format": "pt"})
    end = config["eos_token_id"]
    _write(folder / "config.json", config)
    _write(folder / "preprocessor_config.json", _features(config["num_mel_bins"]))
    _write(folder / "generation_config.json", _generation(end))
    file.unlink()


def read_variables(file: Path) -> dict[str, Array]:
    """Arrays of a CTranslate2 file by name, mapped.

    Raises:
        ValueError, struct.error: The file ends early, or is of another version.
    """
    data = np.memmap(file, np.uint8, "r")
    reader = _Reader(data)
    version = reader.number("I")
    if version not in _VERSIONS:
        raise ValueError(f"binary version {version}")
    reader.text()  # what kind of model it is
    reader.number("I")  # and that kind's revision
    found: dict[str, Array] = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = [reader.number("I") for _ in range(reader.number("B"))]
        dtype = _TYPES[reader.number("B")]
        found[name] = reader.take(reader.number("I")).view(dtype).reshape(shape)
    return found


class _Reader:
    """Numbers, texts and bytes of a file, in order."""

    def __init__(self, data: Array) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> Array:
        """The next bytes, uint8 [size]."""
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise ValueError("the file ends early")
        self._at += size
        return part

    def number(self, form: str) -> int:
        """A little-endian number in the words of `struct`."""
        (value,) = struct.unpack("<" + form, self.take(struct.calcsize("<" + form)).tobytes())
        return int(value)

    def text(self) -> str:
        """A text; its length counts the zero behind it."""
        return self.take(self.number("H")).tobytes()[:-1].decode()


def _layers(known: Mapping[str, Array], side: str) -> int:
    start = f"{side}/layer_"
    numbers = {name.removeprefix(start).split("/")[0] for name in known if name.startswith(start)}
    return len([number for number in numbers if number.isdigit()])


def _tensors(known: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    for side, parts in (("encoder", _ENCODER_PARTS), ("decoder", _DECODER_PARTS)):
        for number in range(_layers(known, side)):
            old, new = f"{side}/layer_{number}", f"model.{side}.layers.{number}"
            stacked = [f"{new}.self_attn.{x}_proj" for x in "qkv"]
            yield from _split(known, f"{old}/self_attention/linear_0", stacked)
            if side == "decoder":
                stacked = [f"{new}.encoder_attn.{x}_proj" for x in "kv"]
                yield from _split(known, f"{old}/attention/linear_1", stacked)
            for source, target in parts.items():
                yield from _copied(known, f"{old}/{source}", f"{new}.{target}")
        yield from _copied(known, f"{side}/layer_norm", f"model.{side}.layer_norm")
        positions = known[f"{side}/position_encodings/encodings"]
        yield f"model.{side}.embed_positions.weight", positions
    for name in ("conv1", "conv2"):
        yield from _copied(known, f"encoder/{name}", f"model.encoder.{name}")
    yield "model.decoder.embed_tokens.weight", known["decoder/embeddings/weight"]


def _copied(known: Mapping[str, Array], source: str, target: str) -> Iterator[tuple[str, Array]]:
    for old, new in _KINDS.items():
        if f"{source}/{old}" in known:
            yield f"{target}.{new}", known[f"{source}/{old}"]


def _split(
    known: Mapping[str, Array], source: str, targets: Sequence[str]
) -> Iterator[tuple[str, Array]]:
    for kind in ("weight", "bias"):
        parts = np.split(known[f"{source}/{kind}"], len(targets))
        for target, part in zip(targets, parts, strict=True):
            if kind == "weight" or not target.endswith("k_proj"):
                yield f"{target}.{kind}", part


def _config(known: Mapping[str, Array], tensors: Mapping[str, Array]) -> dict[str, Any]:
    vocabulary, width = tensors["model.decoder.embed_tokens.weight"].shape
    end = 50257 if vocabulary == _MULTILINGUAL else 50256
    sizes = {
        f"{side}_{what}": value
        for side in ("encoder", "decoder")
        for what, value in (("layers", _layers(known, side)), ("attention_heads", width // 64),
                            ("ffn_dim", 4 * width))
    }  # fmt: skip
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "d_model": width,
        "vocab_size": vocabulary,
        **sizes,
        "num_mel_bins": tensors["model.encoder.conv1.weight"].shape[1],
        "max_source_positions": len(tensors["model.encoder.embed_positions.weight"]),
        "max_target_positions": len(tensors["model.decoder.embed_positions.weight"]),
        "activation_function": "gelu",
        "decoder_start_token_id": end + 1,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
        "scale_embedding": False,
        "dtype": "float16",
    }


def _features(mel_bins: int) -> dict[str, Any]:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": mel_bins,
        "sampling_rate": 16000,
        "hop_length": 160,
        "chunk_length": 30,
        "n_fft": 400,
        "padding_side": "right",
        "padding_value": 0.0,
    }


def _generation(end: int) -> dict[str, Any]:
    return {
        "decoder_start_token_id": end + 1,
        "eos_token_id": end,
        "pad_token_id": end,
        "bos_token_id": end,
        "suppress_tokens": [],
        "begin_suppress_tokens": [220, end],
        "is_multilingual": end == 50257,
        "max_length": 448,
    }


def _write(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
