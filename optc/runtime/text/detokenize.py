"""Tokens to text while they come: whole characters only, stop strings cut before they show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_REPLACEMENT = "\ufffd"
#: Tokens of the prompt that decoding starts from: enough for a decoder that treats the first
#: token in a way of its own (the space that SentencePiece drops).
_PROMPT_CONTEXT = 6
#: Tokens that a UTF-8 character may be spread over before its last one.
_MAX_UNFINISHED = 3
#: A window is cut at a boundary from this length on (each cut costs one more short decoding), …
_CUT_WINDOW = 4
#: … and anywhere from this one on: that many tokens without an end of character are garbage.
_MAX_WINDOW = 64


class Detokenizer:
    """Incremental decoding over a window of the last few tokens.

    The window starts between two characters. Nothing is handed out while its text ends with an
    unfinished character, because a decoder may then show the whole characters before it as
    broken too: runs of byte tokens are decoded as one, valid or not.

    Args:
        decode: Decodes token ids to text, without special tokens.
        prompt: Token ids before the first output token.
    """

    def __init__(self, decode: Decode, prompt: Sequence[int]) -> None:
        self._decode = decode
        self._window = _context(decode, prompt)
        # A prompt given as tokens may end inside a character, which the output then completes.
        self._boundary = _boundary(decode, self._window)  # tokens before it end a character
        self._shown = len(decode(self._window[: self._boundary]))
        self._empty = True

    def add(self, token: int) -> str:
        """The text that ``token`` completes; empty inside a character."""
        self._window.append(token)
        self._empty = False
        text = self._decode(self._window)
        whole = not text.endswith(_REPLACEMENT)
        garbage = len(self._window) >= _MAX_WINDOW
        piece = ""
        if whole or garbage:
            piece = text[self._shown :]
            self._shown = max(self._shown, len(text))
        if garbage or (whole and len(self._window) >= _CUT_WINDOW):
            self._cut()
        if whole:
            self._boundary = len(self._window)
        return piece

    def finish(self) -> str:
        """The rest of the text, replacement characters for an unfinished character included.
        Without a token there is none: what the prompt has left unfinished is the prompt's."""
        if self._empty:
            return ""
        piece = self._decode(self._window)[self._shown :]
        self._shown += len(piece)
        return piece

    def _cut(self) -> None:
        """Keep the tokens since the last boundary as context, unless they are special tokens
        only: a decoder would take what follows for the start of a text."""
        first = max(self._boundary, len(self._window) - _CUT_WINDOW)
        context = self._window[min(first, len(self._window) - 1) :]
        shown = len(self._decode(context))
        if shown or len(self._window) >= _MAX_WINDOW:
            self._window, self._shown, self._boundary = context, shown, len(context)


def _context(decode: Decode, prompt: Sequence[int]) -> list[int]:
    """The end of the prompt, started where fewest characters are broken."""
    starts = range(max(0, len(prompt) - _PROMPT_CONTEXT), -1, -1)[: _MAX_UNFINISHED + 1]
    windows = [[int(token) for token in prompt[start:]] for start in starts]
    return min(windows, key=lambda window: decode(window).count(_REPLACEMENT))


def _boundary(decode: Decode, window: Sequence[int]) -> int:
    """Number of leading tokens that end with a whole character; all, if it is garbage."""
    for end in range(len(window), max(-1, len(window) - _MAX_UNFINISHED - 1), -1):
        if not decode(window[:end]).endswith(_REPLACEMENT):
            return end
    return len(window)


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
        if not self._stop:
            self._pieces.append(piece)
            return piece
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
