"""`GrammarCompiler`: from a description of the output to constraints, for one tokenizer."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING

from optc.errors import RequestError, UnavailableError
from optc.runtime.structured.complaints import NO_TEXT, complaint, reason
from optc.runtime.structured.constraint import Constraint
from optc.runtime.structured.harmless import is_harmless
from optc.runtime.structured.numbers import with_exact_numbers
from optc.runtime.structured.refused_schemas import check_objects
from optc.runtime.structured.structure import Structure
from optc.runtime.structured.trial import tried
from optc.runtime.text.control_tokens import ControlTokens, added_texts
from optc.runtime.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

#: Of a Lark grammar: texts, comments, regular expressions, and tokens by name.
_LARK_PARTS = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/(?:\\.|[^/\\\n])+/|<[^<>\s"]+>')
_DECODER = re.compile(r"decoder type: (?:Some\()?(\w+)")
_ANGLED = re.compile(r"<.*>", re.DOTALL)
#: Compiled grammars that are kept, and their bytes; a small one counts as so many at least.
_KEPT, _KEPT_BYTES, _LEAST_BYTES = 64, 512 << 20, 1 << 20


class GrammarCompiler:
    """Compiles each distinct structure once, on the thread of the caller. Thread-safe.

    Args:
        tokenizer: The model's.
        vocab_size: Tokens that the model has logits for.
        eos_token_ids: Tokens that end a text; they are allowed where the grammar may end.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Sequence[int]) -> None:
        self._model = tokenizer
        self._size = max(vocab_size, tokenizer.backend.get_vocab_size(with_added_tokens=True))
        self._eos = list(eos_token_ids)
        self._lock = RLock()  # a signal handler may come in again
        self._tokens: LLTokenizer | None = None
        self._compiled: OrderedDict[Structure, tuple[LLMatcher, int]] = OrderedDict()

    def constraints(self, structure: Structure, count: int) -> tuple[Constraint, ...]:
        """``count`` constraints at the structure's beginning.

        Raises:
            RequestError: The structure is wrong or allows no text; says where.
            UnavailableError: llguidance is not installed.
        """
        with self._lock:
            known = self._compiled.get(structure)
        if known is None:
            known = self._compile(structure)
        with self._lock:
            self._compiled[structure] = known
            self._compiled.move_to_end(structure)
            self._forget()
            words = -(-self._size // 32)
            return tuple(Constraint(known[0].deep_copy(), words) for _ in range(count))

    def _forget(self) -> None:
        """Drop the grammars that were used longest ago and are too many or too large."""
        kept = list(self._compiled.values())
        while len(kept) > 1 and (len(kept) > _KEPT or sum(n for _, n in kept) > _KEPT_BYTES):
            kept.pop(0)
            self._compiled.popitem(last=False)

    def token_table(self) -> LLTokenizer:
        """The tokenizer as llguidance has it: the bytes of each token. Control tokens have names
        that no text holds: what a grammar forces or allows of theirs is ordinary text.

        Raises:
            RequestError: llguidance cannot take the tokenizer.
            UnavailableError: llguidance is not installed.
        """
        return self._tokenizer()

    @cached_property
    def _names(self) -> ControlTokens:
        """Control tokens, and those that llguidance takes for such by their form."""
        backend = self._model.backend
        angled = {text for text in added_texts(backend) if _ANGLED.fullmatch(text)}
        return ControlTokens(backend, angled | self._model.control.ids.keys())

    def _compile(self, structure: Structure) -> tuple[LLMatcher, int]:
        """A matcher at the beginning, and about how many bytes it takes."""
        tokens = self._tokenizer()
        from llguidance import LLMatcher

        grammar = _grammar(structure, self._names.ids)
        size = 0 if is_harmless(structure) else tried(structure, grammar)
        matcher = LLMatcher(tokens, grammar, log_level=0)
        matcher.compute_bitmask()  # builds what later masks use, and finds grammars without texts
        if matcher.is_error():
            message = self._names.shown(matcher.get_error())
            raise complaint(structure, message, _schema_error)
        if structure.kind == "json_schema":
            check_objects(json.loads(structure.text), self._is_empty)
        return matcher, max(size, _LEAST_BYTES)

    def _is_empty(self, lark: str) -> bool:
        """True if a grammar is right and has no text."""
        from llguidance import LLMatcher

        grammar = LLMatcher.grammar_from_lark(lark)
        matcher = LLMatcher(self._tokenizer(), grammar, log_level=0)
        matcher.compute_bitmask()
        return matcher.is_error() and reason(matcher.get_error()) == NO_TEXT

    def _tokenizer(self) -> LLTokenizer:
        """The tokenizer as llguidance wants it; built for the first request that needs it."""
        with self._lock:
            if self._tokens is None:
                self._tokens = self._build_tokenizer()
            return self._tokens

    def _build_tokenizer(self) -> LLTokenizer:
        try:
            from llguidance import LLTokenizer
        except ModuleNotFoundError as error:
            raise UnavailableError(
                "structured output needs the package 'llguidance'",
                where="optc",
                hint="pip install 'optc[structured]'",
            ) from error
        text, eos = self._names.description(), self._eos or None
        try:
            return LLTokenizer(text, n_vocab=self._size, eos_token=eos)
        except ValueError as error:
            raise RequestError(
                f"no structured output with this model's tokenizer: {_about_tokenizer(error)}",
                where="sampling parameters",
            ) from error


def _schema_error(schema: str) -> str:
    """The fault of a JSON schema; nothing if it is right. It is not compiled, which might
    take long."""
    from llguidance import LLMatcher

    return LLMatcher.validate_grammar(_json_grammar(schema))


def _about_tokenizer(error: ValueError) -> str:
    """The message of llguidance, without the dump of a decoder that it does not know."""
    kind = _DECODER.search(str(error))
    return str(error) if kind is None else f"its decoder, {kind[1]}, does not say what bytes are"


def _grammar(structure: Structure, control: Mapping[str, int]) -> str:
    from llguidance import LLMatcher

    if structure.kind == "json_schema":
        return _json_grammar(with_exact_numbers(structure.text))
    if structure.kind == "regex":
        return LLMatcher.grammar_from_regex(structure.text)
    if structure.kind == "choice":
        texts = " | ".join(json.dumps(text) for text in json.loads(structure.text))
        return LLMatcher.grammar_from_lark(f"start: {texts}")
    return LLMatcher.grammar_from_lark(_by_ids(structure.text, control))


def _by_ids(lark: str, control: Mapping[str, int]) -> str:
    """A grammar that asks for control tokens by their ids instead of their names."""

    def by_id(found: re.Match[str]) -> str:
        token = control.get(found.group())
        return found.group() if token is None else f"<[{token}]>"

    return _LARK_PARTS.sub(by_id, lark)


def _json_grammar(schema: str) -> str:
    """A schema's grammar, laid out as by ``json.dumps`` unless its ``x-guidance`` wants another
    way: with whitespace where it likes, a small model may write nothing else."""
    from llguidance import LLMatcher

    try:
        return LLMatcher.grammar_from_json_schema(
            schema,
            defaults={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
        )
    except ValueError as error:  # it is JSON: what is left is how deep it is nested
        raise RequestError(str(error), where="json_schema") from error
