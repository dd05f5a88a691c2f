"""A headless Chromium, driven by its DevTools protocol
(https://chromedevtools.github.io/devtools-protocol/)."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
#: Nothing takes so long unless it hangs.
PATIENCE_S = 240.0


class Tab:
    """An open page.

    Args:
        socket: To it.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.problems: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; exceptions and messages of the console are noted meanwhile."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_str(json.dumps(message))
        while True:
            value = json.loads((await self._socket.receive(PATIENCE_S)).data)
            if value.get("id") == self._number:
                assert "error" not in value, value
                found: dict[str, Any] = value["result"]
                return found
            self._note(value)

    async def run(self, script: str) -> Any:
        """The value of an expression of JavaScript, once its promise is kept."""
        found = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """The value of an expression, once it is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await self.run(script)):
                await asyncio.sleep(0.05)
        return found

    async def look(self, url: str, *, width: int, height: int, scheme: str) -> None:
        """Open a page in a window of this size."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[feature])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        for domain in ("Runtime", "Log", "Page"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def screenshot(self) -> bytes:
        """The visible page as PNG."""
        found = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])

    def _note(self, value: dict[str, Any]) -> None:
        if value.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(value["params"]["exceptionDetails"]))
        elif value.get("method") == "Log.entryAdded":
            self.problems.append(value["params"]["entry"]["text"])


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Tab]:
    """A tab of a new browser, whose files lie in a folder."""
    assert BROWSER is not None
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    ports = ("--remote-debugging-port=0", f"--user-data-dir={folder / 'browser'}", "about:blank")
    process = subprocess.Popen(
        [BROWSER, *options, *ports], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    try:
        lines = await asyncio.to_thread(_until_listening, process)
        address = re.search(r"ws://([^/]+)/", lines)
        assert address is not None, lines
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{address[1]}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            async with session.ws_connect(
                pages[0]["webSocketDebuggerUrl"], max_msg_size=1 << 26
            ) as socket:
                yield Tab(socket)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _until_listening(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    found = ""
    for line in process.stderr:
        found += line
        if "DevTools listening" in line:
            break
    return found
