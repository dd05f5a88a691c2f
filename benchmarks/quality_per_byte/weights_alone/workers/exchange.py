"""The request to a worker and its answers; a worker runs in the environment of its peer.

``python WORKER.py REQUEST.json``. The request names ``model`` (Hugging Face folder), ``heldout``
and ``calibration`` (.npy of token ids [W, 513]), ``output`` (folder) and ``only`` (texts; a format
is made if its label contains one of them; none: all). For each format a folder: ``about.json``,
written last, and ``logits.npy``, float32 [W, 512, V], or ``weights.npz``, float32 by the
checkpoint's names.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np


class Request:
    """The request, and the places of its answers."""

    def __init__(self, path: str) -> None:
        asked = json.loads(Path(path).read_text())
        self.model = Path(asked["model"])
        self.output = Path(asked["output"])
        self.heldout = np.load(asked["heldout"])[:, :-1].astype(np.int64)
        self.calibration = np.load(asked["calibration"])[:, :-1].astype(np.int64)
        self.calibration_text = Path(asked["calibration_text"])
        self._only = asked["only"]

    @classmethod
    def of_command_line(cls) -> Request:
        """The one that the command line names."""
        return cls(sys.argv[1])

    def wants(self, label: str) -> bool:
        """True if a format is asked for."""
        return not self._only or any(text in label for text in self._only)

    def folder(self, label: str) -> Path:
        """The folder of a format's answer, which is created."""
        kept = "".join(c if c.isalnum() or c in "._-" else "_" for c in label)
        path = self.output / kept
        path.mkdir(parents=True, exist_ok=True)
        return path

    def answer(self, label: str, about: dict[str, Any]) -> None:
        """Say that a format is there: ``stored`` {tensor: [values, bytes, format]}, ``version``,
        ``numerics`` and ``note``."""
        (self.folder(label) / "about.json").write_text(json.dumps({"label": label, **about}))

    def write_logits(self, label: str, run: Callable[[Any], Any]) -> None:
        """Run ``run`` ([1, 512] ids to [1, 512, V] logits) on every held-out window."""
        rows = [np.asarray(run(w[None]), np.float32)[0] for w in self.heldout]
        np.save(self.folder(label) / "logits.npy", np.stack(rows))

    def make_all(self, formats: Iterable[tuple[str, Callable[[str], None]]]) -> None:
        """Make every format that is asked for and is not there yet.

        One that fails says why, and the next goes on: a peer's quantizer may raise anything. The
        reason goes into the result file.
        """
        for label, make in formats:
            if not self.wants(label) or (self.folder(label) / "about.json").exists():
                continue
            began = time.monotonic()
            try:
                make(label)
            except Exception as error:  # noqa: BLE001 - reported as the reason
                traceback.print_exc()
                reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                self.answer(label, {"failed": reason})
            print(f"{label}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def tensor_name(name: str) -> str | None:
    """The checkpoint's name of a tensor inside another name; None if there is none."""
    for prefix in ("model.layers.", "model.embed_tokens.", "model.norm.", "lm_head."):
        start = name.find(prefix)
        if start >= 0:
            end = name.find("weight", start)
            return name[start : end + len("weight")] if end >= 0 else None
    return None
