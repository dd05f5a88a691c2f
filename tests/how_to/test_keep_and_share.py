"""docs/how-to/keep-and-share.md: its commands run as they stand, against a stand-in of ghcr.io.

oras is a program in Go, which neither Debian nor PyPI nor npm has. Its two commands are done here
by what the specifications of OCI say of them.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.artifact.store.oci.test_transfer import contents
from tests.artifact.store.registry import StandIn, running
from tests.cli.conftest import Optc
from tests.how_to.support.console import run_page

HOST = "ghcr.io"
_TYPE = "application/vnd.oci.image.manifest.v1+json"


def _request(url: str, method: str = "GET", data: bytes | None = None) -> tuple[bytes, str]:
    headers = {"Accept": _TYPE, "Content-Type": _TYPE}
    asked = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(asked) as answer:
        return answer.read(), answer.headers.get("Location", "")


def oras(server: StandIn) -> Callable[[list[str]], None]:
    """What ``oras pull REFERENCE -o FOLDER`` and ``oras copy --from-oci-layout`` do."""

    def address(reference: str) -> tuple[str, str]:
        repository, _, tag = reference.removeprefix(f"{HOST}/").partition(":")
        return f"http://{server.host}/v2/{repository}", tag

    def pull(reference: str, folder: Path) -> None:
        base, tag = address(reference)
        for layer in json.loads(_request(f"{base}/manifests/{tag}")[0])["layers"]:
            path = folder / layer["annotations"]["org.opencontainers.image.title"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_request(f"{base}/blobs/{layer['digest']}")[0])

    def copy(layout: str, reference: str) -> None:
        folder, _, tag = layout.partition(":")
        base, target = address(reference)

        def blob(digest: str) -> bytes:
            return (Path(folder) / "blobs" / digest.replace(":", "/")).read_bytes()

        index = json.loads((Path(folder) / "index.json").read_text("utf-8"))["manifests"]
        names = "org.opencontainers.image.ref.name"
        (found,) = [one["digest"] for one in index if one["annotations"][names] == tag]
        manifest = json.loads(blob(found))
        for part in (manifest["config"], *manifest["layers"]):
            place = _request(f"{base}/blobs/uploads/", "POST", b"")[1]
            url = f"http://{server.host}{place}&digest={part['digest']}"
            _request(url, "PUT", blob(part["digest"]))
        _request(f"{base}/manifests/{target}", "PUT", blob(found))

    def run(words: list[str]) -> None:
        match words[1:]:
            case ["pull", reference, "-o", folder]:
                pull(reference, Path(folder))
            case ["copy", "--from-oci-layout", layout, reference]:
                copy(layout, reference)
            case _:
                raise AssertionError(words)

    return run


def test_the_page_runs(optc: Optc, long_talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPTC_STORE", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("DOCKER_CONFIG", str(long_talker))
    with running() as server:

        def ours(words: list[str]) -> None:
            moved = [word.replace(f"{HOST}/", f"{server.host}/") for word in words[1:]]
            done = optc(*moved, "--plain-http")
            assert done.code == 0, done.err

        programs = {"optc": ours, "oras": oras(server)}
        assert run_page("keep-and-share", optc, long_talker, monkeypatch, programs) == 25
    assert sorted(path.name for path in (long_talker / "artifacts").iterdir()) == [
        "model",
        "served",
    ]
    model = contents(long_talker / "artifacts/model")
    assert contents(long_talker / "elsewhere") == contents(long_talker / "again") == model
