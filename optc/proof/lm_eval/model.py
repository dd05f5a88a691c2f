"""`OptcLM`: an artifact as lm-eval's model ``optc``.

lm-eval does not look for models of other packages: this module is imported first, as
``python -m optc.proof.lm_eval`` does.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

import optc
from optc.errors import InputError, RequestError
from optc.proof.lm_eval.generation import params_of
from optc.proof.lm_eval.model_options import split
from optc.proof.lm_eval.serving import served
from optc.runtime.engine import Engine
from optc.runtime.scoring.score import SCORED, Score
from optc.runtime.text.tokenizer import Tokenizer

#: A request to score: its texts (None of a window of a longer text), and token ids of both.
Pair = tuple[tuple[str, str] | None, list[int], list[int]]


@register_model("optc")
class OptcLM(TemplateLM):
    """An artifact, served as `optc.load` serves it; requests are batched continuously.

    Args:
        path: The artifact's folder.
        **options: Fields of `ModelOptions` and of `optc.ServeSettings`.

    Raises:
        OptcError: As of `optc.load`; there is no such option, the artifact has no tokenizer, or
            its engine holds no such length.
    """

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__()
        self.options, serve = split(options)
        self.engine: Engine = optc.load(path, **serve)
        tokenizer = self.engine.tokenizer
        if tokenizer is None:
            raise InputError("the artifact has no tokenizer", where=str(path))
        longest, wanted = self.engine.max_context - 1, self.options.max_length
        if wanted is not None and not 1 < wanted <= longest:
            raise InputError(
                f"a length of {wanted} tokens", where="max_length", hint=f"2 to {longest}"
            )
        self.tokenizer: Tokenizer = tokenizer
        self.max_length = wanted or longest
        adapter = self.options.adapter
        if adapter is not None:
            self.engine.load_adapter(adapter, adapter)

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        if not self.engine.eos_token_ids:
            raise InputError("the artifact names no token that ends a text", where="eot_token_id")
        return self.engine.eos_token_ids[0]

    @property
    def prefix_token_id(self) -> int:
        """The tokens that a text without a context is scored behind."""
        if self.options.prefix_token_id is not None:
            return self.options.prefix_token_id
        bos = self.tokenizer.special_tokens.get("bos_token")
        found = None if bos is None else self.tokenizer.backend.token_to_id(bos)
        return self.eot_token_id if found is None else int(found)

    @property
    def tokenizer_name(self) -> str:
        """By its content, for lm-eval's cache of requests."""
        content = self.tokenizer.backend.to_str() + self.tokenizer.chat_template
        return f"optc-{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **options: Any
    ) -> list[int]:
        """Token ids of a text, in which the texts of control tokens are these tokens, as
        transformers has it."""
        add = add_special_tokens
        if add is None:  # not twice
            prefix = self.tokenizer.decode([self.prefix_token_id], skip_special_tokens=False)
            add = self.options.add_bos_token is not False and not string.startswith(prefix)
        return self.tokenizer.encode(string, add_special_tokens=add, parse_special=True)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The text of a conversation; without its system message where the template takes none."""
        thinking = self.options.enable_thinking
        variables: dict[str, object] = {"continue_final_message": not add_generation_prompt}
        if thinking is not None:
            variables["enable_thinking"] = thinking
        try:
            return self.tokenizer.render_chat(chat_history, **variables)
        except RequestError:
            rest = [message for message in chat_history if message["role"] != "system"]
            if len(rest) == len(chat_history):
                raise
            return self.tokenizer.render_chat(rest, **variables)

    def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """As of lm-eval, without a bar that nobody sees."""
        found: list[tuple[float, bool]] = super().loglikelihood(
            requests, disable_tqdm=disable_tqdm or not sys.stderr.isatty()
        )
        return found

    def _loglikelihood_tokens(
        self, requests: Sequence[Pair], disable_tqdm: bool = False, **options: Any
    ) -> list[tuple[float, bool]]:
        """Log-probability of each continuation, and whether greedy decoding would write it. Of what
        is too long the beginning is cut off."""
        wanted = (self._scored(context, continuation) for _, context, continuation in requests)
        outputs = served(self.engine, wanted)
        found = []
        for (texts, *_), output in zip(
            requests, _shown(outputs, len(requests), "scores", disable_tqdm), strict=True
        ):
            score = Score.of(output)
            found.append((score.logprob, score.is_greedy))
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, found[-1])
        return found

    def _scored(self, context: list[int], continuation: list[int]) -> optc.GenerationRequest:
        if not 0 < len(continuation) <= self.max_length:
            raise InputError(
                f"a continuation of {len(continuation)} tokens",
                where="lm-eval",
                hint=f"1 to {self.max_length}; max_length may be more of a larger context",
            )
        whole = [*context, *continuation][-(self.max_length + 1) :]
        first = len(whole) - len(continuation)
        adapter = self.options.adapter
        return optc.GenerationRequest(whole, SCORED, scored_from=first, adapter=adapter)

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """Log-probability of each text, in windows of the model's length of which each token is
        scored once, the first one behind `prefix_token_id`."""
        windows: list[Pair] = []
        counts = []
        for request in requests:
            (text,) = request.args
            mine = get_rolling_token_windows(
                self.tok_encode(text), self.prefix_token_id, self.max_length, 1
            )
            pairs = [make_disjoint_window(window) for window in mine]
            windows += [(None, context, continuation) for context, continuation in pairs]
            counts.append(len(pairs))
        scores = iter(self._loglikelihood_tokens(windows, disable_tqdm))
        totals = []
        for request, count in zip(requests, counts, strict=True):
            totals.append(sum(next(scores)[0] for _ in range(count)))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, totals[-1])
        return totals

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """The continuation of each context up to the first of its stop strings."""
        wanted = (self._generating(request.args, number) for number, request in enumerate(requests))
        texts = []
        outputs = _shown(served(self.engine, wanted), len(requests), "continuations", disable_tqdm)
        for request, output in zip(requests, outputs, strict=True):
            texts.append(output.raise_for_error().text)
            self.cache_hook.add_partial("generate_until", request.args, texts[-1])
        return texts

    def _generating(self, args: tuple[str, dict[str, Any]], number: int) -> optc.GenerationRequest:
        context, options = args
        wanted = normalize_gen_kwargs(options, self.options.max_gen_toks)
        params = params_of(wanted, self.options.seed + number)
        room = self.max_length - (params.max_tokens or 0)
        if room <= 0:
            raise InputError(
                f"{params.max_tokens} new tokens",
                where="max_gen_toks",
                hint="fewer than max_length",
            )
        ids = self.tok_encode(context)[-room:]
        return optc.GenerationRequest(ids, params, adapter=self.options.adapter)


def _shown(outputs: Iterable[Any], count: int, what: str, hidden: bool) -> Iterable[Any]:
    shown: Iterable[Any] = tqdm(outputs, total=count, desc=what, disable=hidden or None)
    return shown
