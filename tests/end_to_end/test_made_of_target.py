"""A draft made of the target in 2 bits, on a small trained model: what was predicted is so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import optc
from optc.artifact.artifact import Artifact
from optc.compiling.drafts.predicted_gain import CONTINUED_TOKENS, PROMPT_TOKENS, PROMPTS
from optc.proof.reference.text import eval_windows
from optc.runtime.loop import core_factory
from tests.end_to_end.test_main_job import ROOT, TEXT

MODEL = ROOT / "examples/models/pycode-draft"
GATES = ("kl_mean", "kl_p99", "top1_agreement", "perplexity_ratio")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.jsonl"
    path.write_text("".join(TEXT.read_text().splitlines(keepends=True)[:5]))
    return path


@pytest.fixture(scope="module")
def artifact(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("drafted")
    lines = (ROOT / "examples/text/code_calibration.jsonl").read_text().splitlines(keepends=True)
    (folder / "calibration.jsonl").write_text("".join(lines[:6]))  # few windows: it is quick
    return optc.compile(
        MODEL,
        "int8-fused",
        folder / "a",
        draft="self:bits=2",
        calibration=folder / "calibration.jsonl",
        eval_text=text,
        gate=[f"{name}=none" for name in GATES],
    )


def passes(artifact: Artifact, text: Path, drafts: int) -> tuple[list[tuple[int, ...]], int]:
    """Greedy texts of the prompts that the prediction was made by, and steps behind prefills."""
    assert artifact.manifest.tokenizer is not None
    windows = eval_windows(
        vocab_size=1 << 30,
        max_context=512,
        parameters=1,
        tokenizer_file=artifact.tokenizer_file(),
        bos=artifact.manifest.tokenizer.bos_token_id,
        eos=next(iter(artifact.manifest.tokenizer.eos_token_ids), None),
        text_file=text,
    ).ids
    chosen = np.linspace(0, len(windows) - 1, min(PROMPTS, len(windows))).astype(int)
    params = optc.SamplingParams(temperature=0, max_tokens=CONTINUED_TOKENS, ignore_eos=True)
    more = {"speculate": "draft", "num_speculative_tokens": drafts} if drafts else {}
    texts, steps = [], 0
    with optc.load(artifact.path, prefix_cache=False, kv_memory="16MiB", **more) as engine:
        for index in chosen:
            before = engine.metrics().steps
            prompt = [int(token) for token in windows[index, :PROMPT_TOKENS]]
            texts.append(engine.generate([prompt], params)[0].token_ids)
            steps += engine.metrics().steps - before - 1
    return texts, steps


def test_the_text_is_that_of_plain_decoding_in_as_many_passes_as_predicted(
    artifact: Artifact, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = artifact.report()["draft"]["prediction"]
    plain, steps = passes(artifact, text, 0)
    assert steps == len(plain) * (CONTINUED_TOKENS - 1)
    target, draft = artifact.manifest.engines
    assert draft.spec.shared_kv == tuple(range(len(target.spec.layers)))
    drafted, fewest = passes(artifact, text, found["drafts"])
    assert drafted == plain
    # Behind its first draft it reads keys and values of its own drafts, which are a little worse.
    assert steps / fewest == pytest.approx(found["tokens_per_pass"], rel=0.05)
    monkeypatch.setattr(core_factory, "can_share", lambda draft, target: False)
    drafted, fewer = passes(artifact, text, found["drafts"])
    assert drafted == plain
    assert fewest < fewer, "the target's keys and values are better than its own"
    # by chance none of 4096 tokens would be right
    assert found["acceptance"] > 0.4
    assert 0.2 < found["cost"] < 0.9, "2 bits of 8, and a head of 6"
