"""Does a batch survive ``kill -9``: no finished line lost, none computed twice, all as offline?

    python -m benchmarks.serving.killed_batch ARTIFACT [--lines 300] [--kills 4] [--seed 0]
        [--json FILE]

``optc serve --state`` answers a batch of seeded texts, and is killed at random times. After each
start it must know at least the lines that it had said were finished. At its end each line has one
answer, which is that of `Engine.generate` in this process; and the texts that all runs of the
server computed after the first are no more than the lines that were left when they began.

Prints one JSON object; the exit code is 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optc

_ADDRESS = re.compile(r"serving .* at (http://\S+)/v1")
_PATIENCE_S = 3600


class Server:
    """A server of a state.

    Args:
        artifact: That it serves.
        state: Its folder.
    """

    def __init__(self, artifact: Path, state: Path) -> None:
        command = [sys.executable, "-m", "optc", "serve", str(artifact), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--no-access-log", "--state", str(state)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stderr is not None
        self.url = next(filter(None, map(_ADDRESS.search, self.process.stderr)))[1]

    def ask(self, path: str, data: bytes | None = None, kind: str = "application/json") -> bytes:
        """The answer of a route."""
        request = urllib.request.Request(self.url + path, data, {"content-type": kind})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
        return found

    def post(self, path: str, body: object) -> dict[str, Any]:
        """The answer to a body of JSON."""
        found: dict[str, Any] = json.loads(self.ask(path, json.dumps(body).encode()))
        return found

    def batch(self, name: str) -> dict[str, Any]:
        """A batch as it is now."""
        found: dict[str, Any] = json.loads(self.ask(f"/v1/batches/{name}"))
        return found

    @property
    def computed(self) -> int:
        """Texts that ended by themselves in this run."""
        text = self.ask("/metrics").decode()
        found = re.findall(r"^optc:request_success_total{.*(?:stop|length).*} (\S+)$", text, re.M)
        return round(sum(map(float, found)))


@contextmanager
def serving(artifact: Path, state: Path) -> Iterator[Server]:
    """A server, which is killed at the end."""
    server = Server(artifact, state)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving.killed_batch", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        result = killed(args.artifact, Path(state), args.lines, args.kills, args.seed)
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if result["right"] else 1)


def asked(number: int) -> dict[str, Any]:
    """The body of a line."""
    rng = random.Random(number)
    tokens = [rng.randrange(100, 400) for _ in range(rng.randint(4, 60))]
    return {"prompt": tokens, "max_tokens": rng.randint(8, 96), "seed": number, "temperature": 0.8}


def killed(artifact: Path, state: Path, lines: int, kills: int, seed: int) -> dict[str, Any]:
    """Answer a batch by servers that are killed; what came of it."""
    rng = random.Random(seed)
    finished, repeated, lost = 0, 0, 0
    at: list[int] = []
    name = ""
    for number in range(kills + 1):
        with serving(artifact, state) as server:
            name = name or begun(server, lines)
            before = server.batch(name)["request_counts"]["completed"]
            lost += max(0, finished - before)
            goal = rng.randint(before + 1, before + max(2, (lines - before) // 2))
            if number == kills:
                goal = lines
            ended = until(server, name, goal)
            computed = server.computed
            finished = server.batch(name)["request_counts"]["completed"]
            # one more may have been computed and not yet been written: it is not finished
            repeated += max(0, computed - 1 - (finished - before))
            if ended:
                answers = answers_of(server, ended)
                break
            at.append(finished)
    offline = texts(artifact, lines)
    different = [key for key, text in offline.items() if answers.get(key) != text]
    right = not (different or lost or repeated) and len(answers) == lines and bool(at)
    return {
        "right": right,
        "lines": lines,
        "killed_at": at,
        "answers": len(answers),
        "different": len(different),
        "lost": lost,
        "repeated": repeated,
    }


def begun(server: Server, lines: int) -> str:
    """Send a file, and begin its batch."""
    rows = [
        {"custom_id": f"c{n}", "method": "POST", "url": "/v1/completions", "body": asked(n)}
        for n in range(lines)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    border = uuid.uuid4().hex
    form = (
        f'--{border}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{border}\r\ncontent-disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
        f"{text}\r\n--{border}--\r\n"
    )
    kind = f"multipart/form-data; boundary={border}"
    file = json.loads(server.ask("/v1/files", form.encode(), kind))
    body = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    return str(server.post("/v1/batches", body)["id"])


def until(server: Server, name: str, goal: int) -> dict[str, Any] | None:
    """Wait until so many lines are finished; gives the batch if it has ended."""
    ends_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ends_s:
        batch = server.batch(name)
        counts = batch["request_counts"]
        if batch["status"] in ("completed", "failed", "expired", "cancelled"):
            return batch
        if counts["completed"] >= goal and goal < counts["total"]:
            return None
        time.sleep(0.02)
    raise TimeoutError("the batch does not end")


def answers_of(server: Server, batch: dict[str, Any]) -> dict[str, str]:
    """Texts of a batch that has ended, by the ids of its lines."""
    text = server.ask(f"/v1/files/{batch['output_file_id']}/content").decode()
    rows = [json.loads(line) for line in text.splitlines()]
    found = {row["custom_id"]: row["response"]["body"]["choices"][0]["text"] for row in rows}
    if len(found) != len(rows):
        raise RuntimeError("a line has two answers")
    return found


def texts(artifact: Path, lines: int) -> dict[str, str]:
    """The same texts, computed here."""
    bodies = [asked(n) for n in range(lines)]
    params = [
        optc.SamplingParams(
            max_tokens=one["max_tokens"], seed=one["seed"], temperature=one["temperature"]
        )
        for one in bodies
    ]
    with optc.load(artifact) as engine:
        outputs = engine.generate([one["prompt"] for one in bodies], params)
    return {f"c{n}": one.text for n, one in enumerate(outputs)}


if __name__ == "__main__":
    main()
