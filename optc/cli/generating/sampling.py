"""The options of `optc.SamplingParams` on the command line, declared where it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from optc.cli.options import add_options
from optc.errors import InputError
from optc.runtime.params import SamplingParams
from optc.system.options.option import options_of

if TYPE_CHECKING:
    from optc import Engine

Command = TypeVar("Command", bound=Callable[..., Any])

#: The only defaults that are not the API's (ADR 0114): a model that is tried by hand answers the
#: same question in the same way, and more than a line.
DEFAULTS: Mapping[str, Any] = MappingProxyType({"temperature": 0.0, "max_tokens": 128})
#: Those of a conversation: an answer may be as long as the context holds.
CHAT_DEFAULTS: Mapping[str, Any] = MappingProxyType({**DEFAULTS, "max_tokens": None})
_NOT_OF_CHATS = frozenset(
    {"n", "logprobs", "prompt_logprobs", "beam_width", "length_penalty", "early_stopping"}
)
#: Those that a conversation has: one answer at a time, which streams.
CHAT_NAMES = tuple(name for name in options_of(SamplingParams) if name not in _NOT_OF_CHATS)
#: What the adapter of --adapter is called.
ADAPTER = "adapter"


def sampling_options(
    defaults: Mapping[str, Any] = DEFAULTS, names: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """A decorator that gives a command the options of `SamplingParams`: those of ``names``, or
    all."""
    return add_options(SamplingParams, *names, defaults=defaults)


def sampling_params(
    options: dict[str, Any], defaults: Mapping[str, Any] = DEFAULTS
) -> SamplingParams:
    """The parameters that a command's options stand for, which are taken out of ``options``.

    Raises:
        RequestError: A value is out of its range.
    """
    named = [name for name in options_of(SamplingParams) if name in options]
    values = {name: options.pop(name) for name in named}
    given = {name: value for name, value in values.items() if value not in (None, (), {})}
    return SamplingParams(**{**defaults, **given})


def check_shown(params: SamplingParams, *, as_json: bool) -> list[str]:
    """Warnings about what changes nothing in the output of ``optc run``.

    Raises:
        InputError: Log-probabilities are asked for, which only ``--json`` shows.
    """
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(params, name) is not None and not as_json:
            where = f"--{name.replace('_', '-')}"
            raise InputError("changes nothing without --json", where=where, hint="add --json")
    if params.n > 1 and params.temperature == 0 and params.beam_width is None:
        return [f"--n {params.n}: all are the same at --temperature 0; give a higher one"]
    return []


def adapter_terms(engine: Engine, adapter: object) -> dict[str, Any]:
    """Load the adapter of ``--adapter``, if any; what requests that use it are served with."""
    if adapter is None:
        return {}
    engine.load_adapter(ADAPTER, str(adapter))
    return {"adapter": ADAPTER}
