"""The cuts that a GGUF file names in ``tokenizer.ggml.pre``: of texts, before bytes are merged.

transformers chooses by the architecture, and takes GPT-2's expression for most. A model of the
architecture ``llama`` whose tokenizer is another one (SmolLM2 takes each digit alone, Llama 3 three
together, and words of the vocabulary before all merges) would get tokens that it has hardly seen,
and nothing would say so. Expressions are those of the models' own tokenizer.json; names are those
of llama.cpp (``src/llama-vocab.cpp``), whose converter writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optc.errors import UnsupportedError
from optc.importer.gguf.vocabulary import PREFIX, TOKENS

_BYTE_PAIRS, _SENTENCE_PIECE = "gpt2", "llama"
#: In a row of cuts: bytes become letters.
_LETTERS = ""
_SPACE = "\u2581"
_DIGIT, _THREE = r"\p{N}", r"\p{N}{1,3}"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_NO_WORD = r"[^\r\n\p{L}\p{N}]?"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_OLD_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_ASCII_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _LINES
)
#: Georgian letters had no case when these were listed.
_CASED = "\\s?[\\p{Lu}\\p{Ll}\\p{Lt}&&[^\u10d0-\u10ff]]+"
_WIDE_MARKS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_PERIODS = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"


def _words(numbers: str, letters: str = r"\p{L}", lines: str = r"[\r\n]*") -> str:
    """GPT-4's expression, with its own way to cut numbers, and ends of lines behind marks."""
    other = rf" ?[^\s{letters.strip('[]')}\p{{N}}]+{lines}"
    return f"{_SUFFIX}|{_NO_WORD}{letters}+|{numbers}|{other}|{_LINES}"


def _cased(numbers: str, suffix: str) -> str:
    """GPT-4o's expression, which cuts where small letters become large ones."""
    small = f"{_NO_WORD}{_UPPER}*{_LOWER}+{suffix}"
    large = f"{_NO_WORD}{_UPPER}+{_LOWER}*{suffix}"
    return rf"{small}|{large}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}"


@dataclass(frozen=True)
class PreTokenizer:
    """The way in which texts are cut.

    Attributes:
        cuts: Regular expressions, one after the other: what matches is a piece of its own. Bytes
            become letters behind all of them, or at `_LETTERS`.
        whole_words: A piece that is in the vocabulary is one token, whatever the merges make of it.
    """

    cuts: tuple[str, ...]
    whole_words: bool = False

    def to_json(self) -> dict[str, Any]:
        """As tokenizer.json has it."""
        steps = self.cuts if _LETTERS in self.cuts else (*self.cuts, _LETTERS)
        return {"type": "Sequence", "pretokenizers": [_step(one) for one in steps]}


def _step(cut: str) -> dict[str, Any]:
    if cut == _LETTERS:
        flags = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        return {"type": "ByteLevel", **flags}
    return {"type": "Split", "pattern": {"Regex": cut}, "behavior": "Isolated", "invert": False}


#: The first name of each is what files are written with.
_BY_CUTS: Mapping[tuple[str, ...], str] = {
    (
        _GPT2,
    ): "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 modern-bert mellum a.x-4.0 "
    "gigachat jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe",
    (_DIGIT, _GPT2): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    (_words(_THREE),): "llama-bpe! llama3! llama-v3! falcon3! falcon-h1! pixtral! midm-2.0! lfm2! "
    "jina-v5-nano! glm4! glm5! dbrx chatglm-bpe smaug-bpe",
    (_words(_DIGIT),): "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open "
    "grok-2",
    (_words(_DIGIT, lines=""),): "seed-coder",
    (_words(_DIGIT, r"[\p{L}\p{M}]"),): "qwen35",
    (_THREE, _words(r"\p{N}+")): "minicpm5!",
    (_cased(_DIGIT, ""),): "tekken!",
    (_cased(_THREE, f"{_SUFFIX}?"),): "gpt-4o llama4 kanana2 talkie minimax-m2",
    (r"\d{1,3}(?=(?:\d{3})*\b)", _cased(_THREE, f"{_SUFFIX}?")): "tiny_aya cohere2moe",
    (_THREE, _CJK, _ASCII_WORDS): "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _OLD_CJK, _DIGIT): "deepseek-coder",
    (r"[\r\n]", _CASED, _WIDE_MARKS, r"\s+$", _OLD_CJK, r"\p{N}+"): "deepseek-llm",
    (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, _LETTERS, r"\p{N}+", "[0-9][0-9][0-9]"): "falcon",
    (_PERIODS,): "bloom poro-chat gpt3-finnish",
    (_PERIODS, _DIGIT): "viking",
}
#: By name; a mark of exclamation above is for whole words.
KNOWN: Mapping[str, PreTokenizer] = {
    name.rstrip("!"): PreTokenizer(cuts, name.endswith("!"))
    for cuts, names in _BY_CUTS.items()
    for name in names.split()
}
#: Of these, files that do not say if BOS goes before a text mean that it does; of others that it
#: does not.
_ADDS_BOS = (
    *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    *("jina-v5-nano", "tekken"),
)
#: Those that transformers makes as they are, or that say nothing.
_LEFT = frozenset({"", "default", "gemma4", "sarvam-moe"})


