"""What the tokenizers package raises becomes one exception; all else stays what it is."""

from __future__ import annotations

import pytest

from optc.runtime.text.rust_errors import RustError, rust_errors


class PanicException(BaseException):
    """As pyo3 names it."""


@pytest.mark.parametrize("error", [Exception("no"), PanicException("no")], ids=repr)
def test_errors_of_the_package(error: BaseException) -> None:
    with pytest.raises(RustError, match=r"^no$") as caught, rust_errors():
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyError("a"), ValueError("a"), KeyboardInterrupt()], ids=repr)
def test_other_errors(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, rust_errors():
        raise error
    assert caught.value is error
