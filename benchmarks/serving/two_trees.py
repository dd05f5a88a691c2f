"""Two states of the project, serving the same artifact in turns: is one of them slower?

    python -m benchmarks.serving.two_trees OLD_TREE NEW_TREE ARTIFACT
        [--sequences 1,16] [--rounds 8] [--json FILE]

Each measurement is a process of its own whose ``optc`` is that of a tree (``git worktree add``):
prompts of 64 random tokens, 128 greedy ones each. Stated are the medians of output tokens a second
over the rounds, and the median, least and largest ratio of the pairs of a round. The tree that goes
first changes from round to round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

#: Runs in either tree: what both versions of the API have.
_SERVE = """
import json, sys, time
import numpy as np
import optc
path, sequences = sys.argv[1], int(sys.argv[2])
with optc.load(path, verify="size", prefix_cache=False) as engine:
    draw = np.random.default_rng(0)
    prompts = draw.integers(0, engine.spec.vocab_size, (sequences, 64)).tolist()
    params = optc.SamplingParams(temperature=0, max_tokens=128, ignore_eos=True)
    engine.generate(prompts, params)
    began = time.perf_counter()
    engine.generate(prompts, params)
    print(json.dumps([optc.__file__, sequences * 128 / (time.perf_counter() - began)]))
"""


def tokens_per_s(tree: Path, artifact: Path, sequences: int) -> float:
    """Output tokens a second of an artifact in a process of a tree."""
    command = [sys.executable, "-c", _SERVE, os.fspath(artifact), str(sequences)]
    environment = {**os.environ, "PYTHONPATH": os.fspath(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=True)
    origin, speed = json.loads(done.stdout)
    if not Path(origin).is_relative_to(tree):
        raise RuntimeError(f"optc came from {origin}, not from {tree}")
    return float(speed)


def compare(old: Path, new: Path, artifact: Path, sequences: int, rounds: int) -> dict[str, Any]:
    """Medians of both trees, and ratios of new over old."""
    speeds: dict[Path, list[float]] = {old: [], new: []}
    for index in range(rounds):
        for tree in (old, new)[:: 1 if index % 2 else -1]:
            speeds[tree].append(tokens_per_s(tree, artifact, sequences))
    ratios = sorted(b / a for a, b in zip(speeds[old], speeds[new], strict=True))
    return {
        "sequences": sequences,
        "old_tokens_per_s": statistics.median(speeds[old]),
        "new_tokens_per_s": statistics.median(speeds[new]),
        "ratio": statistics.median(ratios),
        "ratios": [ratios[0], ratios[-1]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.serving.two_trees", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--sequences", default="1,16", help="by commas")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    old, new, artifact = (path.resolve() for path in (args.old, args.new, args.artifact))
    rows = [
        compare(old, new, artifact, int(count), args.rounds) for count in args.sequences.split(",")
    ]
    text = json.dumps({"artifact": artifact.name, "rounds": args.rounds, "rows": rows}, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
