"""Do replicas on Ray give the tokens of one engine, nearly its prefix hits, and survive a death?

    python -m benchmarks.serving.ray_replicas ARTIFACT [--replicas 2] [--groups 16] [--each 16]
        [--prefix 256] [--clients 8] [--json FILE]

The same requests, in groups that begin alike and in random order, are asked by clients who each
wait for an answer before they ask again: of ``optc serve --ray``, and of one engine in this process
whose cache holds them all. Then streams run, one replica is killed within them, and their ends are
looked at.

Prints one JSON object. The exit code is 1 after a difference in tokens, fewer than 0.95 of the one
engine's prefix hits, an answer of the dead replica that ended with anything but ``replica_lost``,
or another one that is not whole. For tokens a second each replica has the threads that the one
engine has (``--cpus``): the machine should have as many cores as all of them, and do nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

import optc

LEAST_HITS = 0.95
_OWN, _NEW, _STREAMED = 16, 32, 200
_ADDRESS = re.compile(r"serving .* at (http://\S+)/v1")
_COMMAND = b"ray::ServeReplica"


@dataclass
class Ends:
    """The ends of streams within which a replica was killed.

    Attributes:
        whole: That got all their tokens.
        lost: Whose last event says ``replica_lost``.
        other: The rest, by what they got.
    """

    whole: int = 0
    lost: int = 0
    other: list[str] = field(default_factory=list)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving.ray_replicas", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--each", type=int, default=16)
    parser.add_argument("--prefix", type=int, default=256)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kv-memory", default="256MiB")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    prompts = grouped(args.groups, args.each, args.prefix)
    with optc.load(args.artifact, threads=args.cpus, kv_memory=args.kv_memory) as engine:
        result = asyncio.run(beside(engine, prompts, args))
    result["settings"] = {**vars(args), "artifact": args.artifact.resolve().name, "json": None}
    result["cores"] = os.cpu_count()
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if result["right"] else 1)


def grouped(groups: int, each: int, prefix: int, seed: int = 0) -> list[list[int]]:
    """Prompts of token ids, in random order: of each group so many, which begin alike."""
    rng = random.Random(seed)

    def draw(count: int) -> list[int]:
        return [rng.randrange(100, 400) for _ in range(count)]

    prompts = [first + draw(_OWN) for first in map(draw, [prefix] * groups) for _ in range(each)]
    rng.shuffle(prompts)
    return prompts


async def beside(
    engine: optc.Engine, prompts: list[list[int]], args: argparse.Namespace
) -> dict[str, Any]:
    """All figures."""
    params = optc.SamplingParams(temperature=0, max_tokens=_NEW, ignore_eos=True)
    command = [sys.executable, "-m", "optc", "serve", str(args.artifact), "--port", "0"]
    replicas = f"replicas={args.replicas},cpus={args.cpus}"
    server = subprocess.Popen(
        [*command, "--ray", replicas, "--no-access-log", "--kv-memory", args.kv_memory],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert server.stderr is not None
    try:
        url = next(filter(None, map(_ADDRESS.search, server.stderr)))[1]
        draining = asyncio.create_task(asyncio.to_thread(server.stderr.read))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(None)) as http:

            async def by_replicas(prompt: list[int]) -> tuple[int, ...]:
                return await completed(http, url, prompt)

            there, there_s = await asked(by_replicas, prompts, args.clients)
            await asyncio.sleep(2)  # the last reports
            hits = await hit_rate(http, url)
            ends, restart_s = await killed(http, url, server.pid, engine, args)
    finally:
        server.terminate()
        code = server.wait()
    await draining

    async def by_one(prompt: list[int]) -> tuple[int, ...]:
        return (await (await engine.asubmit(prompt, params))).token_ids

    here, here_s = await asked(by_one, prompts, args.clients)
    different = sum(one != other for one, other in zip(there, here, strict=True))
    best = engine.metrics().prefix_hit_rate
    right = not different and hits >= LEAST_HITS * best and not ends.other and ends.lost > 0
    return {
        "right": right and ends.whole > 0 and code == 0,
        "requests": len(prompts),
        "different_answers": different,
        "prefix_hit_rate": {"replicas": hits, "one_engine": best, "ratio": hits / best},
        "tokens_per_s": {
            "replicas": len(prompts) * _NEW / there_s,
            "one_engine": len(prompts) * _NEW / here_s,
        },
        "killed": {"whole": ends.whole, "replica_lost": ends.lost, "other": ends.other},
        "seconds_to_another_replica": restart_s,
        "exit_code": code,
    }


async def asked(
    ask: Callable[[list[int]], Awaitable[tuple[int, ...]]],
    prompts: Sequence[list[int]],
    clients: int,
) -> tuple[list[tuple[int, ...]], float]:
    """The answers in order, and the seconds that they took together."""
    answers: list[tuple[int, ...]] = [()] * len(prompts)
    left = iter(enumerate(prompts))
    began_s = time.perf_counter()

    async def client() -> None:
        for number, prompt in left:
            answers[number] = await ask(prompt)

    await asyncio.gather(*(client() for _ in range(clients)))
    return answers, time.perf_counter() - began_s


async def completed(http: aiohttp.ClientSession, url: str, prompt: list[int]) -> tuple[int, ...]:
    """The tokens of an answer."""
    body = {"prompt": prompt, "max_tokens": _NEW, "temperature": 0}
    body |= {"ignore_eos": True, "return_token_ids": True}
    async with http.post(f"{url}/v1/completions", json=body) as answer:
        found = await answer.json()
        return tuple(found["choices"][0]["token_ids"])


async def hit_rate(http: aiohttp.ClientSession, url: str) -> float:
    """Share of the tokens of prompts that caches had."""
    async with http.get(f"{url}/metrics") as answer:
        text = await answer.text()
    values = [
        float(found[1])
        for name in ("hits", "queries")
        if (found := re.search(rf"^optc:prefix_cache_{name}_total{{.*}} (\S+)$", text, re.M))
    ]
    return values[0] / values[1]


async def killed(
    http: aiohttp.ClientSession,
    url: str,
    pid: int,
    engine: optc.Engine,
    args: argparse.Namespace,
) -> tuple[Ends, float]:
    """Kill a replica within streams; also gives the seconds until there is another one."""
    ends, running = Ends(), asyncio.Event()
    begun = 0

    async def stream(number: int) -> None:
        nonlocal begun
        prompt = [100 + number] * 40
        tokens: list[int] = []
        body = {"prompt": prompt, "max_tokens": _STREAMED, "temperature": 0, "stream": True}
        body |= {"ignore_eos": True, "return_token_ids": True}
        async with http.post(f"{url}/v1/completions", json=body) as answer:
            async for line in answer.content:
                if not line.startswith(b"data: {"):
                    continue
                datum = json.loads(line[6:])
                if "error" in datum:
                    ends.lost += datum["error"]["code"] == "replica_lost"
                    if datum["error"]["code"] != "replica_lost":
                        ends.other.append(str(datum["error"]))
                    return
                if not tokens:
                    begun += 1
                    if begun == args.clients:
                        running.set()
                tokens += datum["choices"][0]["token_ids"] or []
        params = optc.SamplingParams(temperature=0, max_tokens=_STREAMED, ignore_eos=True)
        alone = await (await engine.asubmit(prompt, params))
        if tuple(tokens) == alone.token_ids:
            ends.whole += 1
        else:
            ends.other.append(f"{len(tokens)} tokens that are others")

    streams = [asyncio.create_task(stream(number)) for number in range(args.clients)]
    await running.wait()
    os.kill(replica_pids(pid)[0], signal.SIGKILL)
    began_s = time.perf_counter()
    await asyncio.gather(*streams)
    while len(replica_pids(pid)) < args.replicas:
        await asyncio.sleep(0.1)
    return ends, time.perf_counter() - began_s


def replica_pids(server: int) -> list[int]:
    """Processes of replicas below a server's."""
    parents, replicas = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(fields[1])
        if command.startswith(_COMMAND):
            replicas.append(int(folder.name))

    def is_below(pid: int) -> bool:
        while pid not in (0, server):
            pid = parents.get(pid, 0)
        return pid == server

    return sorted(filter(is_below, replicas))


if __name__ == "__main__":
    main()
