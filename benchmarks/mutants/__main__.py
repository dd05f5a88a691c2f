"""Do tests notice when a line is changed?

    python -m benchmarks.mutants [PATH…] [--draw 200] [--seed 0] [--jobs 2] [--output FILE]
                                 [--journal FILE] [--own] [--tests PATH…] [--budget 120]

Draws lines at random, changes each in one way (`mutations.py`) in a private copy of the repository
and runs the tests of its module there (`tests_of.py`). Those must pass without a change. A mutant
that they notice is killed.

What survives them is tried by the tests of all others that run its line (`--own` leaves that out).
One run of the suite finds these: in a copy with a probe at each such line (`probes.py`). Of these
tests each mutant is asked by as many as its budget of seconds allows, the fastest first, and the
result says where not all were asked. A fixture that several tests share is charged to the test that
made it, so that the others may be left out: more mutants survive then, never fewer.

`--every` tries every change of every line instead, for a module whose tests are being written.
`mutants_equivalent.toml` has the changes that change nothing. A run with a ``--journal`` goes on
where one with the same journal was ended, and asks again only where a module or a test has changed
since. pytest takes more options from the environment: ``PYTEST_ADDOPTS='-m "not long"'``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.mutants.draw import draw, find_modules, mutations_by_line
from benchmarks.mutants.journal import Journal
from benchmarks.mutants.probing import ProbedTestsError
from benchmarks.mutants.trials import UnmutatedTestsError
from benchmarks.mutants.verdicts import Others, judge, not_all_asked
from tests.support.tests_of import mirrored_test, tests_of

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "optc/runtime",
    "optc/runtime/executable",
    "optc/passes",
    "optc/proof/gates",
    "optc/artifact",
)


def main(arguments: list[str] | None = None) -> int:
    """Draw, try and print.

    Returns:
        Exit code: 0, or 2 if a path is wrong or tests fail without a mutant.
    """
    args = _parser().parse_args(arguments)
    count = None if args.every else args.draw
    try:
        paths = args.paths or FOLDERS
        journal = Journal(ROOT, args.journal)
        others = None if args.own or args.every else Others(tuple(args.tests), args.budget)
        result = run(ROOT, paths, count, args.seed, args.jobs, others=others, journal=journal)
    except (FileNotFoundError, UnmutatedTestsError, ProbedTestsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _print(result)
    if args.output:
        args.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="*", help=f"modules or folders; default {', '.join(FOLDERS)}"
    )
    parser.add_argument("--draw", type=int, default=200, help="how many lines")
    parser.add_argument("--every", action="store_true", help="every change of every line")
    parser.add_argument("--own", action="store_true", help="only the module's own tests")
    parser.add_argument(
        "--tests", nargs="+", default=["tests"], help="folders whose tests are asked of survivors"
    )
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for each survivor")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="how many at the same time")
    parser.add_argument("--output", type=Path, help="a JSON file")
    parser.add_argument("--journal", type=Path, help="a file of answers, to go on from")
    return parser


def run(
    root: Path,
    paths: Sequence[str],
    count: int | None,
    seed: int,
    jobs: int,
    *,
    others: Others | None = None,
    journal: Journal | None = None,
) -> dict[str, Any]:
    """Verdicts on the mutants of a repository that ``seed`` draws; ``count`` None: of all,
    ``others`` None: by the tests of their modules only, ``journal``: what is known already.

    Raises:
        FileNotFoundError: One of ``paths`` is wrong.
        UnmutatedTestsError: Tests fail without a mutant.
        ProbedTestsError: The suite does not run with probes.
    """
    started = time.monotonic()
    modules = find_modules(root, paths)
    lines = mutations_by_line(root, modules)
    drawn = draw(lines, count, seed)
    verdicts = judge(root, drawn, jobs, others, journal or Journal(root, None))
    return {
        "paths": list(paths),
        "seed": seed,
        "modules": len(modules),
        "modules_without_tests": [module for module in modules if not tests_of(root, module)],
        "lines": len(lines),
        "drawn": len(drawn),
        "budget_s": others and others.budget_s,
        "not_all_asked": sum(not_all_asked(mutant) for mutant in verdicts["survived"]),
        "counts": {verdict: len(found) for verdict, found in verdicts.items()},
        "minutes": round((time.monotonic() - started) / 60, 1),
        **{verdict.replace(" ", "_"): found for verdict, found in verdicts.items()},
    }


def _print(result: dict[str, Any]) -> None:
    counts = " · ".join(f"{verdict} {count}" for verdict, count in result["counts"].items())
    print(f"drawn {result['drawn']} of {result['lines']} lines, seed {result['seed']}: {counts}")
    for mutant in result["survived"]:
        print(f"\nsurvived: {mutant['where']}  {mutant['scope']}  {mutant['kind']}")
        print(f"  - {mutant['line']}\n  + {mutant['becomes']}")
        if not_all_asked(mutant):
            ended = f"{mutant['asked']} of the {mutant['run_by']} others that run it were asked"
            print(f"  not all asked: {ended} in {result['budget_s']:g} s")
    untested = Counter(mutant["where"].rsplit(":", 1)[0] for mutant in result["not_tested"])
    for module, count in sorted(untested.items()):
        print(f"\nnot tested: {module}, {count} drawn; there is no {mirrored_test(module)}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without removing the copies
    sys.exit(main())
