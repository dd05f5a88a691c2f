"""One engine of a model of images: ``KIND PATH THREADS``, requests by `serving`.

Runs in the engine's own environment. Operations, on float32 images [N, C, H, W] in a file:

    run   {"images": path, "file": path}  -> {"rows": N}; the first output in the file
    time  {"images": path, "calls": n}    -> {"seconds": s} for n calls with all images
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "peers" / "workers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "encoders" / "workers"))

from openers import open_engine, timed
from serving import serve, take_stdout

#: Images of a call of ``run``, and the name of transformers' input.
_BATCH, INPUT = 8, "pixel_values"


def module_of(path: str) -> Any:
    """The folder's module, compiled for each batch."""
    import torch

    from optc.importer.json_file import read_object
    from optc.importer.tensors.encoder import load_model

    folder = Path(path)
    module = torch.compile(load_model(folder, read_object(folder / "config.json")))
    return lambda given: module(**{name: torch.from_numpy(x) for name, x in given.items()})[0]


def main() -> None:
    """Open the engine and answer."""
    kind, path, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answers = take_stdout()
    run = open_engine(kind, path, threads, module_of)

    def whole(request: dict[str, Any]) -> dict[str, Any]:
        images = np.load(request["images"])
        parts = [run({INPUT: images[i : i + _BATCH]}) for i in range(0, len(images), _BATCH)]
        np.save(request["file"], np.concatenate(parts).astype(np.float32))
        return {"rows": len(images)}

    def time_calls(request: dict[str, Any]) -> dict[str, Any]:
        given = {INPUT: np.load(request["images"])}
        run(given)  # of another batch than before, what is compiled is not timed
        return timed(run, given, request["calls"])

    serve({"run": whole, "time": time_calls}, {"name": kind}, answers)


if __name__ == "__main__":
    main()
