"""`SamplingParams`: how one request is to be continued. Names and defaults are vLLM's; those of
``optc run`` differ (docs/runtime.md, Requests)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

from optc.errors import RequestError
from optc.runtime.checks import as_tuple, check_int, check_number, invalid, shown
from optc.runtime.structured.structure import Schema, Structure, structure_of
from optc.system.options.option import option

if TYPE_CHECKING:  # NumPy is not needed to make parameters
    from typing import Unpack

    from optc.runtime.beams.search import EarlyStopping
    from optc.runtime.keywords import SamplingChanges

#: Most alternatives that a request may ask for at every position.
MAX_LOGPROBS = 100
#: Most completions of one prompt. Beams are bounded by what the engine serves at once.
MAX_COMPLETIONS = 128
#: Most stop strings, and their characters together; most stop tokens and biases. All are looked
#: at for every token, on the engine's thread.
MAX_STOPS, MAX_STOP_CHARACTERS = 64, 4096
MAX_STOP_TOKENS = MAX_BIASES = 1024
#: Biases beyond this one are infinite as float32.
_LARGEST_BIAS = 3e38
#: Penalties beyond these, of many occurrences and beside a bias, might be infinite as float32.
_LARGEST_PENALTY, _LEAST_PENALTY = 1e30, 1e-30
#: Powers of a length beyond this one may be more than a float holds.
_LARGEST_LENGTH_PENALTY = 50
_SEED_LIMIT = 1 << 64
#: Parameters that a beam search has, too.
_OF_BEAMS = frozenset({"max_tokens", "length_penalty", "early_stopping"})


class _Itself:
    """An attribute that is its object; of the class it is None."""

    def __get__(self, one: SamplingParams | None, kind: type[SamplingParams]) -> Any:
        return one


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Options of one generation request, checked when they are built.

    Filters act in this order: penalties and bias, temperature, top-k, top-p, min-p, typical-p;
    each takes the probabilities of what the ones before it left.

    Attributes:
        max_tokens: Most tokens to generate; None is as many as the context holds. Never more
            than the context holds, whatever is asked for. 0, with ``prompt_logprobs``, scores the
            prompt alone.
        temperature: Divides the logits; 0 is greedy (the largest logit, lowest id on ties).
        top_p: Keeps the fewest most likely tokens whose probabilities reach this sum; 1 is all.
        top_k: Keeps the k most likely tokens; 0 or -1 is all.
        min_p: Keeps tokens at least this fraction as likely as the most likely one; 0 is all.
        typical_p: Keeps the fewest tokens whose probabilities reach this sum, those first whose
            surprise is nearest to the expected one (Meister et al., 2023); 1 is all.
        seed: Same seed, same text, whatever else runs; None draws one. In [0, 2**64).
        stop: Strings that end the text; they are cut off, with all that follows them. At most
            `MAX_STOPS` of `MAX_STOP_CHARACTERS` together.
        stop_token_ids: Tokens that end the text, besides the model's own end tokens; at most
            `MAX_STOP_TOKENS`.
        logprobs: Report the drawn token's log-probability and this many of the likeliest ones,
            from the model's own distribution (before penalties, temperature and filters).
        prompt_logprobs: Report the same of every token of the prompt but the first, with its rank.
            Positions that are scored are computed even where a prefix is cached.
        repetition_penalty: Above 1 makes tokens of prompt and output less likely.
        presence_penalty: Subtracted once from the logit of every token of the output.
        frequency_penalty: Subtracted for every occurrence in the output.
        logit_bias: Added to the logits of these tokens, at most `MAX_BIASES`; -inf forbids one.
        beam_width: Beam search with this many beams (1 is one beam); the completions are the best
            hypotheses, best first, with their ``cumulative_logprob``. None samples. Filters,
            penalties, log-probabilities, n, stop strings and structured output must be left alone.
        length_penalty: Hypotheses of n tokens are ranked by log-probability / n ** this; from -50
            to 50.
        early_stopping: Of a beam search: True stops when ``beam_width`` hypotheses ended, False
            when no beam can be better at its present length, ``"never"`` when none can be better.
        n: Completions of the same prompt, at most `MAX_COMPLETIONS`; completion i has noise of
            its own.
        ignore_eos: Do not stop at the model's end tokens.
        skip_special_tokens: Leave special tokens out of the text; without it, tokens by which a
            model calls tools show. The token that ends a text is in no text.
        json_schema: The output is JSON that this schema (a mapping or its text) describes, or
            an object of this class of pydantic's models. Keys beyond a schema's properties are
            allowed unless it says ``"additionalProperties": false``; a class's are not.
        regex: The output matches this regular expression (Rust's syntax) as a whole.
        grammar: The output is a text of this grammar (Lark, as llguidance takes it).
        choice: The output is one of these texts. Only one of these four may be given; the end of
            the text ends the request, ``ignore_eos`` or not.

    Raises:
        RequestError: A value is out of its range; says which and what is allowed.
    """

    max_tokens: int | None = option(
        16,
        "Maximum number of new tokens; the context bounds it, too.",
        kind="integer",
        show_default=True,
    )
    temperature: float = option(
        1.0, "Sampling temperature; 0 is greedy decoding.", kind="number", show_default=True
    )
    top_p: float = option(
        1.0,
        "Nucleus sampling: keep the likeliest tokens of this total probability.",
        kind="number",
        show_default=True,
    )
    top_k: int = option(0, "Keep the K likeliest tokens; 0 keeps all.", kind="integer")
    min_p: float = option(
        0.0,
        "Keep tokens of at least this share of the likeliest one's probability.",
        kind="number",
        show_default=True,
    )
    typical_p: float = option(
        1.0,
        "Typical sampling: keep the most typical tokens of this total probability.",
        kind="number",
        show_default=True,
    )
    seed: int | None = option(
        None, "Seed of sampling; the same seed gives the same text.", kind="integer"
    )
    stop: str | Sequence[str] = option((), "Stop string; repeated.", kind="texts", unicode=True)
    stop_token_ids: Sequence[int] = option(
        (), "Stop token, by its id; repeated.", kind="integers", metavar="TOKEN"
    )
    logprobs: int | None = option(
        None,
        "Report log-probabilities of the output and of the N likeliest tokens [--json].",
        kind="integer",
    )
    prompt_logprobs: int | None = option(
        None, "Report the same for the tokens of the prompt [--json].", kind="integer"
    )
    repetition_penalty: float = option(
        1.0,
        "Above 1, it makes tokens of the prompt and the output less likely.",
        kind="number",
        show_default=True,
    )
    presence_penalty: float = option(
        0.0,
        "Subtracted from the logits of tokens that the output has.",
        kind="number",
        show_default=True,
    )
    frequency_penalty: float = option(
        0.0, "Subtracted from them once for each occurrence.", kind="number", show_default=True
    )
    logit_bias: Mapping[int, float] = option(
        dict,
        "Added to the logit of a token; -inf forbids it; repeated.",
        kind="biases",
        metavar="TOKEN=BIAS",
    )
    beam_width: int | None = option(
        None,
        "Beam search with N beams; the best text is printed, --json gives all [sample].",
        kind="count",
    )
    length_penalty: float = option(
        1.0,
        "Beams of n tokens are ranked by log-probability / n ** PENALTY.",
        kind="number",
        show_default=True,
    )
    early_stopping: EarlyStopping = option(
        False,
        "Stop a beam search at enough finished beams (true), when none can improve now "
        "(false), or ever (never).",
        kind="truth",
        choices=("true", "false", "never"),
    )
    n: int = option(1, "Number of completions of each prompt.", kind="integer", show_default=True)
    ignore_eos: bool = option(False, "Continue after an end-of-sequence token.", kind="flag")
    skip_special_tokens: bool = option(
        True,
        "Omit special tokens from the text [true].",
        kind="truth",
        choices=("true", "false"),
    )
    json_schema: Schema | None = option(
        None, "File of a JSON schema that the output follows.", kind="file"
    )
    regex: str | None = option(
        None, "Regular expression that the whole output matches.", unicode=True
    )
    grammar: str | None = option(
        None, "File of a Lark grammar that the output follows.", kind="file"
    )
    choice: Sequence[str] | None = option(
        None,
        "The output is this text, or another that is given so; repeated.",
        kind="texts",
        unicode=True,
    )

    #: `dataclasses.replace` gives it, and all parameters, to the new object.
    _replaced: InitVar[SamplingParams | None] = _Itself()
    _stated: ClassVar[frozenset[str]] = frozenset()

    def __new__(cls, _replaced: SamplingParams | None = None, **given: Any) -> SamplingParams:
        """Note which values are stated: others give way to the model's own defaults."""
        self = super().__new__(cls)
        stated = set(given)
        if _replaced is not None:
            before = {name: getattr(_replaced, name, None) for name in given}
            stated = {name for name, value in given.items() if value is not before[name]}
            stated |= _replaced._stated
        object.__setattr__(self, "_stated", frozenset(stated))
        return self

    @property
    def stated(self) -> frozenset[str]:
        """The parameters that were given; others may come from the model's own settings."""
        return self._stated

    def changed(self, **changes: Unpack[SamplingChanges]) -> SamplingParams:
        """The same with other values, and with no others stated than these and its own.

        Raises:
            RequestError: A value is out of its range.
            TypeError: There is no parameter of a name in ``changes``.
        """
        values: dict[str, Any] = {name: getattr(self, name) for name in self._stated}
        return SamplingParams(**{**values, **changes})

    __replace__ = changed

    def with_defaults(self, defaults: Mapping[str, Any]) -> SamplingParams:
        """The same where a value is stated, and ``defaults`` where none is. A beam search takes
        lengths only: it ranks by the model's own probabilities."""
        wanted = defaults if self.beam_width is None else defaults.keys() & _OF_BEAMS
        missing = {name: defaults[name] for name in wanted if name not in self._stated}
        return self.changed(**missing) if missing else self

    def __post_init__(self, _replaced: SamplingParams | None) -> None:
        self._check_stops()
        self._check_lengths()
        self._check_filters()
        self._check_penalties()
        self._check_structure()
        self._check_beams()

    def _check_stops(self) -> None:
        given = (self.stop,) if isinstance(self.stop, str) else self.stop
        listed = as_tuple("stop", given, MAX_STOPS)
        stop = tuple(text for text in listed if isinstance(text, str))
        if len(stop) < len(listed) or "" in stop:
            raise invalid("stop", self.stop, "non-empty strings")
        if sum(map(len, stop)) > MAX_STOP_CHARACTERS:
            raise invalid("stop", self.stop, f"of {MAX_STOP_CHARACTERS} characters at most")
        tokens = as_tuple("stop_token_ids", self.stop_token_ids, MAX_STOP_TOKENS)
        if any(not isinstance(token, Integral) for token in tokens):
            raise invalid("stop_token_ids", self.stop_token_ids, "integers")
        # Copies: a list that the caller goes on to change must not change the request.
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", tokens)

    def _check_lengths(self) -> None:
        if self.max_tokens is not None:
            least = 1 if self.prompt_logprobs is None else 0
            note = "; None is as many as fit, 0 with prompt_logprobs scores the prompt alone"
            check_int("max_tokens", self.max_tokens, least, None, note)
        check_int("n", self.n, 1, MAX_COMPLETIONS)
        if self.logprobs is not None:
            check_int("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.prompt_logprobs is not None:
            check_int("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS)
        if self.seed is not None:
            check_int("seed", self.seed, 0, _SEED_LIMIT - 1)

    def _check_filters(self) -> None:
        for name in ("temperature", "top_p", "min_p", "typical_p"):
            check_number(name, getattr(self, name))
        check_int("top_k", self.top_k, -1, None, "; 0 keeps all tokens")
        if not 0 <= self.temperature < math.inf:
            raise invalid("temperature", self.temperature, "at least 0; 0 is greedy")
        for name in ("top_p", "typical_p"):
            if not 0 < getattr(self, name) <= 1:
                value = getattr(self, name)
                raise invalid(name, value, "above 0 and at most 1; 1 keeps all tokens")
        if not 0 <= self.min_p <= 1:
            raise invalid("min_p", self.min_p, "from 0 to 1; 0 keeps all tokens")

    def _check_penalties(self) -> None:
        for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
            check_number(name, getattr(self, name))
        if not _LEAST_PENALTY <= self.repetition_penalty <= _LARGEST_PENALTY:
            allowed = f"from {_LEAST_PENALTY} to {_LARGEST_PENALTY}; 1 is none"
            raise invalid("repetition_penalty", self.repetition_penalty, allowed)
        for name in ("presence_penalty", "frequency_penalty"):
            if not -_LARGEST_PENALTY <= getattr(self, name) <= _LARGEST_PENALTY:
                allowed = f"from {-_LARGEST_PENALTY} to {_LARGEST_PENALTY}; 0 is none"
                raise invalid(name, getattr(self, name), allowed)
        if not isinstance(self.logit_bias, Mapping):
            raise invalid("logit_bias", self.logit_bias, "a mapping from token ids to numbers")
        if len(self.logit_bias) > MAX_BIASES:
            raise invalid("logit_bias", self.logit_bias, f"of {MAX_BIASES} tokens at most")
        for token, bias in self.logit_bias.items():
            check_number(f"logit_bias[{shown(token)}]", bias)
            if not isinstance(token, Integral):
                raise invalid("logit_bias", self.logit_bias, "for token ids")
            if not (-_LARGEST_BIAS <= bias <= _LARGEST_BIAS or bias == -math.inf):
                allowed = f"from {-_LARGEST_BIAS} to {_LARGEST_BIAS}; -inf forbids the token"
                raise invalid(f"logit_bias[{shown(token)}]", bias, allowed)
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))

    def _check_structure(self) -> None:
        structure = self.structure
        if structure is not None and structure.kind == "json_schema":
            object.__setattr__(self, "json_schema", structure.text)
        elif self.choice is not None:
            object.__setattr__(self, "choice", tuple(self.choice))

    def _check_beams(self) -> None:
        check_number("length_penalty", self.length_penalty)
        if not -_LARGEST_LENGTH_PENALTY <= self.length_penalty <= _LARGEST_LENGTH_PENALTY:
            allowed = f"from {-_LARGEST_LENGTH_PENALTY} to {_LARGEST_LENGTH_PENALTY}; 0 is none"
            raise invalid("length_penalty", self.length_penalty, allowed)
        given: object = self.early_stopping
        if not isinstance(given, bool) and not (isinstance(given, str) and given == "never"):
            raise invalid("early_stopping", self.early_stopping, "True, False or 'never'")
        if self.beam_width is None:
            return
        check_int("beam_width", self.beam_width, 1, None)
        other = {
            "n": self.n != 1,
            "stop": bool(self.stop),
            "logprobs": self.logprobs is not None,
            "prompt_logprobs": self.prompt_logprobs is not None,
            "temperature": self.temperature not in (0, 1),
            "filters": self.filters,
            "penalties": self.adjusts_logits,
            "structured output": self.structure is not None,
        }
        if any(other.values()):
            names = ", ".join(name for name, used in other.items() if used)
            raise RequestError(
                f"beam_width does not go together with {names}",
                where="sampling parameters",
                hint="beam search ranks whole outputs by the model's own probabilities",
            )

    @property
    def completions(self) -> int:
        """The number of completions of one prompt."""
        return self.beam_width or self.n

    @property
    def structure(self) -> Structure | None:
        """The structure that the output must have; None if it may be anything."""
        return structure_of(self.json_schema, self.regex, self.grammar, self.choice)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """``stop`` as a tuple."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    # Asked for with every token, and parameters do not change.
    @cached_property
    def plain(self) -> bool:
        """The largest logit is wanted and nothing else."""
        return self.greedy and not self.adjusts_logits and self.logprobs is None

    @cached_property
    def greedy(self) -> bool:
        """No noise is drawn."""
        return self.temperature == 0

    @cached_property
    def filters(self) -> bool:
        """Some filter may keep tokens from being drawn."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0 or self.typical_p < 1

    @cached_property
    def adjusts_logits(self) -> bool:
        """Some penalty or bias changes the logits before they are filtered."""
        return self.penalizes or bool(self.logit_bias)

    @cached_property
    def penalizes(self) -> bool:
        """Some penalty depends on the tokens so far."""
        return bool(self.repetition_penalty != 1 or self.presence_penalty or self.frequency_penalty)
