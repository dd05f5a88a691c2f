"""A process that says with what it was started; with ``--wait`` it stays until it is killed."""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":
    print(__name__, "|".join(sys.argv[1:]), flush=True)
    if "--wait" in sys.argv:
        signal.pause()
    sys.exit(3)
