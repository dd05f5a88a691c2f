"""llama.cpp's formats with its importance matrix: ``REQUEST.json`` (`exchange`).

What its quantizer wrote is dequantized to float32 by the gguf package, rows in pairs too
(`gguf_files`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gguf
import gguf_files
import llama_cpp as lc
import numpy as np
from exchange import Request

# Of the repository, not of the environment.
sys.path.insert(0, str(Path(__file__).parents[4]))
from benchmarks.peers import to_gguf
from benchmarks.peers.gguf_quantize import as_ctypes, importances

#: Formats that use an importance matrix if there is one, and formats that do not.
PLAIN = ("Q8_0",)
WEIGHTED = ("Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K", "IQ4_XS", "IQ4_NL", "IQ3_M",
            "IQ3_S", "IQ3_XXS", "IQ2_M", "IQ2_XS", "IQ2_XXS")  # fmt: skip
#: Blocks of these are 32 weights: they fit as they are.
SMALL_BLOCKS = ("Q8_0", "Q4_0", "IQ4_NL")


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


def make(request: Request, base: Path, name: str, imatrix: Path | None, label: str) -> None:
    """Quantize, read back, answer."""
    paired = "pairs" in label
    values = importances(imatrix) if imatrix else {}
    if paired:
        source = request.output / "pairs.gguf"
        if not source.exists():
            gguf_files.write_pairs(base, source)
        values = gguf_files.paired_importances(base, values)
        base = source
    path = request.folder(label) / "quantized.gguf"
    to_gguf.quantize(base, path, name, as_ctypes(values) if values else None)
    weights = gguf_files.read_weights(request.model, path)
    np.savez(request.folder(label) / "weights.npz", **weights)
    stored = gguf_files.read_stored(request.model, path)
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
        to_gguf.write(request.model, base, partial(gguf_files.add_vocabulary, request.model))
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
