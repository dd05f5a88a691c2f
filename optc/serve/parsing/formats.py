"""Formats in which chat templates write calls of functions and thoughts.

A template writes the calls of earlier messages as the model was trained to write them: its text
tells the format, whatever the model is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class CallFormat:
    """The format of calls.

    Attributes:
        name: Of the format, for the log.
        begins: Texts that begin calls.
        ends: Texts that may end them; empty where there are none.
        arguments: Key of the arguments.
        bare: A message may be a call without a text that begins it.
        listed: Calls are written as a list.
        separator: Between objects that are no list.
    """

    name: str
    begins: tuple[str, ...]
    ends: tuple[str, ...] = ()
    arguments: str = "arguments"
    bare: bool = False
    listed: bool = False
    separator: str = ""


@dataclass(frozen=True)
class ThoughtFormat:
    """Between what thoughts stand.

    Attributes:
        begin: Before.
        end: Behind.
    """

    begin: str
    end: str


HERMES = CallFormat("hermes", ("<tool_call>",), ("</tool_call>",), separator="\n")
XML = CallFormat("xml", ("<tool_call>",), ("</tool_call>",), separator="\n")
MISTRAL = CallFormat("mistral", ("[TOOL_CALLS]",), listed=True)
TAGGED = CallFormat("tagged list", ("<|tool_call|>",), ("<|/tool_call|>",), listed=True)
LLAMA = CallFormat("llama", ("<|python_tag|>",), arguments="parameters", bare=True, separator="; ")
#: What models write that were asked for a call and whose template shows none.
JSON = CallFormat("json", (), bare=True)
_THOUGHTS = (ThoughtFormat("<think>", "</think>"), ThoughtFormat("[THINK]", "[/THINK]"))


@lru_cache(maxsize=32)
def call_format(template: str) -> CallFormat | None:
    """The format of a template's calls; None where it is none of these."""
    if "<tool_call>" in template:
        return XML if "<function=" in template else HERMES
    if "[TOOL_CALLS]" in template:
        return MISTRAL
    if "<|tool_call|>" in template:
        return TAGGED
    if "<|python_tag|>" in template or ('{"name": ' in template and '"parameters": ' in template):
        return LLAMA
    return None


@lru_cache(maxsize=32)
def thought_format(template: str) -> ThoughtFormat | None:
    """The format of a template's thoughts; None where it shows none."""
    return next((one for one in _THOUGHTS if one.end in template), None)


def begins_in_thought(prompt: str, thoughts: ThoughtFormat) -> bool:
    """True if a rendered prompt, or its end, lets the model begin within a thought."""
    return prompt.rfind(thoughts.begin) > prompt.rfind(thoughts.end)
