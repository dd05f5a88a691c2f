"""Programs of peers: run quietly, and when they fail, why."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

Command = list[str]


class FailedError(Exception):
    """A peer's tool or worker failed; the message has the last that it said."""


def reason_of(log: str) -> str:
    """The reason that a log gives: its last line that names an error, or else its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "rror:" in line]
    return (errors or lines or ["it said nothing"])[-1]


def run(command: Command, settings: Mapping[str, str] | None = None) -> None:
    """Run a program; what it says is shown if it fails.

    Args:
        command: Program and arguments.
        settings: Its environment; None is this process's.

    Raises:
        FailedError: It failed.
    """
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=settings
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        tool = Path(command[1] if Path(command[0]).stem.startswith("python") else command[0]).name
        raise FailedError(f"{tool} ended with {done.returncode}: {reason_of(done.stdout)}")
