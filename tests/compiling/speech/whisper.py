"""A tiny Whisper with seeded random weights, and sounds for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, models
from transformers import WhisperConfig, WhisperForConditionalGeneration

from optc.runtime.audio.wav import Sound

#: Texts of tokens 0 to 39; then come the special ones.
WORDS = [f"w{number}" for number in range(40)]
SPECIAL = (
    *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>"),
    *("<|transcribe|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
)
END = len(WORDS)
START, EN, DE, TRANSLATE, TRANSCRIBE, _, NO_SPEECH, NO_TIMES = range(END + 1, END + 9)
#: Seconds of a window, times in it, and tokens of a transcript.
SECONDS, TIMES, MOST = 2, 101, 24
RATE = 4000


def generation(**changes: Any) -> dict[str, Any]:
    """generation_config.json of a model of two languages."""
    return {
        "decoder_start_token_id": START,
        "bos_token_id": END,
        "eos_token_id": END,
        "pad_token_id": END,
        "is_multilingual": True,
        "lang_to_id": {"<|en|>": EN, "<|de|>": DE},
        "task_to_id": {"transcribe": TRANSCRIBE, "translate": TRANSLATE},
        "no_timestamps_token_id": NO_TIMES,
        "suppress_tokens": [3, 5, *range(START, NO_TIMES + 1)],
        "begin_suppress_tokens": [7, END],
        "max_length": MOST,
        "return_timestamps": False,
        **changes,
    }


def whisper(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A folder; ``changes`` are of generation_config.json."""
    torch.manual_seed(seed)
    config = WhisperConfig(
        vocab_size=NO_TIMES + 1 + TIMES,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=SECONDS * 50,
        max_target_positions=MOST,
        init_std=0.5,
        decoder_start_token_id=START,
        bos_token_id=END,
        eos_token_id=END,
        pad_token_id=END,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        architectures=["WhisperForConditionalGeneration"],
    )
    model = WhisperForConditionalGeneration(config)
    with torch.no_grad():  # a trained model says times only where they are asked for
        rows = model.model.decoder.embed_tokens.weight
        rows[NO_TIMES + 1 :] *= 0.05
        rows[END] = 1.2 * rows[10]  # and ends: in the place of a word that it would say
    model.save_pretrained(folder)
    stated = generation(**changes)
    (folder / "generation_config.json").write_text(json.dumps(stated))
    features = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": 16,
        "sampling_rate": RATE,
        "hop_length": RATE // 100,
        "n_fft": 100,
        "chunk_length": SECONDS,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(features))
    vocabulary = {word: token for token, word in enumerate([*WORDS, *SPECIAL])}
    reader = Tokenizer(models.WordLevel(vocabulary, unk_token=WORDS[0]))
    reader.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    reader.save(str(folder / "tokenizer.json"))
    return folder


def sound(seconds: float, seed: int = 0) -> Sound:
    """Noise whose loudness changes."""
    source = np.random.default_rng(seed)
    count = int(seconds * RATE)
    loud = np.interp(np.arange(count), np.linspace(0, count, 9), source.random(9))
    return Sound((0.3 * loud * source.standard_normal(count)).astype(np.float32), RATE)
