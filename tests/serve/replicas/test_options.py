"""What users say of replicas."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.serve.replicas.options import ReplicaOptions, parse_replicas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("replicas=2", ReplicaOptions(2, 2)),
        ("replicas=1-4,cpus=3", ReplicaOptions(1, 4, 3)),
        ("gpus=1,replicas=8", ReplicaOptions(8, 8, None, 1)),
    ],
)
def test_options_are_read(text: str, options: ReplicaOptions) -> None:
    assert parse_replicas(text, "--ray") == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2",
        "replicas=",
        "replicas=0",
        "replicas=3-2",
        "replicas=-1",
        "replicas=1-2-3",
        "replicas=2,cpus=0",
        "replicas=2,cpus=x",
        "replicas=2,cpus",
        "replicas=2,threads=1",
        "replicas=2,replicas=3",
        "replicas=²",
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError) as it:
        parse_replicas(text, "--ray")
    assert repr(text) in str(it.value)
    assert "replicas=1-4" in it.value.hint


def test_a_machine_is_divided() -> None:
    assert ReplicaOptions(1, 4).share(16) == 4
    assert ReplicaOptions(4, 4).share(2) == 1
    assert ReplicaOptions(4, 4, 3).share(2) == 3
