"""Uses the package as its user would, in one process that has it installed."""

from __future__ import annotations

import sys
from pathlib import Path

from optc.cli.main import run

RECIPE = ("--recipe", "elsewhere-int4", "--no-gates")
ENGINES = ("--backend", "elsewhere", "--backend", "tvm", "--target", "x86-64-v3")
#: The package's backend alone, which compiles no kernels.
OWN = ENGINES[:2] + ENGINES[4:]
NAMES = ("elsewhere-x86-64-v3", "tvm-x86-64-v3")
SHORT = ("--tokens", "512", "--window", "16", "--batch", "2")


def main(model: Path, work: Path) -> None:
    """Print the JSON of each command as one line."""
    text = work / "text.txt"
    text.write_text("Neurons that fire together are pruned together. " * 80)
    trained, artifact = work / "trained", work / "artifact"
    calls = [
        ("passes",),
        ("recipes",),
        ("plan", model, "--recipe", "elsewhere-int4", "--budget", "5bpw"),
        ("distill", model, *RECIPE[:2], "--text", text, *SHORT, "-o", trained),
        ("compile", model, *RECIPE, *ENGINES, "--trained", trained, "-o", artifact),
        ("compile", model, *RECIPE, *OWN, "--budget", "5bpw", "-o", work / "budget"),
        *(
            ("run", artifact, "--engine", name, "--prompt", "hello", "--max-tokens", "8")
            for name in NAMES
        ),
        (
            "export",
            artifact,
            "--engine",
            "tvm-x86-64-v3",
            "--format",
            "hf",
            "-o",
            work / "exported",
        ),
    ]
    for call in calls:
        code = run([*map(str, call), "--json"])
        if code:
            sys.exit(f"optc {call[0]} ended with {code}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
