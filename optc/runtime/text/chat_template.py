"""Renders chat templates, which come with a model and are not trusted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from optc.errors import RequestError

if TYPE_CHECKING:
    from jinja2 import Environment, Template

#: Templates of models have up to 30,000 characters.
_MOST_CHARACTERS = 1 << 20
#: How the message of a template that is wrong begins; one that refuses messages says so itself.
FAILS = "the chat template fails"


def render_template(source: str, variables: Mapping[str, object]) -> str:
    """Render a chat template in a sandbox whose work and results are bounded (ADR 0079).

    Raises:
        RequestError: The template is wrong, refuses the variables, or takes too much work.
    """
    if len(source) > _MOST_CHARACTERS:
        raise RequestError(f"the chat template has {len(source)} characters", where="messages")
    from optc.runtime.text.template_budget import budget  # only conversations need Jinja

    environment = _environment()
    try:
        with budget():
            text: str = _compiled(environment, source).render(**variables)
            text.encode()  # half of a surrogate pair is no text
    except RequestError:
        raise
    # The template is a program of others': whatever it raises is its own failure.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise RequestError(f"{FAILS}: {reason[:300]}", where="messages") from error
    return text


@lru_cache(maxsize=8)
def names_read(source: str) -> frozenset[str]:
    """Names of variables that a template reads somewhere; it is one that can be rendered."""
    from jinja2 import nodes

    found = _environment().parse(source).find_all(nodes.Name)
    return frozenset(node.name for node in found if node.ctx == "load")


@cache
def _environment() -> Environment:
    from optc.runtime.text.template_sandbox import BoundedEnvironment

    return BoundedEnvironment()


@lru_cache(maxsize=8)
def _compiled(environment: Environment, source: str) -> Template:
    return environment.from_string(source)
