from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.replicas.local import Made, Make, replicated
from tests.serve.toys import WaitingExecutable


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes engines of replicas, and closes them: executables that wait do so no more then."""
    made, waiting = [], []
    begin = WaitingExecutable.__init__

    def noted(one: WaitingExecutable, *given: Any) -> None:
        begin(one, *given)
        waiting.append(one)

    monkeypatch.setattr(WaitingExecutable, "__init__", noted)

    def one(*opens: Any, **options: Any) -> Made:
        made.append(replicated(*opens, **options))
        return made[-1]

    yield one
    for executable in waiting:
        executable.let_go()
    for engine, _ in made:
        engine.close()
