"""llama.cpp's formats with its importance matrix: ``REQUEST.json`` (`exchange`).

What its quantizer wrote is dequantized to float32 by the gguf package. Formats of blocks of 256
cannot store rows of another multiple: llama.cpp takes another format for such a tensor. Besides
the file as it comes, those formats are therefore written from rows in pairs: two rows of 384 are
one of 768, each with its own importance. llama.cpp could not run that file; its bits and its error
are those that the format has where it fits.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import llama_cpp as lc
import numpy as np
from exchange import Request

# Of the repository, not of the environment.
sys.path.insert(0, str(Path(__file__).parents[3]))
from benchmarks.peers import to_gguf

#: Formats that use an importance matrix if there is one, and formats that do not.
PLAIN = ("Q8_0",)
WEIGHTED = ("Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K", "IQ4_XS", "IQ4_NL", "IQ3_M",
            "IQ3_S", "IQ3_XXS", "IQ2_M", "IQ2_XS", "IQ2_XXS")  # fmt: skip
#: Blocks of these are 32 weights: they fit as they are.
SMALL_BLOCKS = ("Q8_0", "Q4_0", "IQ4_NL")
BLOCK = 256


def add_vocabulary(folder: Path, writer: gguf.GGUFWriter) -> None:
    """The byte-level BPE of tokenizer.json, which llama-imatrix reads the text with."""
    content = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    vocabulary = content["model"]["vocab"] | {
        t["content"]: t["id"] for t in content["added_tokens"]
    }
    special = {t["id"] for t in content["added_tokens"]}
    by_id = {number: token for token, number in vocabulary.items()}
    count = config["vocab_size"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in content["model"]["merges"]]
    kinds = [gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL
             for i in range(count)]  # fmt: skip
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("dbrx")  # this model's splitting, and merges are not skipped
    writer.add_token_list([by_id.get(i, f"<unused {i}>") for i in range(count)])
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def make_imatrix(request: Request, base: Path) -> Path:
    """Let llama-imatrix read the calibration text, framed as the model was trained."""
    path = request.output / "imatrix.gguf"
    if path.exists():
        return path
    lines = request.calibration_text.read_text().splitlines()
    begin, end = "<|begin_of_text|>", "<|end_of_text|>"
    text = request.output / "calibration.txt"
    text.write_text("".join(f"{begin}{json.loads(line)['text']}{end}" for line in lines))
    tool = os.environ["LLAMA_IMATRIX"]
    subprocess.run(
        [tool, "-m", str(base), "-f", str(text), "-o", str(path), "-c", "512", "-b", "512",
         "--chunks", "128", "--parse-special", "--no-ppl", "-fit", "off", "--process-output"],
        check=True, stdout=sys.stderr,
    )  # fmt: skip
    return path


def importances(path: Path) -> dict[str, Any]:
    """Mean square of each input channel, float32 [K], by GGUF's tensor names."""
    found = {t.name: np.array(t.data) for t in gguf.GGUFReader(path).tensors}
    suffix = ".in_sum2"
    return {
        name.removesuffix(suffix): (
            sums.reshape(-1) / found[name.removesuffix(suffix) + ".counts"].reshape(-1)[0]
        ).astype(np.float32)
        for name, sums in found.items()
        if name.endswith(suffix)
    }


def as_ctypes(values: dict[str, Any]) -> Any:
    """llama.cpp's array of importances; it keeps the NumPy arrays alive."""
    kind = lc.llama_model_imatrix_data
    array = (kind * (len(values) + 1))()
    for entry, (name, one) in zip(array, values.items(), strict=False):
        entry.name = name.encode()
        entry.data = one.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        entry.size = one.size
    array.kept = values
    return array


def write_pairs(base: Path, path: Path) -> None:
    """``base`` with two rows in one wherever that makes rows of whole blocks."""
    reader = gguf.GGUFReader(base)
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, inner)
    for one in reader.tensors:
        data = one.data
        if is_paired(one.shape.tolist()):
            data = data.reshape(data.shape[0] // 2, -1)
        writer.add_tensor(one.name, data, raw_dtype=one.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def is_paired(shape: list[int]) -> bool:
    """Whether a matrix, GGUF's shape [K, N], has blocks of 256 only with its rows in pairs."""
    return len(shape) == 2 and shape[0] % BLOCK != 0 and 2 * shape[0] % BLOCK == 0


def source_names(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """GGUF's names: the checkpoint's and its shape."""
    return {
        to_gguf.target_name(name): (name, array.shape)
        for name, array in to_gguf.tensors(folder).items()
    }


def read_back(folder: Path, path: Path) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Float32 weights by the checkpoint's names, and what they take in the file."""
    config = json.loads((folder / "config.json").read_text())
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    names = source_names(folder)
    weights: dict[str, Any] = {}
    stored: dict[str, list[Any]] = {}
    for one in gguf.GGUFReader(path).tensors:
        name, shape = names[one.name]
        rows = gguf.dequantize(one.data, one.tensor_type).astype(np.float32).reshape(shape)
        for kind, count in heads.items():
            if kind in name:
                pairs = rows.reshape(count, -1, 2, shape[1])
                rows = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(shape)
        weights[name] = rows
        stored[name] = [rows.size, int(one.n_bytes), one.tensor_type.name]
    return weights, stored


def make(request: Request, base: Path, name: str, imatrix: Path | None, label: str) -> None:
    """Quantize, read back, answer."""
    paired = "pairs" in label
    values = importances(imatrix) if imatrix else {}
    if paired:
        source = request.output / "pairs.gguf"
        if not source.exists():
            write_pairs(base, source)
        for one in gguf.GGUFReader(base).tensors:
            if is_paired(one.shape.tolist()) and one.name in values:
                values[one.name] = np.tile(values[one.name], 2)
        base = source
    path = request.folder(label) / "quantized.gguf"
    to_gguf.quantize(base, path, name, as_ctypes(values) if values else None)
    weights, stored = read_back(request.model, path)
    np.savez(request.folder(label) / "weights.npz", **weights)
    path.unlink()
    notes = ["its blocks of 256 over two rows: where it fits, not a file that runs"] * paired
    if imatrix is not None:
        chunks = gguf.GGUFReader(imatrix).fields["imatrix.chunk_count"].contents()
        notes.append(f"importance matrix of {chunks} chunks of 512 tokens")
    about = {
        "stored": stored,
        "version": f"llama.cpp in llama-cpp-python {lc.__version__}",
        "numerics": "weights",
        "note": "; ".join(notes),
    }
    request.answer(label, about)


def main() -> None:
    """All formats."""
    request = Request.of_command_line()
    base = request.output / "BF16.gguf"
    if not base.exists():
        to_gguf.write(request.model, base, partial(add_vocabulary, request.model))
    imatrix = make_imatrix(request, base) if "LLAMA_IMATRIX" in os.environ else None
    formats: list[tuple[str, Callable[[str], None]]] = []
    for name in (*PLAIN, *WEIGHTED):
        used = imatrix if name in WEIGHTED else None
        weighted = f"{name} imatrix" if used else name
        formats.append((weighted, partial(make, request, base, name, used)))
        if name not in SMALL_BLOCKS:
            formats.append((f"{weighted}, rows in pairs", partial(make, request, base, name, used)))
    request.make_all(formats)


if __name__ == "__main__":
    main()
