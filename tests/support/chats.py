"""A small byte-level tokenizer, chat templates of several kinds, and conversations."""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from optc.proof.conversations.chat import Chat
from optc.proof.conversations.conversation import Conversation, read_conversation
from optc.runtime.text.tokenizer import Tokenizer

CONTROL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
END = 3
_CHARACTERS = " \n\"{}[]:,.<>/_!?'|abcdefghijklmnopqrstuvwxyz0123456789"
#: Tokens of several characters: beginnings of values that are in the tests' enums.
_MERGES = (("c", "e"), ("ce", "l"), ("n", "o"), ("no", "r"), ("t", "h"), ("nor", "th"))

CHATML = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: Has no place for tools, as that of SmolLM2.
PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: Marks what is said for trainings.
MARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: Drops the thoughts of earlier turns, and puts empty ones into the last.
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n</think>{% endif %}{{ m.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: Opens thoughts that what is rendered of an answer does not have.
OPENING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
#: Strips contents, and puts the system message into the first of the user.
STRIPPING = (
    "{% set s = messages[0].content + ' ' if messages[0].role == 'system' else '' %}"
    "{% for m in messages if m.role != 'system' %}"
    "{% if m.role == 'user' %}<s>[u]{{ s if loop.first else '' }}{{ m.content | trim }}[/u]"
    "{% else %}{{ m.content | trim }}</s>{% endif %}{% endfor %}"
)
#: Writes no token that ends a generation.
ENDLESS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
#: Says how many messages there are, before them: what stands before an answer changes.
COUNTING = "{{ messages | length }}" + PLAIN


def small_tokenizer() -> tokenizers.Tokenizer:
    """65 tokens: control tokens 0 to 5 (3 ends a turn), characters, and those of `_MERGES`."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = [level.pre_tokenize_str(one)[0][0] for one in _CHARACTERS]
    pieces = [*CONTROL, *letters, *("".join(pair) for pair in _MERGES)]
    built = tokenizers.Tokenizer(
        models.BPE(vocab={one: i for i, one in enumerate(pieces)}, merges=list(_MERGES))
    )
    built.pre_tokenizer = level
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(text, special=True) for text in CONTROL])
    return built


def chat(template: str = CHATML, ends: tuple[int, ...] = (END,)) -> Chat:
    """A chat with the small tokenizer."""
    made = Tokenizer(small_tokenizer(), chat_template=template)
    return Chat(lambda: made, ends)


def conversation(*turns: str, **more: Any) -> Conversation:
    """Messages of user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return read_conversation({"messages": messages, **more}, "t.jsonl:1")


def tool(name: str, **properties: Any) -> dict[str, Any]:
    """A function with these parameters."""
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A message of the assistant that calls it."""
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
