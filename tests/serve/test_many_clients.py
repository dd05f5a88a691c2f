"""Many clients at once, some of which leave: what others get is what they would get alone, and
nothing of the engine stays taken."""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

import httpx2

from tests.runtime.support.artifacts import write_artifact
from tests.serve.processes import PATIENCE_S, serving
from tests.serve.toys import TEMPLATE

CLIENTS, REQUESTS = 24, 96
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


def body(number: int, **more: Any) -> dict[str, Any]:
    prompt = "the same beginning of many prompts, " * (number % 3) + f"number {number % 7}"
    asked = {"prompt": prompt, "seed": number, "max_tokens": 4 + number % 23, "n": 1 + number % 2}
    return {**asked, "ignore_eos": True, "stream": True, **more}


async def streamed(http: httpx2.AsyncClient, number: int, leaves: int | None) -> dict[int, str]:
    """The texts of a stream; of one that is left, those up to there."""
    texts: dict[int, str] = {}
    seen = 0
    async with http.stream("POST", "/v1/completions", json=body(number)) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            (choice,) = json.loads(line.removeprefix("data: "))["choices"]
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
            seen += 1
            if seen == leaves:
                return texts
    return texts


async def asked(url: str) -> tuple[dict[int, dict[int, str]], dict[int, dict[int, str]]]:
    """Answers to requests side by side, and to the same ones alone; of those that stay."""
    rng = random.Random(7)
    leaves = {n: rng.randint(1, 5) if rng.random() < 0.4 else None for n in range(REQUESTS)}
    together: dict[int, dict[int, str]] = {}
    left = iter(range(REQUESTS))
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:

        async def client() -> None:
            for number in left:
                together[number] = await streamed(http, number, leaves[number])

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        alone = {n: await streamed(http, n, None) for n in range(REQUESTS) if leaves[n] is None}
        while any((await gauges(http)).values()):
            await asyncio.sleep(0.01)  # who left is cancelled between two steps
    return {n: together[n] for n in alone}, alone


async def gauges(http: httpx2.AsyncClient) -> dict[str, float]:
    text = (await http.get("/metrics")).text
    found = {name: re.search(rf"optc:{name}{{[^}}]*}} (\S+)", text) for name in GAUGES}
    return {name: float(one[1]) for name, one in found.items() if one}


def test_side_by_side_as_alone(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "toy", chat_template=TEMPLATE).path
    with serving(artifact, "--max-sequences", 6, "--ping", 0.01) as server:
        together, alone = asyncio.run(asked(server.url))
        server.terminate()
        code, lines = server.ended()
    assert code == 0
    assert len(alone) > REQUESTS / 3
    assert together == alone
    answered = [line for line in lines if line["path"] == "/v1/completions"]
    assert len(answered) == REQUESTS + len(alone)
    assert all("error" not in line for line in answered)
