"""``optc``, which meanwhile checks the blocks of keys and values of each engine that it serves.

    python -m benchmarks.serving.watched_server FILE serve ARTIFACT …

Once a second, between two steps, free, held and cached blocks must add up, and each held block must
be of a request. FILE gets a line of JSON each time: the seconds, the requests that ran and waited,
and what was wrong, or null.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from optc.cli.main import main
from optc.errors import EngineError
from optc.runtime.engine import Engine

EVERY_S = 1.0


def watch(engine: Engine, path: Path) -> None:
    """Check the blocks until the engine is closed."""

    def check(core: Any) -> None:
        wrong = None
        try:
            core.scheduler.check_integrity()
        except RuntimeError as error:
            wrong = str(error)
        counts = {"running": core.scheduler.num_running, "waiting": core.scheduler.num_waiting}
        with path.open("a") as file:
            file.write(json.dumps({"s": time.monotonic(), **counts, "wrong": wrong}) + "\n")

    while True:
        time.sleep(EVERY_S)
        try:
            engine._worker.call(check)
        except EngineError:
            return


def run(path: Path) -> None:
    """Run the command with each engine watched."""
    begin = Engine.__init__

    def watched(self: Engine, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        threading.Thread(target=watch, args=(self, path), daemon=True).start()

    Engine.__init__ = watched  # type: ignore[method-assign]
    main()


if __name__ == "__main__":
    file = Path(sys.argv.pop(1))
    run(file)
