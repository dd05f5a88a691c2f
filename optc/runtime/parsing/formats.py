"""Formats in which chat templates write calls of functions and thoughts.

A template writes the calls of earlier messages as the model was trained to write them: its text
tells the format, whatever the model is called.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

#: How the calls behind a mark are written: as JSON (or as parameters in tags), in DeepSeek's marks,
#: as pairs of a key and a value (GLM), as calls in Python, or in OpenAI's channels (Harmony).
Style = Literal["json", "deepseek", "pairs", "python", "harmony"]


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
        style: How calls are written.
        fenced: Arguments stand in a fence of Markdown.
    """

    name: str
    begins: tuple[str, ...]
    ends: tuple[str, ...] = ()
    arguments: str = "arguments"
    bare: bool = False
    listed: bool = False
    separator: str = ""
    style: Style = "json"
    fenced: bool = False

    @property
    def opens(self) -> str:
        """The character that opens a call without a text that begins it; empty where none may."""
        if not self.bare:
            return ""
        return "[" if self.style == "python" else "{"


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
#: DeepSeek V3 and R1, and V3.1.
DEEPSEEK = CallFormat(
    "deepseek",
    ("<｜tool▁calls▁begin｜>",),
    ("<｜tool▁calls▁end｜>",),
    separator="\n",
    style="deepseek",
    fenced=True,
)
DEEPSEEK_31 = replace(DEEPSEEK, name="deepseek 3.1", separator="", fenced=False)
GLM = CallFormat("glm", ("<tool_call>",), ("</tool_call>",), separator="\n", style="pairs")
#: Llama 3.2 and 4, and LFM2 with marks of its own.
PYTHON = CallFormat(
    "python",
    ("<|python_start|>", "<|tool_call_start|>"),
    ("<|python_end|>", "<|tool_call_end|>"),
    bare=True,
    listed=True,
    style="python",
)
#: gpt-oss: https://github.com/openai/harmony, docs/format.md.
HARMONY = CallFormat("harmony", ("<|channel|>",), ("<|call|>",), style="harmony")
#: What models write that were asked for a call and whose template shows none.
JSON = CallFormat("json", (), bare=True)
HARMONY_THOUGHTS = ThoughtFormat("<|channel|>analysis<|message|>", "<|end|>")
_THOUGHTS = (ThoughtFormat("<think>", "</think>"), ThoughtFormat("[THINK]", "[/THINK]"))
#: Of templates whose calls are Python's; the last one is an example that models are shown.
_PYTHON_MARKS = (*PYTHON.begins, "[func_name1(params_name1=")


@lru_cache(maxsize=32)
def call_format(template: str) -> CallFormat | None:
    """The format of a template's calls; None where it is none of these."""
    if "<|channel|>" in template:
        return HARMONY
    if "<｜tool▁calls▁begin｜>" in template:
        return DEEPSEEK if "```json" in template else DEEPSEEK_31
    if "<arg_key>" in template:
        return GLM
    if any(mark in template for mark in _PYTHON_MARKS):
        return PYTHON
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
    if "<|channel|>" in template:
        return HARMONY_THOUGHTS
    return next((one for one in _THOUGHTS if one.end in template), None)


def begins_in_thought(prompt: str, thoughts: ThoughtFormat) -> bool:
    """True if a rendered prompt, or its end, lets the model begin within a thought."""
    return prompt.rfind(thoughts.begin) > prompt.rfind(thoughts.end)
