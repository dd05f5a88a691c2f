"""`ModelOptions`: arguments of lm-eval's model ``optc`` besides the artifact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from optc.errors import InputError
from optc.runtime.keywords import ServeChanges
from optc.system.suggest import near

#: What lm-eval gives to every model. Requests are batched by the engine, on its own device.
_OF_EVERY_MODEL = frozenset({"batch_size", "max_batch_size", "device"})


@dataclass(frozen=True)
class ModelOptions:
    """The options by which texts become requests.

    Attributes:
        max_length: Most tokens that the model reads of a request; None is what the engine holds
            beside the last token of a continuation, which is only scored.
        max_gen_toks: New tokens where a task states no number.
        add_bos_token: Put the BOS token before texts; None is as the tokenizer does.
        prefix_token_id: What a text without a context is scored behind; None is BOS, or the token
            that ends a text.
        enable_thinking: That variable of the chat template; None is not given.
        seed: Of samples, if a task asks for them.
        adapter: Folder of a LoRA adapter; None is the model itself.
    """

    max_length: int | None = None
    max_gen_toks: int = 256
    add_bos_token: bool | None = None
    prefix_token_id: int | None = None
    enable_thinking: bool | None = None
    seed: int = 1234
    adapter: str | None = None


def split(options: Mapping[str, Any]) -> tuple[ModelOptions, dict[str, Any]]:
    """Options of the model, and those of `optc.load`.

    Raises:
        InputError: There is no such option.
    """
    own = {field.name for field in fields(ModelOptions)}
    known = own | ServeChanges.__annotations__.keys()
    given = {name: value for name, value in options.items() if name not in _OF_EVERY_MODEL}
    for name in given:
        if name not in known:
            raise InputError(
                f"{name!r} is no argument of the model optc",
                where="model_args",
                hint=near(name, sorted(known)),
            )
    mine = ModelOptions(**{name: value for name, value in given.items() if name in own})
    return mine, {name: value for name, value in given.items() if name not in own}
