"""Tokens that transformers writes down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

from optc.runtime.audio.wav import Sound
from tests.compiling.speech.whisper import END, NO_TIMES, SECONDS


def written(folder: Path, sounds: Sequence[Sound], **how: Any) -> list[list[int]]:
    """Tokens of the text, times among them."""
    model = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    found = []
    for one in sounds:
        long = one.seconds > SECONDS
        kind = {"truncation": False, "padding": "longest"} if long else {}
        features = extractor(
            one.samples, sampling_rate=one.rate, return_tensors="pt", **kind
        ).input_features
        with torch.no_grad():
            tokens = model.generate(features, **how)[0].tolist()
        prompt = range(END + 1, NO_TIMES + 1)
        found.append([token for token in tokens if token not in prompt and token != END])
    return found
