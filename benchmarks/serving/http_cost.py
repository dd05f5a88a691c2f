"""The cost of HTTP: tokens a second and the time between chunks, with `optc serve` and without.

    python -m benchmarks.serving.http_cost ARTIFACT [--clients 16] [--rounds 5] [--json FILE]
        [--chunk-interval 0.02]

The same closed loop of streaming clients runs in turns against

- ``engine``: the bare engine in a process of its own, whose coroutines read `Engine.stream`;
- ``http``: ``optc serve`` in another one, which this process reads by sockets and nothing else:
  the official clients take more time than the server.

Each client asks for one text after the other, of prompts and lengths that are the same on both
sides. Prints the medians of all rounds, and their ratio. The machine should do nothing else: the
clients of ``http`` need a part of a core, which is counted as HTTP's.

``loop_us`` is what the event loop's thread computes for a token, and ``process_us`` what all
threads do, in microseconds of a CPU: these say something on a busy machine, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PROMPT_TOKENS, NEW_TOKENS = 32, 96
_ADDRESS = re.compile(r"serving .* at http://([^:]+):(\d+)/v1")
_TOKENS = re.compile(rb'"token_ids": \[([^\]]+)\]')
#: Share of the tokens that must come.
_SEEN = 0.9

#: Reads one text: how many tokens each chunk has.
Text = Callable[[list[int], int], AsyncIterator[int]]


@dataclass
class Round:
    """One round of one side.

    Attributes:
        tokens: That came.
        seconds: That it took.
        gaps_s: Times between two chunks of a text.
        first_s: Times to the first chunks.
        loop_s: What the event loop's thread computed.
        process_s: What all threads of its process computed.
    """

    tokens: int = 0
    seconds: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    loop_s: float = 0.0
    process_s: float = 0.0

    def to_json(self) -> dict[str, float]:
        """Its figures."""
        return {
            "tokens_per_s": self.tokens / self.seconds,
            "gap_p50_ms": 1e3 * float(np.percentile(self.gaps_s, 50)),
            "gap_p99_ms": 1e3 * float(np.percentile(self.gaps_s, 99)),
            "first_p50_ms": 1e3 * float(np.percentile(self.first_s, 50)),
            "loop_us": 1e6 * self.loop_s / self.tokens,
            "process_us": 1e6 * self.process_s / self.tokens,
        }


def main() -> None:
    """Measure and print; or be the process of the bare engine."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving.http_cost", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--chunk-interval", default="0", help="Of optc serve.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        asyncio.run(be_bare(args.artifact, args.clients, args.seconds))
        return
    served = ["--chunk-interval", args.chunk_interval]
    result = asyncio.run(measure(args.artifact, args.clients, args.rounds, args.seconds, served))
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


async def measure(
    artifact: Path, clients: int, rounds: int, seconds: float, served: list[str]
) -> dict[str, Any]:
    """Rounds of both sides in turns; ``served`` are options of ``optc serve``."""
    options = [artifact, "--clients", clients, "--seconds", seconds]
    bare = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serving.http_cost", "--bare", *map(str, options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    command = [sys.executable, "-m", "optc", "serve", str(artifact), "--port", "0", *served]
    server = subprocess.Popen(
        [*command, "--no-access-log"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert bare.stdin is not None
    assert bare.stdout is not None
    assert server.stderr is not None
    try:
        found = next(filter(None, map(_ADDRESS.search, server.stderr)))
        host, port = found[1], int(found[2])
        figures: dict[str, list[dict[str, float]]] = {"engine": [], "http": []}
        for number in range(rounds + 1):
            bare.stdin.write("go\n")
            bare.stdin.flush()
            engine = json.loads(await asyncio.to_thread(bare.stdout.readline))
            http = await closed_loop(
                lambda p, n: http_text(host, port, p, n), clients, seconds, server.pid
            )
            if number:  # the first one warms up
                figures["engine"].append(engine)
                figures["http"].append(http.to_json())
    finally:
        for process in (bare, server):
            process.terminate()
            process.wait()
    settings = {"clients": clients, "rounds": rounds, "seconds": seconds, "served": served}
    return summary(figures) | settings


async def be_bare(artifact: Path, clients: int, seconds: float) -> None:
    """A round for each line of stdin."""
    import optc

    with optc.load(artifact) as engine:

        async def text(prompt: list[int], new: int) -> AsyncIterator[int]:
            params = optc.SamplingParams(temperature=0, max_tokens=new, ignore_eos=True)
            async for delta in engine.stream(prompt, params):
                yield len(delta.token_ids)

        while await asyncio.to_thread(sys.stdin.readline):
            print(
                json.dumps((await closed_loop(text, clients, seconds, os.getpid())).to_json()),
                flush=True,
            )


async def closed_loop(text: Text, clients: int, seconds: float, pid: int) -> Round:
    """Let clients ask one after the other for so long; ``pid`` is the process that answers."""
    done, began_s, computed = Round(), time.perf_counter(), computed_s(pid)
    until_s = began_s + seconds

    async def client(seed: int) -> None:
        rng = np.random.default_rng(seed)
        asked = False  # each asks for one text at least, however busy the machine is
        while not asked or time.perf_counter() < until_s:
            asked = True
            prompt = rng.integers(100, 400, size=PROMPT_TOKENS).tolist()
            before_s = time.perf_counter()
            first = True
            async for tokens in text(prompt, NEW_TOKENS):
                now_s = time.perf_counter()
                (done.first_s if first else done.gaps_s).append(now_s - before_s)
                before_s, first = now_s, False
                done.tokens += tokens

    await asyncio.gather(*map(client, range(clients)))
    done.seconds = time.perf_counter() - began_s
    loop_s, process_s = computed_s(pid)
    done.loop_s, done.process_s = loop_s - computed[0], process_s - computed[1]
    return done


def computed_s(pid: int) -> tuple[float, float]:
    """Seconds that the main thread of a process has computed, and all of its threads."""
    each = [_cpu_s(f"/proc/{pid}/task/{pid}/stat"), _cpu_s(f"/proc/{pid}/stat")]
    return each[0], each[1]


def _cpu_s(path: str) -> float:
    fields = Path(path).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def http_text(host: str, port: int, prompt: list[int], new: int) -> AsyncIterator[int]:
    """A text by HTTP: the tokens of its events. Those of one that was cut are lost."""
    asked = {
        "prompt": prompt,
        "max_tokens": new,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    body = json.dumps(asked).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(head.encode() + body)
    seen = 0
    while data := await reader.read(1 << 16):
        events = sum(found.count(b",") + 1 for found in _TOKENS.findall(data))
        if events:
            seen += events
            yield events
    writer.close()
    if seen < new * _SEEN:
        raise RuntimeError(f"{seen} of {new} tokens came")


def summary(figures: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians of both sides, and the ratio of each figure."""
    medians = {
        side: {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        for side, rounds in figures.items()
    }
    ratios = {name: medians["http"][name] / value for name, value in medians["engine"].items()}
    shown = {side: {n: round(v, 3) for n, v in one.items()} for side, one in medians.items()}
    return {**shown, "ratio": {name: round(value, 3) for name, value in ratios.items()}}


if __name__ == "__main__":
    main()
