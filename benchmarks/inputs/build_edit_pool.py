"""Code edits to train drafts on: a function, blank lines, and its head under another name.

    python -m benchmarks.inputs.build_edit_pool POOL.jsonl EDITS.jsonl

POOL.jsonl is what ``benchmarks/inputs/build_text_pool.py`` writes. Edits have the shape of those of
``benchmarks.serving.speculation``, are made of training texts, and name the copy in more ways.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

#: A function at the left margin.
_FUNCTION = re.compile(r"(?ms)^def (\w+)\(.*?(?=^\S)")
#: What becomes of a name.
_NAMES = ("{}_new", "{}_new", "{}2", "{}_fast", "new_{}", "{}_v2", "my_{}", "{}_copy")
_SHORTEST, _LONGEST = 150, 900


def edits_of(text: str, random_: random.Random) -> Iterator[str]:
    """An edit of each function of a module that is neither short nor long."""
    for match in _FUNCTION.finditer(text):
        function = match[0].rstrip()
        if _SHORTEST < len(function) < _LONGEST:
            name = random_.choice(_NAMES).format(match[1])
            head = function.splitlines()[0].replace(match[1], name, 1)
            yield f"{function}\n\n\n{head}\n"


def write_edits(pool: Path, path: Path) -> int:
    """Write the edits of all texts of a pool as JSON lines; returns how many there are."""
    lines = []
    for row in map(json.loads, pool.read_text().splitlines()):
        edits = edits_of(row["text"], random.Random(row["name"]))
        lines += [
            json.dumps({"name": f"{row['name']}#{number}", "text": edit})
            for number, edit in enumerate(edits)
        ]
    path.write_text("\n".join(lines) + "\n")
    return len(lines)


def main() -> None:
    """Write the edits."""
    parser = argparse.ArgumentParser(prog="benchmarks.inputs.build_edit_pool", description=__doc__)
    parser.add_argument("pool", type=Path)
    parser.add_argument("edits", type=Path)
    args = parser.parse_args()
    print(f"{write_edits(args.pool, args.edits)} edits in {args.edits}")


if __name__ == "__main__":
    main()
