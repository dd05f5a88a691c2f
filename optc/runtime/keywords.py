"""Keywords of `optc.load` and of engines, with types: type checkers see a wrong name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from optc.runtime.beams.search import EarlyStopping
from optc.runtime.kv.eviction import Eviction
from optc.runtime.structured.structure import Schema


class ServeChanges(TypedDict, total=False):
    """Fields of `optc.ServeSettings`; paths may be texts."""

    engine: str | None
    threads: int | None
    kv_memory: str | int | None
    resident_memory: str | int | None
    token_budget: int | None
    max_sequences: int | None
    max_waiting: int | None
    prefill_chunk: int | None
    block_size: int | None
    prefix_cache: bool
    prefix_eviction: Eviction
    prefix_spill: str | Path | None
    answer_cache: str | int | None
    kv_events: str | None
    speculate: str | None
    draft: str | Path | None
    num_speculative_tokens: int | None
    max_drafted: int
    sleep_after: float | None
    cost_cache: bool
    generation_defaults: bool
    verify: Literal["full", "size"]


class RequestTerms(TypedDict, total=False):
    """Terms of a request's service: fields of `optc.GenerationRequest`."""

    salt: str
    priority: int
    adapter: str | None
    deadline_s: float | None
    parse_special: bool
    whole_text: bool
    scored_from: int


class SamplingChanges(TypedDict, total=False):
    """Fields of `optc.SamplingParams`."""

    max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    typical_p: float
    seed: int | None
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    logprobs: int | None
    prompt_logprobs: int | None
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    beam_width: int | None
    length_penalty: float
    early_stopping: EarlyStopping
    n: int
    ignore_eos: bool
    skip_special_tokens: bool
    json_schema: Schema | None
    regex: str | None
    grammar: str | None
    choice: Sequence[str] | None