def apply_pre_tokenizer(tokenizer: dict[str, Any], metadata: Mapping[str, Any], where: str) -> None:
    """Correct a tokenizer.json that transformers made of a GGUF file.

    Args:
        tokenizer: Changed in place.
        metadata: Of the file, by key.
        where: The file.

    Raises:
        UnsupportedError: The file names a pre-tokenizer that is not known here.
    """
    kind, name = metadata.get(f"{PREFIX}model"), str(metadata.get(f"{PREFIX}pre") or "")
    if kind == _SENTENCE_PIECE:
        _apply_ends(tokenizer, metadata, adds_bos=True)
        _apply_space_prefix(tokenizer, bool(metadata.get(f"{PREFIX}add_space_prefix", True)))
    if kind != _BYTE_PAIRS or name in _LEFT:
        return
    found = KNOWN.get(name)
    if found is None:
        raise UnsupportedError(
            f"its tokenizer cuts texts by {name[:60]!r}, which optc does not know",
            where=where,
            hint="compile the model's Hugging Face folder, which has tokenizer.json",
        )
    tokenizer["pre_tokenizer"] = found.to_json()
    tokenizer["model"]["ignore_merges"] = found.whole_words
    _apply_ends(tokenizer, metadata, adds_bos=name in _ADDS_BOS)


def _apply_ends(tokenizer: dict[str, Any], metadata: Mapping[str, Any], adds_bos: bool) -> None:
    """Put BOS and EOS around texts as the file says, by its own ids; ``adds_bos`` where it says
    nothing of BOS."""
    text = {"Sequence": {"id": "A", "type_id": 0}}
    wanted = {"bos": metadata.get(f"{PREFIX}add_bos_token", adds_bos)}
    wanted["eos"] = metadata.get(f"{PREFIX}add_eos_token", False)
    ids = {
        name: metadata.get(f"{PREFIX}{name}_token_id") for name, wants in wanted.items() if wants
    }
    known = {
        name: (metadata[TOKENS][index], index)
        for name, index in ids.items()
        if isinstance(index, int) and index >= 0
    }
    ends = {
        name: {"SpecialToken": {"id": token, "type_id": 0}} for name, (token, _) in known.items()
    }
    single = [
        *([ends["bos"]] if "bos" in ends else []),
        text,
        *([ends["eos"]] if "eos" in ends else []),
    ]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            token: {"id": token, "ids": [index], "tokens": [token]}
            for token, index in known.values()
        },
    }


def name_of(tokenizer: Mapping[str, Any]) -> str | None:
    """The name for the cuts of a byte-level tokenizer.json; None where there is none."""
    before = tokenizer.get("pre_tokenizer") or {}
    steps = before.get("pretokenizers", [before])
    cuts = tuple(cut for one in steps for cut in _cuts_of(one))
    cuts = cuts[:-1] if cuts[-1:] == (_LETTERS,) else cuts
    names = _BY_CUTS.get(cuts, "").split()
    whole_words = bool((tokenizer.get("model") or {}).get("ignore_merges"))
    return next((one.rstrip("!") for one in names if one.endswith("!") is whole_words), None)


def _cuts_of(step: Mapping[str, Any]) -> tuple[str, ...]:
    """The cuts of one of tokenizers' building blocks; one that no name has where it is another."""
    kind = step.get("type")
    if kind == "Split" and step.get("behavior") == "Isolated" and not step.get("invert"):
        return (step.get("pattern", {}).get("Regex", "none"),)
    if kind == "ByteLevel" and not step.get("add_prefix_space"):
        return (_GPT2, _LETTERS) if step.get("use_regex", True) else (_LETTERS,)
    if kind == "Digits" and step.get("individual_digits"):
        return (_DIGIT,)
    return ("none",)


def _apply_space_prefix(tokenizer: dict[str, Any], prefix: bool) -> None:
    """SentencePiece puts a space before every piece of text between special tokens, also before one
    that begins with a space; transformers' Metaspace leaves that one out."""
    if (tokenizer.get("pre_tokenizer") or {}).get("type") != "Metaspace":
        return
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    before = [{"type": "Prepend", "prepend": _SPACE}] if prefix else []
    tokenizer["pre_tokenizer"] = None
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [*before, spaces]}
    if not prefix:
        decoder = tokenizer["decoder"]
        decoder["decoders"] = [one for one in decoder["decoders"] if one["type"] != "Strip"]
