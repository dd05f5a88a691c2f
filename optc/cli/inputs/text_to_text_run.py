"""``optc run --prompt`` of models that turn texts into texts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import click
from msgspec import to_builtins

from optc.cli.output import print_json
from optc.runtime.text_to_text.load import load_text_to_text
from optc.runtime.text_to_text.params import TextToTextOptions


def run_text_to_text(
    artifact: Path,
    texts: list[str],
    served: Mapping[str, Any],
    as_json: bool,
    **how: Unpack[TextToTextOptions],
) -> None:
    """Write a text for each text.

    Args:
        artifact: Its folder.
        texts: To read.
        served: Fields of `optc.ServeSettings`.
        as_json: Print one JSON object.
        **how: Fields of `optc.runtime.text_to_text.params.TextToTextParams`.

    Raises:
        RequestError: A text is longer than the model reads, or a value of ``how`` is not usable.
    """
    with load_text_to_text(artifact, **served) as loaded:
        started = time.perf_counter()
        found = loaded.generate(texts, **how)
        seconds = time.perf_counter() - started
        info = dict(loaded.info)
    if as_json:
        results = [to_builtins(one) for one in found]
        print_json("run", {"results": results, "seconds": seconds, "engine": info}, [])
        return
    for text, one in zip(texts, found, strict=True):
        if len(texts) > 1:
            click.echo(f"── {text!r}")
        click.echo(one.text)
