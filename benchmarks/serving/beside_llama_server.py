"""`optc serve` beside ``llama-server``: tokens a second and latencies that clients see.

    python -m benchmarks.serving.beside_llama_server ARTIFACT GGUF [--root FOLDER]
        [--clients 1,8,16,64] [--rounds 3] [--requests 6] [--prompt 128] [--new 64]
        [--prefill-chunk N] [--json FILE]

Both serve the same model (state the KL of both formats beside the figures). For each number of
clients, each server is asked in turns by a closed loop of raw streams, `optc bench-serve`'s, with
the same texts: random words, ``--requests`` for each client and a round. The first round warms up.
llama-server is built from the source archive of the peers' environment in ``--root``
(`benchmarks.peers.environments`), as Release for this machine, and gets a slot for each client.
``right`` says that no request failed and that all answers had their length on both sides;
``wrong`` counts, by side, those that failed and those of another length. ``--prefill-chunk`` is
`optc serve`'s: it trades the first token of one client for the gaps between tokens of the others.

The machine should do nothing else. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import llama_tool
from optc.proof.bench.online.figures import figures
from optc.proof.bench.online.load import Load, closed_loop
from optc.proof.bench.online.prompts import make_askings
from optc.proof.bench.online.server import ServerUnderLoad, find_model
from optc.proof.bench.workload import read_workload

_ADDRESS = re.compile(r"serving .* at (http://\S+)/v1")
_LOADING_S = 300
#: Figures that are compared, by their paths in those of `optc bench-serve`.
_SHOWN = {
    "tokens_per_s": ("output_tokens_per_s",),
    "ttft_p50_ms": ("ttft_ms", "p50"),
    "ttft_p99_ms": ("ttft_ms", "p99"),
    "itl_p50_ms": ("itl_ms", "p50"),
    "itl_p99_ms": ("itl_ms", "p99"),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.serving.beside_llama_server", description=__doc__
    )
    parser.add_argument("artifact", type=Path)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--root", type=Path, default=Path("peers"))
    parser.add_argument("--clients", default="1,8,16,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=6, help="For each client and a round.")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--prefill-chunk", type=int)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = [measured(args, int(clients)) for clients in args.clients.split(",")]
    result = {
        "right": all(row["right"] for row in rows),
        "artifact": args.artifact.name,
        "gguf": args.gguf.name,
        "prompt": args.prompt,
        "new": args.new,
        "rounds": args.rounds,
        "prefill_chunk": args.prefill_chunk,
        "rows": rows,
    }
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if result["right"] else 1)


def measured(args: argparse.Namespace, clients: int) -> dict[str, Any]:
    """The figures of both servers for a number of clients."""
    found: dict[str, list[dict[str, float]]] = {"optc": [], "llama-server": []}
    wrong = {side: {"failed": 0, "length": 0} for side in found}
    with ours(args) as first, llama_server(args, clients) as second:
        for number in range(args.rounds + 1):
            for side, url in (("optc", first), ("llama-server", second)):
                load = asyncio.run(loaded(url, args, clients, number))
                failures = [one.failure for one in load.answers if one.failure is not None]
                failed = len(failures)
                for reason in failures[:1]:
                    print(f"{side}: {reason}", file=sys.stderr)
                whole = sum(one.times.tokens == args.new for one in load.answers)
                wrong[side]["failed"] += failed
                wrong[side]["length"] += len(load.answers) - failed - whole
                if number:
                    found[side].append(shown(load))
    medians = {
        side: {name: round(statistics.median(r[name] for r in rows), 2) for name in _SHOWN}
        for side, rows in found.items()
    }
    theirs = medians["llama-server"]
    ratio = {
        name: round(value / theirs[name], 3) if theirs[name] else None
        for name, value in medians["optc"].items()
    }
    right = not any(count for side in wrong.values() for count in side.values())
    return {"clients": clients, "right": right, "wrong": wrong, **medians, "ratio": ratio}


async def loaded(url: str, args: argparse.Namespace, clients: int, seed: int) -> Load:
    """One round: the same texts for both sides."""
    model = await find_model(url, None, None)
    count = clients * args.requests
    spec = f"poisson:rate=1,requests={count},prompt={args.prompt},output={args.new}"
    askings, _ = make_askings(read_workload(spec, seed), seed=seed)
    return await closed_loop(ServerUnderLoad(url, model.name), askings, clients)


def shown(load: Load) -> dict[str, float]:
    """The figures of a round that are compared."""
    values = figures(load)
    found = {}
    for name, path in _SHOWN.items():
        value: Any = values
        for key in path:
            value = value[key]
        found[name] = float(value)
    return found


@contextmanager
def ours(args: argparse.Namespace) -> Iterator[str]:
    """The address of `optc serve`."""
    command = [sys.executable, "-m", "optc", "serve", str(args.artifact), "--port", "0"]
    if args.prefill_chunk:
        command += ["--prefill-chunk", str(args.prefill_chunk)]
    process = subprocess.Popen(
        [*command, "--no-access-log"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    try:
        yield next(filter(None, map(_ADDRESS.search, process.stderr)))[1]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def llama_server(args: argparse.Namespace, clients: int) -> Iterator[str]:
    """The address of ``llama-server`` with a slot for each client."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # random words have up to four tokens each
    context = clients * (4 * args.prompt + args.new + 16)
    threads = str(len(os.sched_getaffinity(0)))
    command = [str(llama_tool(args.root, "llama-server")), "-m", str(args.gguf)]
    command += ["--port", str(port), "-np", str(clients), "-c", str(context)]
    command += ["-t", threads, "-tb", threads]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, f"{url}/health")
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    ends_s = time.monotonic() + _LOADING_S
    while process.poll() is None and time.monotonic() < ends_s:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"llama-server does not serve (exit code {process.poll()})")


if __name__ == "__main__":
    main()
