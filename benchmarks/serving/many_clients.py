"""Does a server stay right and small under many streaming clients, some of which leave?

    python -m benchmarks.serving.many_clients ARTIFACT [--clients 200] [--seconds 300]
        [--leave 0.3] [--seed 0] [--json FILE]

Clients ask ``optc serve`` for seeded texts, one after the other, by raw sockets. A share of them
leaves after a few events. Meanwhile, each second, the memory of the server is noted, and its blocks
of keys and values are counted between two steps: those that are free, held and cached must add up
(`benchmarks.serving.watched_server`). Then each text that was read to its end is computed by
`Engine.generate` in this process, and must be the same. Nothing may run or wait any more, and no
request may hold blocks.

Prints one JSON object. The exit code is 1 after a difference, an answer that is no 200 or 429,
blocks that do not add up or are still held, or memory that grew by 5 % in the second half.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optc
from benchmarks.soak.memory import growth_percent

MOST_GROWTH = 5.0
_ADDRESS = re.compile(r"serving .* at http://([^:]+):(\d+)/v1")
_GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
_SAMPLE_S = 1.0
_TURNED_AWAY_S = 0.2


@dataclass
class Run:
    """The outcome of a run.

    Attributes:
        texts: Those that were read to the end, by the seed of their request.
        outcomes: How many requests ended how.
        memory: Seconds, and bytes resident in the server then.
        blocks: The counts of blocks, as lines of `benchmarks.serving.watched_server`.
    """

    texts: dict[int, str] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, float]] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving.many_clients", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--leave", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    counts = Path(tempfile.mkdtemp()) / "blocks.jsonl"
    watched = [sys.executable, "-m", "benchmarks.serving.watched_server", str(counts)]
    command = [*watched, "serve", str(args.artifact), "--port", "0"]
    server = subprocess.Popen(
        [*command, "--no-access-log", "--max-waiting", str(2 * args.clients)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert server.stderr is not None
    try:
        found = next(filter(None, map(_ADDRESS.search, server.stderr)))
        address = found[1], int(found[2])
        run, left = asyncio.run(soak(address, server.pid, args))
    finally:
        server.terminate()
        code = server.wait()
    run.blocks = [json.loads(line) for line in counts.read_text().splitlines()]
    result = judged(args.artifact, run, left) | {"exit_code": code, "clients": args.clients}
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if result["right"] and code == 0 else 1)


async def soak(
    address: tuple[str, int], pid: int, args: argparse.Namespace
) -> tuple[Run, dict[str, float]]:
    """Let clients ask; also gives what the server holds once they have gone."""
    run, until_s = Run(), time.monotonic() + args.seconds
    numbers = iter(range(1 << 40))

    async def client(place: int) -> None:
        rng = random.Random(f"{args.seed}/{place}")
        while time.monotonic() < until_s:
            leaves = rng.randint(1, 8) if rng.random() < args.leave else None
            await one_text(address, next(numbers), leaves, run)

    async def sample() -> None:
        while True:
            run.memory.append((time.monotonic(), resident_bytes(pid)))
            await asyncio.sleep(_SAMPLE_S)

    sampling = asyncio.create_task(sample())
    await asyncio.gather(*map(client, range(args.clients)))
    sampling.cancel()
    for _ in range(100):  # who left is cancelled between two steps
        left = await gauges(address)
        if not any(left.values()):
            break
        await asyncio.sleep(0.1)
    return run, left


def asked(number: int) -> dict[str, Any]:
    """The body of a request: of some, prompts begin alike."""
    rng = random.Random(number)
    tokens = [100 + number % 5] * 24 + [rng.randrange(100, 400) for _ in range(rng.randint(1, 40))]
    return {"prompt": tokens, "max_tokens": rng.randint(8, 96), "seed": number, "temperature": 0.8}


async def one_text(address: tuple[str, int], number: int, leaves: int | None, run: Run) -> None:
    """Read one text, or leave after so many events."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request("POST /v1/completions", {**asked(number), "stream": True}))
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass  # headers
        if status != 200:
            run.outcomes[f"status {status}"] += 1
            await asyncio.sleep(_TURNED_AWAY_S)
            return
        parts: list[str] = []
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                parts.append(json.loads(line[6:])["choices"][0]["text"])
                if len(parts) == leaves:
                    run.outcomes["left"] += 1
                    return
            elif line.startswith(b"data: [DONE]"):
                run.texts[number] = "".join(parts)
                run.outcomes["whole"] += 1
                return
        run.outcomes["cut"] += 1
    finally:
        writer.close()


def request(route: str, body: object = None) -> bytes:
    """A request of HTTP."""
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{route} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def gauges(address: tuple[str, int]) -> dict[str, float]:
    """The requests and blocks that the server says it holds."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request("GET /metrics"))
    text = (await reader.read()).decode()
    writer.close()
    found = {name: re.search(rf"^optc:{name}{{.*}} (\S+)$", text, re.M) for name in _GAUGES}
    return {name: float(one[1]) for name, one in found.items() if one}


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024


def judged(artifact: Path, run: Run, left: dict[str, float]) -> dict[str, Any]:
    """The figures, and whether all is right."""
    numbers = sorted(run.texts)
    params = [
        optc.SamplingParams(
            max_tokens=one["max_tokens"], seed=one["seed"], temperature=one["temperature"]
        )
        for one in map(asked, numbers)
    ]
    with optc.load(artifact) as engine:
        outputs = engine.generate([asked(number)["prompt"] for number in numbers], params)
    different = [n for n, o in zip(numbers, outputs, strict=True) if o.text != run.texts[n]]
    growth = growth_percent(run.memory)
    wrong = [name for name in run.outcomes if name not in ("whole", "left", "status 429")]
    held = len(left) < len(_GAUGES) or any(left.values())
    blocks = [one["wrong"] for one in run.blocks if one["wrong"] is not None]
    right = bool(numbers and run.blocks) and not (different or wrong or held or blocks)
    right &= (growth or 0) < MOST_GROWTH
    return {
        "right": right,
        "outcomes": dict(run.outcomes),
        "different": len(different),
        "left": left,
        "block_counts": len(run.blocks),
        "most_running": max((one["running"] for one in run.blocks), default=0),
        "blocks_wrong": blocks[:3],
        "memory_mib": [round(one[1] / 2**20, 1) for one in (run.memory[0], run.memory[-1])],
        "growth_percent": None if growth is None else round(growth, 2),
    }


if __name__ == "__main__":
    main()
