"""Small encoder-decoders of text with seeded random weights, by class of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

#: Special tokens 0 to 5, then words.
PAD, END, UNKNOWN, ENGLISH, GERMAN, BEGIN = range(6)
SPECIAL = ("<pad>", "</s>", "<unk>", "eng_Latn", "deu_Latn", "<s>")
WORDS = [f"w{number}" for number in range(54)]
VOCABULARY = len(SPECIAL) + len(WORDS)
#: Tokens of a text that tables of positions hold.
POSITIONS = 48

_TOKENS: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "pad_token_id": PAD,
    "eos_token_id": END,
    "decoder_start_token_id": PAD,
}
_BART: Mapping[str, Any] = {
    **_TOKENS,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": POSITIONS,
    "init_std": 0.5,
    "bos_token_id": BEGIN,
    "forced_eos_token_id": None,
}
_T5: Mapping[str, Any] = {
    **_TOKENS,
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
    "initializer_factor": 1.0,
}
#: Configs by class.
CONFIGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "T5ForConditionalGeneration": ("T5Config", _T5),
    "BartForConditionalGeneration": ("BartConfig", _BART),
    "MarianMTModel": ("MarianConfig", _BART),
    "PegasusForConditionalGeneration": ("PegasusConfig", _BART),
    "MBartForConditionalGeneration": ("MBartConfig", _BART),
    # its tables of positions count no padding, which is no start of such models
    "M2M100ForConditionalGeneration": ("M2M100Config", {**_BART, "decoder_start_token_id": END}),
    "BlenderbotForConditionalGeneration": ("BlenderbotConfig", _BART),
    "BlenderbotSmallForConditionalGeneration": ("BlenderbotSmallConfig", _BART),
    "PLBartForConditionalGeneration": ("PLBartConfig", _BART),
    "MvpForConditionalGeneration": ("MvpConfig", _BART),
    "UMT5ForConditionalGeneration": ("UMT5Config", {**_T5, "initializer_factor": 3.0}),
    "MT5ForConditionalGeneration": (
        "MT5Config",
        {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
}


def folder_of(kind: str, folder: Path, **generation: Any) -> Path:
    """A folder; ``generation`` are changes of generation_config.json."""
    torch.manual_seed(0)
    name, values = CONFIGS[kind]
    config = getattr(transformers, name)(**values, architectures=[kind])
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():  # it ends some texts: in the place of a word that it would write
        rows = model.get_input_embeddings().weight
        rows[END] = 1.05 * rows[20]
    for key, value in generation.items():
        setattr(model.generation_config, key, value)
    model.save_pretrained(folder)
    vocabulary = {word: token for token, word in enumerate([*SPECIAL, *WORDS])}
    reader = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    reader.pre_tokenizer = pre_tokenizers.Whitespace()
    reader.decoder = decoders.ByteLevel()  # it says what bytes tokens are, for structures
    reader.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    reader.post_processor = processors.TemplateProcessing(
        single="eng_Latn $A </s>", special_tokens=[("eng_Latn", ENGLISH), ("</s>", END)]
    )
    reader.save(str(folder / "tokenizer.json"))
    return folder


def texts() -> list[str]:
    """Texts of several lengths."""
    draws = torch.Generator().manual_seed(1)
    lengths = (3, 17, 1, 9, 9, 30)
    return [
        " ".join(f"w{token}" for token in torch.randint(0, 54, (n,), generator=draws).tolist())
        for n in lengths
    ]


def written(folder: Path, texts: list[str], source: int = ENGLISH, **how: Any) -> list[list[int]]:
    """Greedy tokens of transformers, each text alone, up to their end."""
    kind = next(iter(transformers.AutoConfig.from_pretrained(folder).architectures))
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    reader = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = []
    for text in texts:
        ids = [source if token == ENGLISH else token for token in reader.encode(text).ids]
        with torch.no_grad():
            chosen = {"do_sample": False, "num_beams": 1, "max_length": None, **how}
            tokens = model.generate(torch.tensor([ids]), **chosen)[0].tolist()[1:]
        found.append(tokens[: tokens.index(END)] if END in tokens else tokens)
    return found
