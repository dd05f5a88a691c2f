"""The contexts of largest divergence, as text."""

from __future__ import annotations

from optc.artifact.pages.components import Section, paragraph
from optc.artifact.pages.markup import Element, Node, element
from optc.artifact.pages.numbers import NOTHING, number, percent
from optc.artifact.pages.sections.subject import Subject
from optc.artifact.pages.tokens import token_text
from optc.artifact.report_data import ContextData, ContextsOf, TokenData


def contexts(subject: Subject) -> Section | None:
    """Places where each engine is farthest from the float32 model; None if none was measured."""
    entries = [(name, f) for name, f in subject.evaluations(ContextsOf) if f.worst_contexts]
    if not entries:
        return None
    caption = (
        "The text before a token, with the token that really follows marked, and below it what "
        "both models think comes next. A wrong turn that matters is one where the likeliest "
        "tokens differ and both are sure."
    )
    body: list[Node] = [paragraph(caption)]
    for name, f in entries:
        if len(entries) > 1:
            body.append(element("h3", name))
        listed = map(_context, f.worst_contexts)
        body.append(element("ol", listed, class_="contexts"))
    return Section("contexts", "Largest divergences, as text", tuple(body))


def _context(f: ContextData) -> Element:
    place = f"window {f.window}, token {f.position}"
    nats = number(f.kl)
    return element(
        "li",
        element("p", element("span", f"KL {nats} nats"), element("span", place), class_="where"),
        element("pre", f.context or "", element("mark", _marked(_token(f.next)))),
        _best("float32 model", f.reference),
        _best("engine", f.engine),
    )


def _best(model: str, token: TokenData) -> Element:
    by_reference = percent(token.reference_probability, 2)
    by_engine = percent(token.engine_probability, 2)
    return element(
        "p",
        f"{model}: ",
        element("code", token_text(_token(token))),
        f", float32 {by_reference}, engine {by_engine}",
    )


def _token(token: TokenData) -> str:
    return f"#{token.token}" if token.text is None else token.text or NOTHING


def _marked(text: str) -> str:
    """A token within its text; one of blanks alone is spelled out."""
    return text if text.strip() else token_text(text)
