"""A pool of Python text to train on: the standard library of the Python that runs this.

    python -m benchmarks.inputs.build_text_pool POOL.jsonl

Left out are tests, tables, and the modules of ``examples/text/code_heldout.jsonl`` and of the other
held-out modules that no model of ``examples/models`` was trained on (the rule of
``examples/training/pair/corpus.py``).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HELD_OUT = ROOT / "examples/text/code_heldout.jsonl"
#: As in examples/training/pair/corpus.py.
_SKIPPED = {"test", "tests", "idle_test", "site-packages", "__pycache__", "_bundled"}
_EVAL_SHARE = 0.06
_SHORTEST, _LONGEST = 200, 200_000


def documents() -> Iterator[tuple[str, str]]:
    """Names and texts, sorted by name."""
    library = Path(sysconfig.get_paths()["stdlib"])
    held_out = {json.loads(line)["name"] for line in HELD_OUT.read_text().splitlines()}
    for path in sorted(library.rglob("*.py")):
        relative = path.relative_to(library)
        hashed = hashlib.sha256(str(relative).encode()).digest()[0] < 256 * _EVAL_SHARE
        if _SKIPPED & set(relative.parts) or hashed or str(relative) in held_out:
            continue
        if relative.parts[0] in ("encodings", "pydoc_data"):
            continue  # tables
        text = path.read_text("utf-8", errors="ignore")
        if _SHORTEST <= len(text) < _LONGEST:
            yield str(relative), text


def write_pool(path: Path) -> int:
    """Write the pool as JSON lines; returns its documents."""
    lines = [json.dumps({"name": name, "text": text}) for name, text in documents()]
    path.write_text("\n".join(lines) + "\n")
    return len(lines)


def main() -> None:
    """Write the pool."""
    parser = argparse.ArgumentParser(prog="benchmarks.inputs.build_text_pool", description=__doc__)
    parser.add_argument("pool", type=Path)
    args = parser.parse_args()
    print(f"{write_pool(args.pool)} documents in {args.pool}")


if __name__ == "__main__":
    main()
