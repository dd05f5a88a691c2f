"""Tokens to text while they come: whole characters only, stop strings cut before they show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_REPLACEMENT = "\ufffd"
#: An unfinished UTF-8 character has at most 3 bytes; decoders show at most one U+FFFD for each.
_MAX_UNFINISHED = 3
#: Tokens of the prompt that decoding starts from: enough for a decoder that treats the first
#: token in a way of its own (the space that SentencePiece drops) and for an unfinished character.
_PROMPT_CONTEXT = 6
#: A window is cut at a boundary from this length on (each cut costs one more decoding), …
_CUT_WINDOW = 16
#: … and anywhere from this one on: that many tokens without an end of character are garbage.
_MAX_WINDOW = 64


class Detokenizer:
    """Incremental decoding over a window of the last few tokens.

    The window starts at a boundary between characters, so that its text only grows. Text is
    handed out up to a trailing unfinished character; when none is left the window moves on.

    Args:
        decode: Decodes token ids to text, without special tokens.
        prompt: Token ids before the first output token.
    """

    def __init__(self, decode: Decode, prompt: Sequence[int]) -> None:
        self._decode = decode
        self._window = [int(token) for token in prompt[-_PROMPT_CONTEXT:]]
        self._boundary = len(self._window)  # the tokens before end with a whole character
        self._shown = len(decode(self._window).rstrip(_REPLACEMENT))

    def add(self, token: int) -> str:
        """The text that ``token`` completes; empty inside a character."""
        self._window.append(token)
        text = self._decode(self._window)
        end = len(text) - _unfinished(text)
        piece = text[self._shown : end]
        self._shown = max(self._shown, end)
        whole = end == len(text)
        if (whole and len(self._window) >= _CUT_WINDOW) or len(self._window) >= _MAX_WINDOW:
            self._cut()
        if whole:
            self._boundary = len(self._window)
        return piece

    def finish(self) -> str:
        """What is left, replacement characters for an unfinished character included."""
        text = self._decode(self._window)
        piece = text[self._shown :]
        self._shown = len(text)
        return piece

    def _cut(self) -> None:
        """Keep the tokens since the last boundary as context, unless they are special tokens
        only: a decoder would take what follows for the start of a text."""
        context = self._window[min(self._boundary, len(self._window) - 1) :]
        shown = len(self._decode(context))
        if shown or len(self._window) >= _MAX_WINDOW:
            self._window, self._shown, self._boundary = context, shown, len(context)


def _unfinished(text: str) -> int:
    tail = text[-_MAX_UNFINISHED:]
    return len(tail) - len(tail.rstrip(_REPLACEMENT))


class TextStream:
    """Text of one completion, cut at the first stop string.

    Args:
        detokenizer: Decodes the output tokens.
        stop: Non-empty stop strings.
    """

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str]) -> None:
        self._detokenizer = detokenizer
        self._stop = tuple(stop)
        self._held = ""  # may be the start of a stop string
        self._pieces: list[str] = []
        self.stopped = False

    @property
    def text(self) -> str:
        """All text handed out so far."""
        return "".join(self._pieces)

    def add(self, token: int) -> str:
        """Text that can be shown now; sets ``stopped`` when a stop string is complete."""
        return self._advance(self._detokenizer.add(token))

    def finish(self) -> str:
        """The rest of the text, for a completion that no stop string ended."""
        if self.stopped:
            return ""
        piece = self._advance(self._detokenizer.finish())
        if not self.stopped:
            piece += self._held
            self._pieces.append(self._held)
            self._held = ""
        return piece

    def _advance(self, piece: str) -> str:
        buffer = self._held + piece
        found = [at for at in (buffer.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self.stopped = True
            shown, self._held = buffer[: min(found)], ""
        else:
            keep = max((_overlap(buffer, stop) for stop in self._stop), default=0)
            shown, self._held = buffer[: len(buffer) - keep], buffer[len(buffer) - keep :]
        self._pieces.append(shown)
        return shown


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a proper start of ``stop``."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
