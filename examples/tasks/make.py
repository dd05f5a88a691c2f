"""Writes the data of the example's tasks: `python examples/tasks/make.py`.

Documents that the example's model has not seen: which of four lines follows a piece of code
(code_choices.jsonl), and how a line goes on (code_lines.jsonl).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TEXTS = HERE.parent / "text" / "code_heldout.jsonl"
#: Lines of a context, and pieces that a document gives of each kind.
CONTEXT, PIECES = 12, 2
#: Lines that are worth a question.
SHORTEST, LONGEST = 12, 60


def documents() -> list[list[str]]:
    """The held-out documents as lines."""
    with TEXTS.open(encoding="utf-8") as stream:
        return [json.loads(line)["text"].splitlines() for line in stream]


def places(lines: list[str], drawn: random.Random) -> list[int]:
    """Lines with enough before them that have words to guess."""
    fitting = [
        at
        for at in range(CONTEXT, len(lines))
        if SHORTEST <= len(lines[at].strip()) <= LONGEST and not lines[at].strip().startswith("#")
    ]
    return sorted(drawn.sample(fitting, PIECES)) if len(fitting) > 4 * PIECES else []


def choices(drawn: random.Random) -> Iterator[dict[str, Any]]:
    """Questions: the true line and three others of the same document."""
    for lines in documents():
        for at in places(lines, drawn):
            others = [lines[other] for other in places(lines, drawn) + places(lines, drawn)]
            wrong = [line for line in dict.fromkeys(others) if line != lines[at]][:3]
            if len(wrong) < 3:
                continue
            options = [lines[at], *wrong]
            drawn.shuffle(options)
            yield {
                "context": "\n".join(lines[at - CONTEXT : at]) + "\n",
                "choices": options,
                "answer": options.index(lines[at]),
            }


def beginnings(drawn: random.Random) -> Iterator[dict[str, Any]]:
    """Most of a line behind its context, and the rest of it."""
    for lines in documents():
        for at in places(lines, drawn):
            line = lines[at].rstrip()
            cut = len(line) - len(line.lstrip()) + 3 * len(line.strip()) // 4
            before = "\n".join([*lines[at - CONTEXT : at], line[:cut]])
            yield {"context": before, "rest": line[cut:]}


def written(rows: Iterator[dict[str, Any]]) -> str:
    """Rows as lines of JSON."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main() -> None:
    """Write both files."""
    (HERE / "code_choices.jsonl").write_text(written(choices(random.Random(0))), encoding="utf-8")
    (HERE / "code_lines.jsonl").write_text(written(beginnings(random.Random(1))), encoding="utf-8")


if __name__ == "__main__":
    main()
