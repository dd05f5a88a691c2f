"""``optc replay`` of what a server of the toy has answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

from optc import registry
from optc.runtime.executable.executable import Executable, StepInterface
from tests.cli.conftest import CHAT_TEMPLATE, Optc
from tests.cli.test_docs import check, rows, spelled
from tests.runtime.receipts.toys import PartingExecutable
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.serve.processes import serving

PARTING = 8


class PartingBackend(ToyBackend):
    """Its engines differ from the toy from a position on."""

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        return PartingExecutable(spec, PARTING)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An artifact, and the log of what a server of it has answered."""
    folder = tmp_path_factory.mktemp("a")
    artifact = write_artifact(folder / "toy", chat_template=CHAT_TEMPLATE).path
    log = folder / "receipts.jsonl"
    with serving(artifact, "--receipts", log) as server:
        with httpx2.Client(base_url=server.url) as http:
            for text in ("a", "bc", "some longer words"):
                body = {"prompt": text, "max_tokens": 6, "ignore_eos": True, "n": 2}
                assert http.post("/v1/completions", json=body).status_code == 200
        server.terminate()
        assert server.ended()[0] == 0
    return artifact, log


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "backend", {"toy": PartingBackend()}.__getitem__)


def test_the_same_artifact(optc: Optc, served: tuple[Path, Path]) -> None:
    artifact, log = served
    outcome = optc("replay", log, "--artifact", artifact)
    assert outcome.code == 0, outcome.err
    assert "3 requests, 6 answers: 6 the same, 0 changed; 100 % of the tokens" in outcome.out
    values = optc("replay", log, "--artifact", artifact, "--json").json
    assert (values["same"], values["changed"], values["tokens"]) == (6, 0, 36)
    assert values["recorded"] == [values["artifact"]]
    assert (values["changes"], values["warnings"]) == ([], [])


@pytest.mark.usefixtures("another")
def test_another_artifact(optc: Optc, served: tuple[Path, Path]) -> None:
    artifact, log = served
    outcome = optc("replay", log, "--artifact", artifact, "--json")
    assert outcome.code == 4
    values = outcome.json
    assert values["error"]["kind"] == "changed"
    assert f"{values['changed']} of 6 answers changed" in values["error"]["message"]
    assert values["changed"] == len(values["changes"]) > 0
    lengths = {n: len(json.loads(t)["prompt"]) for n, t in enumerate(log.open(), 1)}
    for change in values["changes"]:
        assert change["parted_at"] >= max(0, PARTING + 1 - lengths[change["line"]])
        assert change["before"] == {"tokens": 6, "finish_reason": "length"}
    shown = optc("replay", log, "--artifact", artifact)
    assert "parts at token" in shown.out
    assert "answers changed" in shown.err
    allowed = optc("replay", log, "--artifact", artifact, "--allow-changed", "1")
    assert allowed.code == 0


@pytest.mark.usefixtures("another")
def test_keys_of_the_page(optc: Optc, served: tuple[Path, Path], tmp_path: Path) -> None:
    artifact, log = served
    lines = log.read_text().splitlines()
    wrong = {**json.loads(lines[0]), "prompt": [100_000]}
    adapted = {**json.loads(lines[0]), "adapter": "sql"}
    texts = json.loads(lines[2])
    texts["answers"] = [{**one, "text": "words"} for one in texts["answers"]]
    changed = tmp_path / "log"
    changed.write_text("".join(f"{json.dumps(one)}\n" for one in (texts, wrong, adapted)))
    arguments = ("--artifact", artifact, "--allow-changed", "1", "--json")
    values = optc("replay", changed, *arguments).json
    assert values["skipped"] == {"sql": 1}
    assert [one["line"] for one in values["refused"]] == [2]
    values["skipped"] = {}
    check("replay", [spelled(values)], rows()["run"])  # the engine
    outcome = optc("replay", changed, "--artifact", artifact)
    assert (outcome.code, "1 requests are refused" in outcome.err) == (4, True)
    assert "no --adapter sql" in outcome.out


def test_parts_of_a_log(optc: Optc, served: tuple[Path, Path]) -> None:
    artifact, log = served
    limited = optc("replay", log, "--artifact", artifact, "--limit", "2", "--json").json
    assert limited["requests"] == 2
    outcome = optc("replay", log, "--artifact", artifact, "--model", "other")
    assert outcome.code == 2
    assert "holds no receipts to replay" in outcome.err


def test_another_tokenizer_is_named(optc: Optc, served: tuple[Path, Path], tmp_path: Path) -> None:
    other = write_artifact(tmp_path / "other", special="<begin>").path
    values = optc("replay", served[1], "--artifact", other, "--json").json
    assert "of another tokenizer.json" in values["warnings"][0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--adapter", "sql"), "'sql' is no adapter (NAME=FOLDER)"),
        (("--allow-changed", "2"), "--allow-changed"),
    ],
)
def test_wrong_options(
    optc: Optc, served: tuple[Path, Path], options: tuple[str, ...], message: str
) -> None:
    outcome = optc("replay", served[1], "--artifact", served[0], *options)
    assert outcome.code == 2
    assert message in outcome.err


def test_texts_without_receipts(optc: Optc, served: tuple[Path, Path]) -> None:
    outcome = optc("serve", served[0], "--receipts-text")
    assert outcome.code == 2
    assert "changes nothing without --receipts FILE" in outcome.err
