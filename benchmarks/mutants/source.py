"""A module's text with its syntax tree, and where in the text its operators stand.

Offsets count bytes of UTF-8, as those of `ast` do.
"""

from __future__ import annotations

import ast
import io
import os
import subprocess
import tokenize
from bisect import bisect_left, bisect_right
from itertools import accumulate
from pathlib import Path

_BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


class Source:
    """The text of a module.

    Args:
        text: Valid Python.

    Raises:
        SyntaxError: It is not.
    """

    def __init__(self, text: str) -> None:
        self.code = text.encode()
        self.tree = ast.parse(text)
        lines = text.splitlines(keepends=True)
        self._starts = [0, *accumulate(len(line.encode()) for line in lines)]
        self._tokens: list[tuple[int, int, str]] = []
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in _BLANK and token.string:
                row, column = token.start
                start = self._starts[row - 1] + len(lines[row - 1][:column].encode())
                self._tokens.append((start, start + len(token.string.encode()), token.string))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """The start and end of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.code[start:end].decode()

    def operator(self, start: int, end: int, words: str) -> tuple[int, int]:
        """The span of the operator ``words``, of one token or two, between two operands."""
        parts = words.split()
        first = bisect_left(self._tokens, (start,))
        while self._tokens[first][2] != parts[0]:
            first += 1
        last = first + len(parts) - 1
        assert self._tokens[last][1] <= end, f"no {words} between {start} and {end}"
        return self._tokens[first][0], self._tokens[last][1]

    def next_token(self, start: int) -> int:
        """The start of the token after the one at ``start``."""
        return self._tokens[bisect_left(self._tokens, (start,)) + 1][0]

    def line_number(self, offset: int) -> int:
        """The line, from 1, of an offset."""
        return bisect_right(self._starts, offset)


def listed(root: Path, *patterns: str) -> list[str]:
    """Paths of the files that git knows or would add, and that are there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    found = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True)
    names = filter(None, found.stdout.split("\0"))
    return [name for name in names if os.path.lexists(root / name)]
