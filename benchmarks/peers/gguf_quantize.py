"""Let llama.cpp write a GGUF file in another format: ``SOURCE OUTPUT FORMAT [IMATRIX]``.

Runs in llama.cpp's environment. F32 dequantizes a source of any format.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import gguf
import llama_cpp as lc
import numpy as np

# Of the repository, not of the environment.
sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.peers.to_gguf import quantize


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


def main() -> None:
    source, output, name, *imatrix = sys.argv[1:]
    values = as_ctypes(importances(Path(imatrix[0]))) if imatrix else None
    part = Path(output).with_suffix(".part")
    quantize(Path(source), part, name, values)
    part.rename(output)


if __name__ == "__main__":
    main()
