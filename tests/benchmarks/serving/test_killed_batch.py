"""A short run on a real engine would take minutes: what the command asks for and judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.serving import killed_batch
from benchmarks.serving.killed_batch import asked, killed


class Server:
    """A server that finishes a line whenever it is looked at; of what it has written, it loses
    ``loses`` at each end, and computes ``again`` lines twice."""

    def __init__(self, done: int, lines: int, again: int, wrong: bool) -> None:
        self.done, self.lines, self.again, self.wrong, self.computed = (
            done,
            lines,
            again,
            wrong,
            again,
        )

    def batch(self, name: str) -> dict[str, Any]:
        if self.done < self.lines:
            self.done += 1
            self.computed += 1
        counts = {"completed": self.done, "total": self.lines}
        status = "completed" if self.done == self.lines else "in_progress"
        return {"request_counts": counts, "status": status, "output_file_id": "f"}


@pytest.mark.parametrize(
    ("loses", "again", "wrong", "right"),
    [(0, 0, False, True), (3, 0, False, False), (0, 5, False, False), (0, 0, True, False)],
)
def test_what_is_right(
    monkeypatch: pytest.MonkeyPatch, loses: int, again: int, wrong: bool, right: bool
) -> None:
    lines, states = 40, [0]

    class Serving:
        def __init__(self, artifact: Path, state: Path) -> None:
            self.server = Server(max(0, states[-1] - loses), lines, again, wrong)

        def __enter__(self) -> Server:
            return self.server

        def __exit__(self, *error: object) -> None:
            states.append(self.server.done)

    answers = {f"c{n}": "other" if wrong and n == 7 else str(n) for n in range(lines)}
    monkeypatch.setattr(killed_batch, "serving", Serving)
    monkeypatch.setattr(killed_batch, "begun", lambda server, lines: "batch")
    monkeypatch.setattr(killed_batch, "answers_of", lambda server, batch: answers)
    texts = {f"c{n}": str(n) for n in range(lines)}
    monkeypatch.setattr(killed_batch, "texts", lambda artifact, lines: texts)
    found = killed(Path("a"), Path("s"), lines, 3, 0)
    assert found["right"] == right, found
    assert len(found["killed_at"]) >= 1


def test_lines_are_those_of_their_number() -> None:
    assert asked(3) == asked(3) != asked(4)
