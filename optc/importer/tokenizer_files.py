"""The files of a model folder that make its tokenizer."""

from __future__ import annotations

#: Where a processor's settings keep a template that a tokenizer does not have.
PROCESSOR_TEMPLATE = "chat_template.json"
#: Where a model keeps more templates than one.
MORE_TEMPLATES = "additional_chat_templates"
TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    PROCESSOR_TEMPLATE,
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
