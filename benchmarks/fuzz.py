"""Damaged files and wrong requests: does optc refuse each with one clear error?

    python -m benchmarks.fuzz [--format NAME]... [--inputs N] [--seed N] [--whole N] [--json FILE]

Each format's undamaged samples get a few small changes, drawn from a seed. optc takes or refuses
the result in a worker, so that a crash or a hang is counted like anything else. ``--whole`` also
runs N whole commands (compile, run, inspect, eval, verify) on such inputs as child processes and
judges exit codes, messages and what is left behind.

Exceptions that are not optc's, crashes, hangs, wrong exit codes and leftovers are findings: the
exit code is 1 then, and the smallest input of each lies in ``--findings``. ``--replay FOLDER`` runs
one of them again, in this process, with its traceback. A results' file that is there keeps what it
has of other formats.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.fuzz.findings import read_draw, save_findings, save_whole
from tests.fuzz.form import Draw, Materials
from tests.fuzz.formats import FORMATS
from tests.fuzz.hunt import LIMIT_S, hunt
from tests.fuzz.materials import materials_for
from tests.fuzz.whole import run_whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz what is asked for; 1 if anything was found."""
    args = _parser().parse_args(arguments)
    names = args.format or ([] if args.replay else list(FORMATS))
    with TemporaryDirectory(prefix="optc-fuzz-") as folder:
        if args.replay:
            return replay(args.replay, Path(folder), args.artifact)
        materials = materials_for(names, Path(folder), artifact=args.artifact, whole=args.whole > 0)
        result: dict[str, Any] = {"seed": args.seed, "limit_s": args.limit, "formats": {}}
        result |= kept(args.json, args.seed, args.limit)
        for name in names:
            result["formats"][name] = fuzz(name, materials, args)
            write(args.json, result)
        if args.whole:
            tally = run_whole(materials, args.whole, args.seed, args.limit)
            saved = save_whole(tally, materials, args.findings, args.seed)
            result["whole"] = {**tally.to_json(), "findings": saved}
            _say("whole", result["whole"])
            write(args.json, result)
    parts = [*(result["formats"][name] for name in names), result["whole"] if args.whole else {}]
    return int(any(part.get("findings") for part in parts))


def kept(file: Path | None, seed: int, limit_s: float) -> dict[str, Any]:
    """The part of a results' file that runs with the same seed and limit wrote."""
    if file is None or not file.exists():
        return {}
    found: dict[str, Any] = json.loads(file.read_text())
    return found if (found["seed"], found["limit_s"]) == (seed, limit_s) else {}


def write(file: Path | None, result: dict[str, Any]) -> None:
    """Write the results' file, where one is wanted."""
    if file is not None:
        file.write_text(json.dumps(result, indent=1) + "\n")


def fuzz(name: str, materials: Materials, args: argparse.Namespace) -> dict[str, Any]:
    """Counts and findings of one format."""
    started = time.perf_counter()
    form = FORMATS[name]()
    form.prepare(materials)
    draws = [Draw.of(name, args.seed, index) for index in range(args.inputs)]
    tally = hunt(form, draws, limit_s=args.limit)
    seconds = round(time.perf_counter() - started, 1)
    saved = save_findings(form, tally, args.findings, args.seed, limit_s=args.limit)
    counts = {**tally.to_json(), "seconds": seconds, "findings": saved}
    _say(name, counts)
    return counts


def replay(finding: Path, folder: Path, artifact: Path | None) -> int:
    """Run a saved input again; what it raises is seen."""
    name, draw = read_draw(finding)
    form = FORMATS[name]()
    form.prepare(materials_for([name], folder, artifact=artifact, whole=False))
    place = folder / "input"
    place.mkdir()
    form.open(place)
    form.run(form.make(draw))
    print("accepted")
    return 0


def _say(name: str, counts: dict[str, Any]) -> None:
    findings = counts["findings"]
    print(name, json.dumps({k: v for k, v in counts.items() if k != "findings"}), flush=True)
    for found in findings:
        print("   ", json.dumps(found), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--format", action="append", choices=list(FORMATS), help="[all]")
    parser.add_argument("--inputs", type=int, default=5000, help="of each format [5000]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", type=int, default=0, metavar="N", help="whole commands [0]")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="[10]")
    parser.add_argument("--artifact", type=Path, help="[a tiny model, compiled]")
    parser.add_argument("--findings", type=Path, default=Path("artifacts/fuzz"), metavar="DIR")
    parser.add_argument("--replay", type=Path, metavar="DIR", help="a finding's folder")
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
