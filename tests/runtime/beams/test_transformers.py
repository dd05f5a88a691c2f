"""The oracle of beam search is transformers' beam search, on a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
import pytest
import torch
import transformers

from tests.runtime.beams.naive_beams import search_naively

MODEL = Path(__file__).parents[3] / "examples/models/pycode"


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    return model, transformers.AutoTokenizer.from_pretrained(MODEL)


@pytest.mark.parametrize(
    ("early_stopping", "length_penalty"), [(True, 1.0), (False, 0.0), ("never", 1.0)]
)
def test_the_oracle_equals_transformers(
    loaded: tuple[Any, Any], early_stopping: Any, length_penalty: float
) -> None:
    model, tokenizer = loaded
    newline = tokenizer.encode("x\n", add_special_tokens=False)[-1]

    def logits(tokens: list[int]) -> npt.NDArray[Any]:
        with torch.no_grad():
            return model(torch.tensor([tokens])).logits[0, -1].numpy()

    for text in ("def add(a, b):\n", "import os\nfor name in"):
        prompt = tokenizer.encode(text)
        with torch.no_grad():
            theirs = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                num_beams=3,
                num_return_sequences=3,
                max_new_tokens=8,
                do_sample=False,
                early_stopping=early_stopping,
                length_penalty=length_penalty,
                eos_token_id=newline,
                pad_token_id=2,
            )
        mine = search_naively(
            logits,
            prompt,
            width=3,
            max_tokens=8,
            ends=frozenset({newline}),
            length_penalty=length_penalty,
            early_stopping=early_stopping,
        )
        for (tokens, _), row in zip(mine, theirs.tolist(), strict=True):
            assert tokens == row[len(prompt) : len(prompt) + len(tokens)]
            assert set(row[len(prompt) + len(tokens) :]) <= {2}
