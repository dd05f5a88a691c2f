"""Windows of tokens that a layer which drafts by hidden states is trained on, and their states."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from train_medusa import BEGINNING, documents, hidden_states, own_windows, read_texts
from transformers import AutoTokenizer, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Windows:
    """Windows of tokens.

    Attributes:
        tokens: ``[N, S]``.
        hidden: Their last hidden states ``[N, S, D]``, in bfloat16.
        begins: ``[N]`` the first row of each whose guess counts: the one whose state tells the
            first token that the model said.
    """

    tokens: Tensor
    hidden: Tensor
    begins: Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def part(self, chosen: Tensor) -> Windows:
        """Some of them."""
        return Windows(self.tokens[chosen], self.hidden[chosen], self.begins[chosen])

    def batch(self, chosen: Tensor) -> Windows:
        """Some of them, with states in float32."""
        some = self.part(chosen)
        return replace(some, hidden=some.hidden.float())

    def counts(self) -> Tensor:
        """``[N, S]`` whether the guess of a row counts."""
        return torch.arange(self.tokens.shape[1]) >= self.begins[:, None]


def text_windows(
    tokenizer: PreTrainedTokenizerBase, arguments: argparse.Namespace
) -> list[list[int]]:
    """Texts behind one another, cut into windows of one size."""
    ids: list[int] = []
    for text in read_texts(arguments.text, arguments.source, arguments.exclude):
        encoded = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += [tokenizer.bos_token_id, *encoded, tokenizer.eos_token_id]
        if len(ids) >= arguments.tokens:
            break
    size = arguments.window
    last = min(len(ids), arguments.tokens) - size
    return [ids[start : start + size] for start in range(0, last + 1, size)]


def prompts_of(
    tokenizer: PreTrainedTokenizerBase, arguments: argparse.Namespace
) -> Iterator[list[int]]:
    """Texts that leave the model a quarter of a window at least, in an order of chance."""
    found = [text for file in arguments.prompts for _, text in documents(file)]
    for index in torch.randperm(len(found), generator=torch.Generator().manual_seed(0)).tolist():
        ids = tokenizer(found[index])["input_ids"]
        if len(ids) <= arguments.window * 3 // 4:
            yield ids


def prepare(model: nn.Module, arguments: argparse.Namespace, work: Path) -> Windows:
    """Windows of text and of what the model says, in an order of chance; kept in ``work``."""
    kept = work / "windows.pt"
    if kept.exists():
        stored = torch.load(kept)
        if len(stored) != 3:
            raise SystemExit(f"{kept} is of an earlier version of this script: delete {work}")
        return Windows(*stored)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    texts = text_windows(tokenizer, arguments)
    if arguments.own is None:
        tokens, begins = torch.tensor(texts), torch.zeros(len(texts), dtype=torch.long)
    else:
        beginnings = [window[:BEGINNING] for window in texts]
        beginnings += prompts_of(tokenizer, arguments)
        tokens = own_windows(arguments.own, beginnings, arguments.window)
        begins = torch.tensor([len(beginning) - 1 for beginning in beginnings])
        print("the model has gone on from their beginnings", flush=True)
    mixed = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(1))
    tokens, begins = tokens[mixed], begins[mixed]
    print(f"{len(tokens)} windows of {arguments.window} tokens", flush=True)
    hidden = hidden_states(model, tokens, arguments.batch)
    torch.save((tokens, hidden, begins), kept)
    return Windows(tokens, hidden, begins)
