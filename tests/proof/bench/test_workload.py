"""Workloads: arrivals, lengths, shared prefixes, traces and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from optc.errors import InputError
from optc.proof.bench.workload import Arrival, make_jobs, read_workload


def test_poisson_arrivals_have_the_rate_and_the_spread_asked_for() -> None:
    for cv in (1, 3):
        arrivals = read_workload(f"poisson:rate=4,requests=20000,cv={cv}")
        gaps = np.diff([a.arrival_s for a in arrivals])
        assert gaps.mean() == pytest.approx(1 / 4, rel=0.1)
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)


def test_lengths_follow_their_distributions() -> None:
    spec = "poisson:rate=1,requests=5000,prompt=lognormal(200,0.5),output=uniform(3,5)"
    arrivals = read_workload(spec)
    prompts = np.array([a.prompt_tokens for a in arrivals])
    assert np.median(prompts) == pytest.approx(200, rel=0.05)
    assert np.log(prompts).std() == pytest.approx(0.5, rel=0.05)
    assert {a.output_tokens for a in arrivals} == {3, 4, 5}
    short = read_workload("poisson:rate=1,requests=500,prompt=exponential(2),output=7")
    assert min(a.prompt_tokens for a in short) == 1
    assert {a.output_tokens for a in short} == {7}


def test_the_seed_decides_everything() -> None:
    spec = "poisson:rate=2,requests=9,prompt=lognormal(20,1),output=exponential(9),prefix=4"
    assert read_workload(spec, 1) == read_workload(spec, 1) != read_workload(spec, 2)
    jobs, again = (make_jobs(read_workload(spec, 1), 100, 64, seed=1)[0] for _ in range(2))
    assert all((a.prompt == b.prompt).all() for a, b in zip(jobs, again, strict=True))


def test_prefixes_are_shared_by_their_id() -> None:
    spec = "poisson:rate=2,requests=40,prompt=30,output=1,prefix=20,prefixes=3"
    arrivals = read_workload(spec)
    assert {a.prefix for a in arrivals} == {"0", "1", "2"}
    jobs, _ = make_jobs(arrivals, 1000, 64)
    beginnings = {tuple(job.prompt[:20]) for job in jobs}
    ends = {tuple(job.prompt[20:]) for job in jobs}
    assert (len(beginnings), len(ends)) == (3, 40)


def test_turns_of_one_conversation_extend_one_another() -> None:
    turns = [Arrival(0, 5, 1, "a"), Arrival(1, 9, 1, "a"), Arrival(2, 9, 1, "b")]
    (first, second, other), _ = make_jobs(turns, 1000, 64)
    assert (second.prompt[:5] == first.prompt).all()
    assert (other.prompt[:5] != first.prompt).any()


def test_requests_are_shortened_to_the_context() -> None:
    jobs, shortened = make_jobs([Arrival(0, 50, 20), Arrival(0, 3, 90), Arrival(0, 9, 9)], 8, 32)
    assert [(len(j.prompt), j.output_tokens) for j in jobs] == [(12, 20), (1, 31), (9, 9)]
    assert shortened == 2


def test_traces_are_read_in_order_of_time(tmp_path: Path) -> None:
    lines = [
        {"arrival_s": 2, "prompt_tokens": 4, "output_tokens": 3, "prefix": 7, "prefix_tokens": 2},
        {"arrival_s": 0.5, "prompt": "abc", "output_tokens": 1},
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    arrivals = read_workload(str(path))
    assert arrivals == [Arrival(0.5, 0, 1, text="abc"), Arrival(2.0, 4, 3, "7", 2)]
    jobs, _ = make_jobs(arrivals, 100, 64, encode=lambda text: [ord(c) for c in text])
    assert jobs[0].prompt.tolist() == [97, 98, 99]
    with pytest.raises(InputError, match="prompts are texts, but there is no tokenizer"):
        make_jobs(arrivals, 100, 64)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r":2: is not JSON"),
        ("[]", r":2: is not a request \(keys: arrival_s"),
        ('{"arrival_s": 1, "prompt_tokens": 3, "outputs": 3}', ":2: is not a request"),
        ('{"arrival_s": 1, "output_tokens": 3}', "needs either prompt or prompt_tokens"),
        ('{"prompt_tokens": 3, "output_tokens": 3}', "arrival_s is None, not seconds"),
        ('{"arrival_s": -1, "prompt_tokens": 3, "output_tokens": 3}', "arrival_s is -1"),
        ('{"arrival_s": 1, "prompt_tokens": 0, "output_tokens": 3}', "prompt_tokens is 0, not"),
        ('{"arrival_s": 1, "prompt": "", "output_tokens": 3}', "prompt is no text"),
    ],
)
def test_wrong_traces_name_the_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n' + line)
    with pytest.raises(InputError, match=message):
        read_workload(str(path))


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("\n")
    with pytest.raises(InputError, match=r"t\.jsonl: holds no requests"):
        read_workload(str(tmp_path / "t.jsonl"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nothing.jsonl", r"'nothing.jsonl' is neither a file nor poisson:…"),
        ("poisson:requests=4", r"rate is missing \(for example rate=4\)"),
        ("poisson:rate=0", "rate is 0"),
        ("poisson:rate=4,requests=1.5", "requests is 1.5"),
        ("poisson:rate=4,rate=5", "'rate=5' is not key=value, each key once"),
        ("poisson:rate=4,colour=red", "unknown key 'colour'"),
        ("poisson:rate=4,prompt=gauss(3,4)", r"prompt: 'gauss\(3,4\)' is no distribution"),
        ("poisson:rate=4,output=uniform(9,4)", r"output: 'uniform\(9,4\)' is no distribution"),
        ("poisson:rate=4,output=lognormal(4)", r"output: 'lognormal\(4\)' is no distribution"),
    ],
)
def test_wrong_specs_name_the_key(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_workload(spec)
