"""ik_llama.cpp's formats with its importance matrix: ``REQUEST.json`` (`exchange`).

Its own tools quantize, and turn what they wrote into float32. They lie in the folder that
``IK_LLAMA_TOOLS`` names. Its reader of the calibration text knows no special tokens: documents
follow one another without them. ``_KS`` and others beside it store scales of whole rows, of which a
pair of rows has one.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
from exchange import Request
from gguf_files import to_gguf

TOOLS = Path(os.environ["IK_LLAMA_TOOLS"]).resolve()
#: It needs no importances, and its blocks of 32 fit.
PLAIN = "Q8_0"
#: Non-linear ones, and trellises (KT).
FORMATS = ("IQ6_K", "IQ5_K", "IQ5_KS", "IQ4_K", "IQ4_KS", "IQ4_KSS", "IQ4_KT", "IQ3_K", "IQ3_KS",
           "IQ3_KT", "IQ2_KL", "IQ2_K", "IQ2_KS", "IQ2_KT")  # fmt: skip
CHUNKS = 128
NOTE = (
    "its blocks of 256 over two rows: where it fits, not a file that runs; importance matrix of at"
    f" most {CHUNKS} chunks of 512 tokens"
)


def run(tool: str, *arguments: str | Path) -> None:
    """Run one of its tools, in their folder, where they leave a log; paths are absolute. What it
    prints goes to stderr."""
    subprocess.run([TOOLS / tool, *arguments], check=True, stdout=sys.stderr, cwd=TOOLS)


def make_imatrix(request: Request, base: Path) -> Path:
    """Let llama-imatrix read the calibration text."""
    path = request.output / "imatrix.dat"
    if not path.exists():
        lines = request.calibration_text.read_text().splitlines()
        text = request.output / "calibration.txt"
        text.write_text("\n\n".join(json.loads(line)["text"] for line in lines))
        run("llama-imatrix", "-m", base, "-f", text, "-o", path, "-c", "512", "-b", "512",
            "--chunks", str(CHUNKS), "--no-ppl", "--process-output")  # fmt: skip
    return path


def importances(path: Path) -> dict[str, Any]:
    """Mean square of each input channel, float32 [K], by GGUF's tensor names; of a file that has,
    after the number of tensors, for each a length and name, calls, a count, and sums over calls."""
    content = path.read_bytes()
    (tensors,) = struct.unpack_from("<i", content)
    found, at = {}, 4
    for _ in range(tensors):
        (length,) = struct.unpack_from("<i", content, at)
        name = content[at + 4 : at + 4 + length].decode()
        at += 4 + length
        calls, count = struct.unpack_from("<ii", content, at)
        found[name] = np.frombuffer(content, np.float32, count, at + 8) / np.float32(max(calls, 1))
        at += 8 + 4 * count
    return found


def write_importances(path: Path, values: dict[str, Any]) -> None:
    """The same, as sums over one call."""
    parts = [struct.pack("<i", len(values))]
    for name, one in values.items():
        parts += [struct.pack("<i", len(name)), name.encode(), struct.pack("<ii", 1, len(one))]
        parts.append(one.astype(np.float32).tobytes())
    path.write_bytes(b"".join(parts))


def make(request: Request, base: Path, imatrix: Path, name: str, label: str) -> None:
    """Quantize rows in pairs, read back, answer."""
    source, weighted = request.output / "pairs.gguf", request.output / "pairs.dat"
    if not source.exists():
        write_importances(weighted, gguf_files.paired_importances(base, importances(imatrix)))
        gguf_files.write_pairs(base, source)
    path, dense = (request.folder(label) / f"{kind}.gguf" for kind in ("quantized", "float32"))
    run("llama-quantize", "--imatrix", weighted, source, path, name)
    run("llama-quantize", "--allow-requantize", path, dense, "F32")
    np.savez(request.folder(label) / "weights.npz", **gguf_files.read_weights(request.model, dense))
    about = {
        "stored": gguf_files.read_stored(request.model, path),
        "version": f"ik_llama.cpp {os.environ['IK_LLAMA_REVISION'][:12]}",
        "numerics": "weights",
        "note": "" if name == PLAIN else NOTE,
    }
    request.answer(label, about)
    path.unlink()
    dense.unlink()


def main() -> None:
    """All formats."""
    request = Request.of_command_line()
    base = request.output / "BF16.gguf"
    if not base.exists():
        to_gguf.write(request.model, base, partial(gguf_files.add_vocabulary, request.model))
    imatrix = make_imatrix(request, base)
    quantize = partial(make, request, base, imatrix)
    formats: list[tuple[str, Callable[[str], None]]] = [
        (f"{name} imatrix, rows in pairs", partial(quantize, name)) for name in FORMATS
    ]
    request.make_all([(PLAIN, partial(quantize, PLAIN)), *formats])


if __name__ == "__main__":
    main()
