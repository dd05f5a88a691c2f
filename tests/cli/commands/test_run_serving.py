"""``optc run``: beam search, and how prompts are batched."""

from __future__ import annotations

from pathlib import Path

import pytest

import optc as package
from optc.runtime import loader
from optc.runtime.settings import ServeSettings
from tests.cli.conftest import Optc

RUN = ("--max-tokens", "6", "--ignore-eos")


def test_beams_are_those_of_the_library_best_first(optc: Optc, artifact: Path) -> None:
    beams = ("--beam-width", "3", "--length-penalty", "0.5")
    found = optc("run", artifact, "--prompt", "ab", *RUN, *beams, "--json").json
    params = package.SamplingParams(
        beam_width=3, length_penalty=0.5, temperature=0.0, max_tokens=6, ignore_eos=True
    )
    with package.load(artifact) as engine:
        (expected,) = engine.generate(["ab"], params)
    assert [beam["text"] for beam in found["beams"]] == [c.text for c in expected.completions]
    logprobs = [beam["cumulative_logprob"] for beam in found["beams"]]
    assert logprobs == [c.cumulative_logprob for c in expected.completions]
    assert len(logprobs) == 3
    assert logprobs == sorted(logprobs, reverse=True)
    assert found["text"] == found["beams"][0]["text"]
    assert found["output_tokens"] == len(found["token_ids"]) == 6
    outcome = optc("run", artifact, "--prompt", "ab", *RUN, *beams)
    assert outcome.out == found["text"] + "\n"
    assert f"{found['prompt_tokens']} prompt tokens, 6 new ones" in outcome.err


def test_beam_search_and_filters_do_not_go_together(optc: Optc, artifact: Path) -> None:
    outcome = optc("run", artifact, "--prompt", "ab", "--beam-width", "2", "--top-k", "3")
    assert outcome.code == 2
    assert "beam_width does not go together with" in outcome.err


def test_max_sequences_reaches_the_engine_and_changes_no_text(
    optc: Optc, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int | None] = []
    load = loader.load

    def noted(path: Path, settings: ServeSettings) -> package.Engine:
        loaded.append(settings.max_sequences)
        return load(path, settings)

    monkeypatch.setattr(loader, "load", noted)
    prompts = [option for text in ("ab", "ba", "aab") for option in ("--prompt", text)]
    together, one_by_one = (
        [
            result["text"]
            for result in optc("run", artifact, *prompts, *RUN, "--json", *o).json["results"]
        ]
        for o in ((), ("--max-sequences", "1"))
    )
    assert together == one_by_one
    assert loaded == [None, 1]
