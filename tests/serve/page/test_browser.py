"""The page in a browser: light and dark, on a phone, its figures, its chat box.

Runs where a Chromium is installed; what stands in the page is tested everywhere.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="the extra 'serve' is not installed")

from optc.serve.page.document import document
from tests.artifact.pages.png import pixels
from tests.runtime.support.artifacts import write_artifact
from tests.serve.page.browser import BROWSER, Tab, browsing
from tests.serve.processes import Server, serving
from tests.serve.toys import TEMPLATE

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

SCHEMES = ("light", "dark")
TILES = "document.querySelectorAll('#tiles dd').length > 0"
SAY = """(() => { document.getElementById('words').value = 'hi';
  document.getElementById('chat').requestSubmit(); })()"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Greedy, so that every answer is the same long one.
    path = write_artifact(
        tmp_path_factory.mktemp("a") / "toy", chat_template=TEMPLATE, generation={"temperature": 0}
    ).path
    with serving(path, "--ttft-ms", "60000", step_s=0.01) as found:
        yield found


def visited(
    folder: Path,
    url: str,
    visit: Callable[[Tab], Awaitable[Any]],
    *,
    width: int = 1200,
    height: int = 1400,
    scheme: str = "light",
) -> Any:
    """The result of a visit of a page, which reports no problem."""

    async def go() -> Any:
        async with browsing(folder) as tab:
            await tab.look(url, width=width, height=height, scheme=scheme)
            found = await visit(tab)
            assert tab.problems == []
            return found

    return asyncio.run(go())


def colours(scheme: str) -> dict[str, Any]:
    blocks = document().partition("<style>")[2].split("@media")
    found = re.findall(r"--(\w+): #(\w{6})", blocks[scheme == "dark"])
    return {name: np.frombuffer(bytes.fromhex(value), np.uint8) for name, value in found}


def share(image: Any, colour: Any) -> float:
    return float((image == colour).all(axis=-1).mean())


async def figures(tab: Tab) -> bytes:
    """A picture once there are figures."""
    await tab.until(TILES)
    await tab.run(SAY)
    await tab.until("document.querySelector('#talk .assistant')?.textContent.length > 4")
    await tab.until("document.querySelectorAll('#charts polyline').length === 3")
    return await tab.screenshot()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_schemes(server: Server, tmp_path: Path, scheme: str) -> None:
    image = pixels(visited(tmp_path, server.url, figures, scheme=scheme))
    wanted, other = colours(scheme), colours("dark" if scheme == "light" else "light")
    assert share(image, wanted["page"]) > 0.5
    assert share(image, other["page"]) < 0.001
    assert share(image, wanted["panel"]) > 0.02
    assert share(image, wanted["accent"]) > 0.0002


def test_a_phone(server: Server, tmp_path: Path) -> None:
    async def visit(tab: Tab) -> list[Any]:
        await figures(tab)
        wide = "document.documentElement.scrollWidth"
        tall = "document.getElementById('send').getBoundingClientRect().height"
        return [await tab.run(wide), await tab.run(tall)]

    scroll, button = visited(tmp_path, server.url, visit, width=360, height=740)
    assert scroll == 360, "nothing is wider than the window"
    assert button >= 40, "a thumb meets it"


def test_the_chat_box_streams_and_figures_follow(server: Server, tmp_path: Path) -> None:
    async def visit(tab: Tab) -> dict[str, Any]:
        await tab.until(TILES)
        await tab.run(SAY)
        await tab.until("document.querySelector('#talk .assistant')?.textContent.length > 0")
        early = await tab.run("document.querySelector('#talk .assistant').textContent.length")
        await tab.until("!document.getElementById('send').disabled")
        await tab.until("document.querySelector('#latencies td').textContent.endsWith('s')")
        texts = "[...document.querySelectorAll('{}')].map((one) => one.textContent)"
        return {
            "early": early,
            "talk": await tab.run(texts.format("#talk p")),
            "tiles": await tab.run(texts.format("#tiles dt")),
            "figures": await tab.run("document.getElementById('figures').textContent"),
            "state": await tab.run("document.getElementById('state').textContent"),
        }

    found = visited(tmp_path, server.url, visit)
    assert found["talk"][0] == "hi"
    assert 0 < found["early"] < len(found["talk"][1]), "it came bit by bit"
    assert re.fullmatch(r"\d+ tokens, first after .*\sm?s, .*\stok/s", found["figures"])
    assert {"output", "goodput", "running", "queue", "KV use", "drafts accepted"} <= {
        *found["tiles"]
    }
    assert found["state"] == "ready"


def test_stop_ends_an_answer_and_clear_forgets(server: Server, tmp_path: Path) -> None:
    async def visit(tab: Tab) -> list[Any]:
        await tab.until(TILES)
        await tab.run(SAY)
        await tab.until("document.querySelector('#talk .assistant') !== null")
        await tab.run("document.getElementById('stop').click()")
        await tab.until("!document.getElementById('send').disabled")
        last = await tab.run("document.querySelector('#talk p:last-child').textContent")
        await tab.run("document.getElementById('clear').click()")
        return [last, await tab.run("document.querySelectorAll('#talk p').length")]

    assert visited(tmp_path, server.url, visit) == ["stopped", 0]


def test_a_server_with_keys_asks_for_one(server: Server, tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "toy", chat_template=TEMPLATE).path

    async def visit(tab: Tab) -> str:
        await tab.until("!document.getElementById('key-form').hidden")
        await tab.run(
            "document.getElementById('key').value = 'sk-one';"
            "document.getElementById('key-form').requestSubmit()"
        )
        await tab.until("document.getElementById('key-form').hidden")
        tab.problems[:] = [one for one in tab.problems if "401" not in one]
        found: str = await tab.run("document.getElementById('state').textContent")
        return found

    with serving(artifact, OPTC_API_KEY="sk-one") as guarded:
        assert visited(tmp_path, guarded.url, visit) == "ready"
