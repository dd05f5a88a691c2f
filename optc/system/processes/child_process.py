"""Child processes that end with the process that started them, also where that is killed.

A compiler's process may run for minutes. Started by `child_command`, it asks the system to be
killed once its parent is gone, before it runs its module.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def child_command(module: str, *arguments: str) -> list[str]:
    """Command that runs ``python -m module`` in a child process of this one.

    The child ends with the thread that starts it, so that one must wait for it.
    """
    return [
        sys.executable,
        "-m",
        "optc.system.processes.child_process",
        str(os.getpid()),
        module,
        *arguments,
    ]


def child_environment() -> dict[str, str]:
    """The child finds the same packages as this process."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def end_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent, process ``parent``, ends (Linux only;
    elsewhere a killed parent leaves its child running)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that
        os._exit(1)


def main() -> None:
    """Run ``PARENT MODULE ARGUMENT…`` of the command line."""
    parent, module = sys.argv[1:3]
    end_with_parent(int(parent))
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
