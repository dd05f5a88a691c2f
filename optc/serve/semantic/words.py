"""Words of two questions: a verifier that embeddings cannot do without."""

from __future__ import annotations

#: What may be there or not.
_IDLE = frozenset({"a", "an", "the", "please"})
#: Behind "how" these ask for the same.
_WAYS = frozenset({"do", "can", "could", "does", "should"})
_ENDS = "?.!,"


def same_words(first: str, second: str) -> bool:
    """Both texts have the same words in the same order, but for articles, the case of the first
    one, and "how can" for "how do". In languages without these, all words are the same."""
    return _words(first) == _words(second)


def _words(text: str) -> list[str]:
    found: list[str] = []
    for word in text.split():
        bare = word.rstrip(_ENDS) or word
        plain = bare if found else bare.lower()
        if plain.lower() in _IDLE or (found == ["how"] and plain in _WAYS):
            continue
        found.append(plain)
    return found
