"""Bodies of the routes that order, score and classify."""

from __future__ import annotations

from optc.serve.bodies.base import Body


class Document(Body):
    """A text, in Cohere's form."""

    text: str


class RerankBody(Body):
    """Texts to be ordered by how well they answer a query, in the form of Cohere, Jina and vLLM."""

    model: str | None = None
    query: str
    documents: list[str | Document]
    top_n: int | None = None
    return_documents: bool | None = None


class ScoreBody(Body):
    """Pairs of texts to be scored, in vLLM's form: one or as many texts for others."""

    model: str | None = None
    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    queries: str | list[str] | None = None
    documents: str | list[str] | None = None


class ClassifyBody(Body):
    """Texts or images whose classes are wanted, in vLLM's form. Images are data URLs."""

    model: str | None = None
    input: str | list[str]
