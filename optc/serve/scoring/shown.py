"""Classes and labels as answers have them; images as requests have them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from io import BytesIO
from typing import Any

from optc.errors import RequestError
from optc.runtime.tensors.classifier import Scored
from optc.runtime.tensors.pictures import opened_image
from optc.runtime.tensors.text_classifiers import TokenClassifier
from optc.serve.api_errors import APIError

_DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,")
#: Pixels of all images of a request together: small files become large in memory.
_MOST_PIXELS = 1 << 26
#: More classes than a model has.
_ALL = 1 << 31


def classes_of(
    classify: Callable[..., list[list[Scored]]], inputs: Sequence[Any]
) -> dict[str, Any]:
    """The likeliest class of each input, and the probabilities of all in the model's order."""
    data = []
    for index, found in enumerate(classify(inputs, top=_ALL)):
        probabilities = [one.score for one in sorted(found, key=lambda one: one.index)]
        data.append(
            {
                "index": index,
                "label": found[0].label,
                "probs": probabilities,
                "num_classes": len(probabilities),
            }
        )
    return {"object": "list", "data": data}


def parts_of(engine: TokenClassifier, texts: Sequence[str]) -> dict[str, Any]:
    """The labelled parts of each text."""
    data = [
        {"index": index, "parts": [asdict(one) for one in parts]}
        for index, parts in enumerate(engine.classify(texts))
    ]
    return {"object": "list", "data": data}


def images_of(urls: Sequence[str]) -> list[Any]:
    """The images of data URLs. Nothing is fetched.

    Raises:
        APIError: One is none, or holds no image, or they have too many pixels together.
        UnavailableError: Pillow is missing.
    """
    found, left = [], _MOST_PIXELS
    for index, url in enumerate(urls):
        head = _DATA_URL.match(url)
        if head is None:
            message = "give images as data URLs: data:image/png;base64,…"
            raise APIError(400, f"input.{index}: {message}", "input")
        try:
            data = base64.b64decode(url[head.end() :], validate=True)
        except (binascii.Error, ValueError) as error:
            raise APIError(400, f"input.{index}: no base64: {error}", "input") from error
        try:
            found.append(opened_image(BytesIO(data), "input", left))
        except RequestError as error:
            raise APIError(400, f"input.{index}: {error.message}", "input") from error
        left -= found[-1].width * found[-1].height
    return found
