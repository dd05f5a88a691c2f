"""The cost of HTTP: tokens a second and the time between chunks, with `optc serve` and without.

    python -m benchmarks.serving.http_cost ARTIFACT [--clients 16] [--rounds 5] [--json FILE]
        [--chunk-interval 0.02]

The same closed loop of streaming clients runs in turns against

- ``engine``: the bare engine in a process of its own, whose coroutines read `Engine.stream`;
- ``http``: ``optc serve`` in another one, which this process reads by sockets that it waits for
  together (``epoll``): the official clients take more time than the server.

Each client asks for one text after the other, by one connection, of prompts and lengths that are
the same on both sides. Prints the medians of all rounds, and their ratio.

The machine should do nothing else. Its cores are shared: the bare engine has all of them, and
beside ``http`` the clients need a part of one, which is counted as HTTP's. So CPU time is told by
who takes it, in microseconds for a token, which says something on a busy machine, too: ``loop_us``
is the thread of the event loop, ``process_us`` all threads of its process, ``client_us`` the
process that reads ``http``, and ``cpu_us`` all together.
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
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import numpy as np

PROMPT_TOKENS = 32
#: Answers have different lengths, as users' have. Were all of one length, 16 clients would ask at
#: the same time again and again.
FEWEST_TOKENS, MOST_TOKENS = 48, 144
#: Of a request beside its prompt.
_ASKED = {
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
    "return_token_ids": True,
}
#: The tokens of a chunk, and the end of a text.
_TOKENS, _END = re.compile(rb'"token_ids":\[([^\]]+)\]'), b"data: [DONE]"
_ADDRESS = re.compile(r"serving .* at http://([^:]+):(\d+)/v1")

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
        client_s: What clients in a process of their own computed.
    """

    tokens: int = 0
    seconds: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    loop_s: float = 0.0
    process_s: float = 0.0
    client_s: float = 0.0

    def to_json(self) -> dict[str, float]:
        """Its figures."""
        return {
            "tokens_per_s": self.tokens / self.seconds,
            "gap_p50_ms": 1e3 * float(np.percentile(self.gaps_s, 50)),
            "gap_p99_ms": 1e3 * float(np.percentile(self.gaps_s, 99)),
            "first_p50_ms": 1e3 * float(np.percentile(self.first_s, 50)),
            "loop_us": 1e6 * self.loop_s / self.tokens,
            "process_us": 1e6 * self.process_s / self.tokens,
            "client_us": 1e6 * self.client_s / self.tokens,
            "cpu_us": 1e6 * (self.process_s + self.client_s) / self.tokens,
        }


def main() -> None:
    """Measure and print; or be the process of the bare engine."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving.http_cost", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--chunk-interval", help="Of optc serve; 0 is a chunk for each step.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        asyncio.run(be_bare(args.artifact, args.clients, args.seconds))
        return
    served = ["--chunk-interval", args.chunk_interval] if args.chunk_interval else []
    result = measure(args.artifact, args.clients, args.rounds, args.seconds, served)
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(
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
            engine = json.loads(bare.stdout.readline())
            http = http_loop(host, port, clients, seconds, server.pid)
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
        questions, asked = questions_of(seed), False  # even on a busy machine each asks once
        while not asked or time.perf_counter() < until_s:
            asked = True
            prompt, new = next(questions)
            seen = Seen(done)
            async for tokens in text(prompt, new):
                seen.add(tokens)

    await asyncio.gather(*map(client, range(clients)))
    _ended(done, began_s, computed, pid)
    return done


def http_loop(host: str, port: int, clients: int, seconds: float, pid: int) -> Round:
    """The same by HTTP, in one thread that waits for all connections."""
    done, began_s, computed = Round(), time.perf_counter(), computed_s(pid)
    until_s, client_s = began_s + seconds, time.process_time()
    with DefaultSelector() as selector:
        for seed in range(clients):
            client = Client(socket.create_connection((host, port)), questions_of(seed), done)
            selector.register(client.socket, EVENT_READ, client)
            client.ask()
        while selector.get_map():
            for key, _ in selector.select():
                client = key.data
                if not client.read():
                    continue
                if time.perf_counter() < until_s:
                    client.ask()
                else:
                    selector.unregister(client.socket)
                    client.socket.close()
    done.client_s = time.process_time() - client_s
    _ended(done, began_s, computed, pid)
    return done


def questions_of(seed: int) -> Iterator[tuple[list[int], int]]:
    """The requests of one client: prompts, and how many tokens each answer has."""
    rng = np.random.default_rng(seed)
    while True:
        prompt = rng.integers(100, 400, size=PROMPT_TOKENS).tolist()
        yield prompt, int(rng.integers(FEWEST_TOKENS, MOST_TOKENS, endpoint=True))


class Seen:
    """Notes when the chunks of one text come.

    Args:
        done: Where it is noted.
    """

    def __init__(self, done: Round) -> None:
        self._done, self._first, self._before_s = done, True, time.perf_counter()
        self.tokens = 0

    def add(self, tokens: int) -> None:
        """A chunk of so many tokens has come."""
        now_s, done = time.perf_counter(), self._done
        (done.first_s if self._first else done.gaps_s).append(now_s - self._before_s)
        self._first, self._before_s = False, now_s
        self.tokens += tokens
        done.tokens += tokens


class Client:
    """One connection, which asks for one text after the other.

    Args:
        connection: To the server.
        questions: That it asks.
        done: Where its tokens are noted.
    """

    def __init__(
        self, connection: socket.socket, questions: Iterator[tuple[list[int], int]], done: Round
    ) -> None:
        self.socket = connection
        self._questions, self._done = questions, done
        self._rest = b""

    def ask(self) -> None:
        """Send a request."""
        prompt, self._wanted = next(self._questions)
        body = json.dumps({"prompt": prompt, "max_tokens": self._wanted, **_ASKED}).encode()
        head = (
            "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._seen = Seen(self._done)
        self.socket.sendall(head.encode() + body)

    def read(self) -> bool:
        """Take what has come; true once the text has ended."""
        data = self._rest + self.socket.recv(1 << 16)
        whole, _, self._rest = data.rpartition(b"\n\n")
        if tokens := sum(found.count(b",") + 1 for found in _TOKENS.findall(whole)):
            self._seen.add(tokens)
        if _END not in whole:
            return False
        if self._seen.tokens != self._wanted:
            raise RuntimeError(f"{self._seen.tokens} of {self._wanted} tokens came")
        return True


def _ended(done: Round, began_s: float, computed: tuple[float, float], pid: int) -> None:
    done.seconds = time.perf_counter() - began_s
    loop_s, process_s = computed_s(pid)
    done.loop_s, done.process_s = loop_s - computed[0], process_s - computed[1]


def computed_s(pid: int) -> tuple[float, float]:
    """Seconds that the main thread of a process has computed, and all of its threads."""
    each = [_cpu_s(f"/proc/{pid}/task/{pid}/stat"), _cpu_s(f"/proc/{pid}/stat")]
    return each[0], each[1]


def _cpu_s(path: str) -> float:
    fields = Path(path).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def summary(figures: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians of both sides, and the ratio of each figure."""
    medians = {
        side: {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        for side, rounds in figures.items()
    }
    ratios = {n: medians["http"][n] / value for n, value in medians["engine"].items() if value}
    shown = {side: {n: round(v, 3) for n, v in one.items()} for side, one in medians.items()}
    return {**shown, "ratio": {name: round(value, 3) for name, value in ratios.items()}}


if __name__ == "__main__":
    main()
