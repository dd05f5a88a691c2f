"""The page loads nothing, and shows what it is sent as text."""

from __future__ import annotations

import base64
import hashlib
import re

from optc.serve.page.document import document, policy
from optc.serve.page.routes import _COUNTERS, _LATENCIES
from tests.serve.conftest import Api

SCRIPT = re.findall(r"<script>(.*?)</script>", document(), re.S)
STYLE = re.findall(r"<style>(.*?)</style>", document(), re.S)


def test_one_file_without_anything_from_elsewhere() -> None:
    text = document()
    assert text.count("<script") == text.count("</script>") == len(SCRIPT) == 1
    assert text.count("<style") == len(STYLE) == 1
    addresses = set(re.findall(r"https?://[^\s\"'`]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a name, which is not loaded"
    assert not re.findall(r"(?:src|srcset|action)=|@import|url\(|\bimport\b", text)
    assert re.findall(r'href="([^"]*)"', text) == ["data:,"]
    assert not re.search(r"\bon[a-z]+=|style=", text), "the policy forbids them"


def test_texts_stay_texts() -> None:
    (script,) = SCRIPT
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert name not in script


def test_the_policy_has_the_hashes_of_what_stands_in_the_page() -> None:
    for (text,), directive in ((SCRIPT, "script-src"), (STYLE, "style-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy()
    assert "default-src 'none'" in policy()
    assert "unsafe" not in policy()


def test_the_script_finds_what_it_looks_for() -> None:
    (script,) = SCRIPT
    asked = set(re.findall(r"byId\(\"([\w-]+)\"\)", script))
    there = set(re.findall(r'\bid="([\w-]+)"', document()))
    assert asked <= there
    labelled = set(re.findall(r'aria-labelledby="([\w-]+)"', document()))
    assert labelled <= there


def test_figures_that_are_drawn_are_sent(api: Api) -> None:
    (script,) = SCRIPT
    drawn = set(re.findall(r"\b(?:after|before)\.([a-z_]+)\b", script)) - {"latencies"}
    drawn |= set(re.findall(r'per\("(\w+)"\)', script))
    drawn |= {name for pair in re.findall(r'after, "(\w+)", "(\w+)"', script) for name in pair}
    (model,) = api.http.get("/status").json()["models"]
    histograms = {"count", "buckets"}
    assert drawn - histograms <= model.keys()
    assert set(re.findall(r"(\w+_s): \"", script)) == set(_LATENCIES) == model["latencies"].keys()
    assert set(_COUNTERS) <= model.keys()


def test_both_schemes_have_all_colours() -> None:
    (style,) = STYLE
    light, dark = (set(re.findall(r"--(\w+):", block)) for block in style.split("@media")[:2])
    assert light == dark >= set(re.findall(r"var\(--(\w+)\)", style))
