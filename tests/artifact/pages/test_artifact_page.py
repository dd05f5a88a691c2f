"""The page about an artifact: all that is in its report is there, and nothing of it is markup."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from optc.artifact.pages.artifact_page import SECTIONS, artifact_page
from optc.artifact.pages.numbers import NOTHING
from optc.artifact.pages.sections.gates import used_share
from optc.artifact.report_data import ContextsOf
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from tests.artifact.pages.pages import read_page
from tests.artifact.pages.sample import REPORT, distribution, report, subject
from tests.artifact.toy import toy_manifest

EVIL = '</pre></style><script>alert(1)</script><img src=x onerror="a"> &amp; \x1b[31m\u202e\x00'
SHOWN = r'</pre></style><script>alert(1)</script><img src=x onerror="a"> &amp; \x1b[31m\u202e\x00'


def test_every_part_is_there() -> None:
    made = artifact_page(subject())
    page = read_page(made.text)
    assert [s.attributes["id"] for s in page.all("section")] == list(made.sections)
    assert [h.text for h in page.all("h2")] == list(SECTIONS)
    assert [a.text for a in page.all("a")] == list(SECTIONS)
    assert made.damaged == ()
    assert len([c for c in page.all("svg") if c.attributes.get("class") == "chart"]) == 8


def test_every_gate_is_there_with_its_verdict() -> None:
    page = read_page(artifact_page(subject()).text)
    text = page.section("gates").text
    for gate in REPORT["gates"]:
        assert gate["name"] in text
    for shown in ("0.0009000.00300", "0.900000.97000", "3.002.50"):
        assert shown in text, "a value, and its bound beside it"
    assert page.all("dd")[0].text == "1 of 3"
    verdicts = [s.text for s in page.all("span") if "verdict" in s.attributes.get("class", "")]
    assert verdicts == ["✓ passed", "✗ failed", "open"]
    assert "Of 3 gates with a bound: 1 passed, 1 failed, 1 open." in text
    used = [one.attributes["aria-label"] for one in page.all("svg", **{"class": "meter"})]
    assert used == ["30.0\u202f% of the bound", "333\u202f% of the bound"]


def test_decisions_are_counted_and_the_worst_are_shown() -> None:
    page = read_page(artifact_page(subject()).text)
    section = page.section("decisions")
    assert "120 decisions, 100 of them firm. Of these, 2 flipped." in section.text
    assert "All but the worst twentieth keep 0.710 times their margin" in section.text
    assert "a value of a few" in section.text
    assert "get_weather.unitmargin 1.90 nats, left \u22120.400talk.jsonl:7flipped" in section.text
    assert "float32 model: celsius, float32 80\u202f%, engine 20" in section.text
    assert "engine: fahrenheit, float32 10\u202f%, engine 60" in section.text
    assert f"left {NOTHING}" in section.text, "the engine gave no numbers"


def test_without_conversations_there_are_no_decisions() -> None:
    found = report()
    found["evaluation"]["target"]["answers"] = {"not_measured": "the model has no chat template"}
    assert "decisions" not in artifact_page(subject(found)).sections


def test_every_rung_of_a_ladder_is_there_with_its_outcome() -> None:
    section = read_page(artifact_page(subject()).text).section("ladder")
    rows = {rung["recipe"]: rung for rung in REPORT["ladder"]["rungs"]}
    for name, rung in rows.items():
        assert f"{name}" in section.text
        assert rung["outcome"] in section.text
        assert rung["why"] in section.text
    assert "the fastest decode of one sequence" in section.text
    assert "2 of them were tried, to hold kl_mean 0.01" in section.text
    assert "5.0 MiB" in section.text


def test_where_a_recipe_was_named_there_is_no_ladder() -> None:
    named = report()
    del named["ladder"]
    made = artifact_page(subject(named))
    assert "ladder" not in made.sections
    assert made.damaged == ()


def test_gates_of_several_engines_are_apart() -> None:
    gates = [{**gate, "engine": name} for name in ("a", "b") for gate in REPORT["gates"]]
    page = read_page(artifact_page(subject(report(gates=gates))).text)
    captions = [one.text for one in page.all("caption")]
    assert captions[:2] == ["Engine a", "Engine b"]


def test_gates_that_were_switched_off() -> None:

    from optc.artifact.pages.sections.subject import Subject

    off = Subject(replace(toy_manifest(()), gated=False), {})
    text = read_page(artifact_page(off).text).section("gates").text
    assert "The gates were switched off" in text


def test_verdicts_of_the_manifest_stand_in_for_a_report_that_is_gone() -> None:
    page = read_page(artifact_page(subject({})).text)
    assert page.all("dd")[0].text == "1 of 1"


def test_contexts_are_text_with_the_next_token_marked() -> None:
    page = read_page(artifact_page(subject()).text)
    first, second, *_ = (e for e in page.all("pre") if e.within[-1] == "li")
    assert first.text == "def f(x):\n    return x"
    assert second.text == " x"
    assert [mark.text for mark in page.all("mark")][:2] == [" x", " x"]
    assert "KL 2.50 nats" in page.section("contexts").text
    assert "float32 5.0\u202f%, engine 80\u202f%" in page.section("contexts").text


def test_tokens_of_blanks_are_seen() -> None:
    found = report()
    context = found["evaluation"]["target"]["worst_contexts"][0]
    context["next"]["text"] = "\n"
    context["engine"]["text"] = "  "
    page = read_page(artifact_page(subject(found)).text)
    assert page.all("mark")[0].text == "\\n"
    assert "engine: ␣␣," in page.section("contexts").text


def test_on_a_phone_every_cell_has_the_name_of_its_column() -> None:
    text = artifact_page(subject()).text
    assert 'data-column="backend"' in text
    assert "td[data-column]::before { content: attr(data-column)" in text


def test_the_distribution_and_its_figures() -> None:
    page = read_page(artifact_page(subject()).text)
    labels = "divergence-0-title divergence-0-text"
    (chart,) = page.all("svg", **{"aria-labelledby": labels})
    assert "Of 7,680 tokens half lie below 0.000200 nats" in chart.text
    assert "0.00316 to 0.0100: 4" in chart.text
    assert "bound of the mean 1.00\u202f\u00d7\u202f10⁻⁶" in chart.text


def test_what_is_not_in_the_report_is_said() -> None:
    page = read_page(artifact_page(subject({}, measured=False)).text)
    idents = [s.attributes["id"] for s in page.all("section")]
    assert idents == ["gates", "layers", "roofline", "size", "pipeline", "engines", "identity"]
    assert "optc compile --bisect" in page.section("layers").text
    assert page.section("roofline").text.endswith("Not measured: no engine runs here.")
    assert "canonicalize,kv-cache" in page.section("pipeline").text


@pytest.mark.parametrize(
    ("by_layer", "own"),
    [(None, False), ([], False), ([None, None], False), ([40.0, None], True), ([40.0, 31.5], True)],
)
def test_errors_of_blocks_stand_in_for_those_of_layers(by_layer: Any, own: bool) -> None:
    facts = {"facts": {"block_sqnr_db": [30.0, 28.5]}}
    passes = [{"name": "propagate-errors", "count": 2, "seconds": 1.0, **facts}]
    bisect = None if by_layer is None else {"sqnr_by_layer": by_layer}
    page = read_page(artifact_page(subject(report(bisect=bisect, passes=passes))).text)
    text = page.section("layers").text
    assert ("by --bisect" in text) is own
    assert ("by the pass propagate-errors" in text) is not own
    assert ("28.5" in text) is not own


def replaced(value: Any, text: str) -> Any:
    """All texts of a JSON value replaced, but for those that say where something was measured."""
    if isinstance(value, dict):
        return {k: v if k in KEPT else replaced(v, text) for k, v in value.items()}
    if isinstance(value, list):
        return [replaced(one, text) for one in value]
    return text if isinstance(value, str) else value


KEPT = {"measured_on"}


def test_no_text_is_markup() -> None:

    from optc.artifact.pages.measured import read_measured
    from optc.artifact.pages.sections.subject import Subject
    from tests.artifact.pages.sample import BENCH

    manifest = toy_manifest(())
    engine = replace(manifest.engines[0], name=EVIL, backend=EVIL)
    evil = replace(
        manifest,
        name=EVIL,
        pipeline=EVIL,
        recipe={"name": EVIL},
        engines=(engine,),
        packages={EVIL: EVIL},
    )
    measured = read_measured(replaced(BENCH, EVIL), "bench.json")
    made = artifact_page(Subject(evil, replaced(report(), EVIL), measured))
    page = read_page(made.text)
    assert made.damaged == ()
    assert page.text.count(SHOWN) > 20


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "Largest divergences, as text": lambda r: r["evaluation"]["target"].update(
        worst_contexts=[{"kl": 1.0}]
    ),
    "Divergence from the float32 model": lambda r: r["evaluation"]["target"].update(tokens="7"),
    "Decisions in conversations": lambda r: r["evaluation"]["target"].update(
        answers={"decisions": {"count": "many"}}
    ),
    "Fidelity by layer": lambda r: r.update(bisect={"sqnr_by_layer": ["high"]}),
    "Size": lambda r: r.update(tensors=[{"kind": "head", "bytes": -1}]),
    "Pipeline": lambda r: r.update(stages={"import": "long"}),
    "Warnings": lambda r: r.update(warnings=[7]),
    "Versions and digests": lambda r: r.update(machine=["fast"]),
}


@pytest.mark.parametrize("title", DAMAGES)
def test_a_part_that_is_damaged_hides_no_other(title: str) -> None:
    found = report()
    DAMAGES[title](found)
    made = artifact_page(subject(found))
    page = read_page(made.text)
    assert [text.partition(" is left out: ")[0] for text in made.damaged] == [title]
    assert [h.text for h in page.all("h2")] == list(SECTIONS)


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_values_make_a_page(data: st.DataObject) -> None:
    """One value of the report is another one: the page is well-formed and its places finite."""
    found = copy.deepcopy(REPORT)
    places = list(_places(found["evaluation"])) + [
        (found, key) for key in ("tensors", "bisect", "stages", "seconds", "machine", "warnings")
    ]
    places += [*_places(found["tensors"]), *_places(found["bisect"]), *_places(found["stages"])]
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(ANY)
    read_page(artifact_page(subject(found)).text)


def _places(value: Any) -> list[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = [(value, key) for key, _ in items]
    inner = [
        inner for inner in (v for _, v in list(_items(value))) if isinstance(inner, dict | list)
    ]
    return found + [place for one in inner for place in _places(one)]


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items() if isinstance(value, dict) else enumerate(value))


@pytest.mark.parametrize(
    "counts", [(0, 0, 0), (5,), (0, 0, 0, 7), (2**31 - 1, 1), tuple(range(200))]
)
@pytest.mark.parametrize("first", [1e-300, 1e-8, 1e300])
def test_distributions_of_any_shape(counts: tuple[int, ...], first: float) -> None:
    found = report()
    found["evaluation"]["target"]["kl_distribution"] = distribution(*counts, first=first)
    assert artifact_page(subject(found)).damaged == ()
    read_page(artifact_page(subject(found)).text)


def test_stages_stand_in_the_order_of_a_compile() -> None:
    stages = {"bisect": 1.0, "build": 2.0, "of another release": 1.0, "import": 3.0}
    page = read_page(artifact_page(subject(report(stages=stages))).text)
    text = page.section("pipeline").text
    places = [text.rindex(name) for name in ("import", "build", "bisect", "of another release")]
    assert places == sorted(places)


def test_formats_that_a_pass_chose() -> None:
    row = {"tensors": "0.down", "format": "int3", "bits": 3.25, "kl": 1e-3, "measured": True}
    facts = {"chosen": "formats", "budget": "3.5bpw", "reached": "3.48 bits", "tensors": [row]}
    passes = [{"name": "allocate-bits", "count": 1, "seconds": 1.0, "facts": facts}]
    text = read_page(artifact_page(subject(report(passes=passes))).text).section("size").text
    assert "Chosen within 3.5bpw; reached: 3.48 bits" in text
    assert "0.downint33.250.00100measured" in text


def test_activations_that_a_pass_chose() -> None:
    row = {"tensors": "0.down", "bits": 16, "kl": 1e-3, "measured": False}
    facts = {"chosen": "activations", "budget": 1.3, "reached": 1.25, "tensors": [row]}
    passes = [{"name": "allocate-activations", "count": 1, "seconds": 1.0, "facts": facts}]
    text = read_page(artifact_page(subject(report(passes=passes))).text).section("size").text
    assert "Chosen within 1.30 times the multiply-adds; reached: 1.25" in text
    assert "0.down160.00100of the nearest alike" in text


@pytest.mark.parametrize(
    ("name", "value", "bound", "passed", "used"),
    [
        ("kl_mean", 0.001, 0.004, True, 0.25),
        ("kl_mean", 0.006, 0.004, False, 1.5),
        ("decode_speedup", 5.0, 2.5, True, 0.5),
        ("decode_speedup", 2.0, 2.5, False, 1.25),
        ("top1_agreement", 0.98, 0.96, True, 0.5),
        ("perplexity_ratio", 1.01, 1.02, True, 0.5),
        ("perplexity_ratio", 0.99, 1.02, True, 0.0),
        ("top1_agreement", 1.0, 1.0, True, 1.0),
        ("kl_mean", 0.001, 0.004, None, None),
        ("kl_mean", 0.001, None, None, None),
        ("kl_mean", 0.0, 0.004, True, None),
    ],
)
def test_what_was_used_of_a_bound(
    name: str, value: float, bound: float | None, passed: bool | None, used: float | None
) -> None:
    found = used_share(value, bound, passed, TEXT_GENERATION.by_name[name].ideal)
    assert found == (None if used is None else pytest.approx(used))


def test_of_several_engines_each_has_a_heading() -> None:
    """Over its divergence, its contexts and its decisions."""

    def named(found: dict[str, Any]) -> list[str]:
        headings = read_page(artifact_page(subject(found)).text).all("h3")
        return [one.text for one in headings if one.text in ("target", "other")]

    several = report()
    assert named(several) == []
    several["evaluation"]["other"] = several["evaluation"]["target"]
    assert named(several) == ["target", "other"] * 3


def test_figures_of_a_lowered_model_are_called_so() -> None:
    found = report()
    figures = found["evaluation"]["target"]
    found["evaluation"] = {"one": {"lowered-onnx": figures}, "two": figures, "three": {}}
    names = [name for name, _ in subject(found).evaluations(ContextsOf)]
    assert names == ["one (on the lowered ONNX)", "two"]
