"""Do tests notice when a line is changed?

    python -m benchmarks.mutants [PATH…] [--draw 200] [--seed 0] [--jobs 2] [--output FILE]
                                 [--journal FILE]

Draws lines at random, changes each in one way (`mutations.py`) in a private copy of the repository
and runs the tests of its module there (`tests_of.py`). Those must pass without a change. A mutant
that they notice is killed. What survives them is tried by all tests of the module's package, which
takes a minute a mutant (`--own` leaves that out). `--every` tries every change of every line
instead, for a module whose tests are being written. `mutants_equivalent.toml` has the changes that
change nothing. A run with a ``--journal`` goes on where one with the same journal was ended, and
asks again only where a module or a test has changed since.
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

from benchmarks.mutants.draw import (
    EQUIVALENT,
    draw,
    find_modules,
    mutations_by_line,
    read_equivalent,
)
from benchmarks.mutants.journal import Journal
from benchmarks.mutants.mutations import Mutation
from benchmarks.mutants.trials import Trial, Trials, UnmutatedTestsError
from tests.support.tests_of import mirrored_test, tests_beside, tests_of

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "optc/runtime",
    "optc/runtime/executable",
    "optc/passes",
    "optc/proof/gates",
    "optc/artifact",
)
#: What becomes of a mutant, in the order in which it is printed.
VERDICTS = (
    "killed",
    "killed by timeout",
    "killed by others",
    "survived",
    "not tested",
    "equivalent",
)
_OUTCOMES = {"failed": "killed", "timeout": "killed by timeout", "passed": "survived"}


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
        own = args.own or args.every
        result = run(ROOT, paths, count, args.seed, args.jobs, own=own, journal=journal)
    except (FileNotFoundError, UnmutatedTestsError) as error:
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
    own: bool = True,
    journal: Journal | None = None,
) -> dict[str, Any]:
    """Verdicts on the mutants of a repository that ``seed`` draws; ``count`` None: of all,
    ``own``: by the tests of their modules only, ``journal``: what is known already.

    Raises:
        FileNotFoundError: One of ``paths`` is wrong.
        UnmutatedTestsError: Tests fail without a mutant.
    """
    started = time.monotonic()
    modules = find_modules(root, paths)
    lines = mutations_by_line(root, modules)
    drawn = draw(lines, count, seed)
    verdicts = _verdicts(root, drawn, jobs, own, journal or Journal(root, None))
    return {
        "paths": list(paths),
        "seed": seed,
        "modules": len(modules),
        "modules_without_tests": [module for module in modules if not tests_of(root, module)],
        "lines": len(lines),
        "drawn": len(drawn),
        "counts": {verdict: len(found) for verdict, found in verdicts.items()},
        "minutes": round((time.monotonic() - started) / 60, 1),
        **{verdict.replace(" ", "_"): found for verdict, found in verdicts.items()},
    }


def _verdicts(
    root: Path, drawn: Sequence[Mutation], jobs: int, own: bool, journal: Journal
) -> dict[str, list[dict[str, Any]]]:
    """The mutants by what becomes of them."""
    equivalents = read_equivalent(root / EQUIVALENT)
    verdicts: dict[str, list[dict[str, Any]]] = {verdict: [] for verdict in VERDICTS}
    to_try: list[tuple[Mutation, list[str]]] = []
    for mutation in drawn:
        tests = tests_of(root, mutation.module)
        reasons = [each.reason for each in equivalents if each.names(mutation)]
        if reasons:
            verdicts["equivalent"].append(_shown(mutation) | {"reason": reasons[0]})
        elif not tests:
            verdicts["not tested"].append(_shown(mutation))
        else:
            to_try.append((mutation, tests))

    def note(trial: Trial) -> None:
        verdict = _OUTCOMES[trial.answer["outcome"]]
        if verdict == "survived" and not own and trial.mutation not in beside:
            beside[trial.mutation] = tests_beside(root, trial.mutation.module)
            return
        if trial.mutation in beside and verdict != "survived":
            verdict = "killed by others"
        seconds = round(trial.answer["seconds"], 1)
        shown = _shown(trial.mutation) | {"by": trial.answer["by"], "seconds": seconds}
        verdicts[verdict].append(shown)
        print(f"{verdict:17} {seconds:6.1f} s  {shown['where']}", file=sys.stderr, flush=True)

    beside: dict[Mutation, list[str]] = {}  # of those that their own tests let live
    if not to_try:
        return verdicts
    with Trials(root, jobs, journal) as trials:
        trials.run_unmutated(sorted({test for _, tests in to_try for test in tests}))
        trials.try_all(to_try, note)
        others = sorted({test for tests in beside.values() for test in tests})
        trials.run_unmutated(others, may_skip=True)
        usable = {m: [t for t in tests if t in trials.seconds] for m, tests in beside.items()}
        trials.try_all([(m, usable[m] or tests_of(root, m.module)) for m in usable], note)
    return verdicts


def _shown(mutation: Mutation) -> dict[str, Any]:
    return {
        "where": f"{mutation.module}:{mutation.lineno}",
        "scope": mutation.scope,
        "kind": mutation.kind,
        "line": mutation.line,
        "becomes": mutation.becomes,
    }


def _print(result: dict[str, Any]) -> None:
    counts = " · ".join(f"{verdict} {count}" for verdict, count in result["counts"].items())
    print(f"drawn {result['drawn']} of {result['lines']} lines, seed {result['seed']}: {counts}")
    for mutant in result["survived"]:
        print(f"\nsurvived: {mutant['where']}  {mutant['scope']}  {mutant['kind']}")
        print(f"  - {mutant['line']}\n  + {mutant['becomes']}")
    untested = Counter(mutant["where"].rsplit(":", 1)[0] for mutant in result["not_tested"])
    for module, count in sorted(untested.items()):
        print(f"\nnot tested: {module}, {count} drawn; there is no {mirrored_test(module)}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without removing the copies
    sys.exit(main())
