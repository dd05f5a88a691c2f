"""Sampling options are those of the API, with its defaults but for two."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

import optc as package
from optc.cli.commands import chat as chat_command
from optc.cli.commands import run as run_command
from optc.cli.generating.sampling import CHAT_NAMES, DEFAULTS, sampling_options, sampling_params
from optc.runtime.params import SamplingParams
from optc.system.options.option import flag_name, options_of
from tests.cli.conftest import Optc


def flags(command: click.Command) -> set[str]:
    return {o for p in command.params if isinstance(p, click.Option) for o in p.opts}


def parsed(*arguments: str) -> SamplingParams:
    @click.command()
    @sampling_options()
    def command(**options: Any) -> SamplingParams:
        return sampling_params(options)

    found: SamplingParams = command.main(list(arguments), standalone_mode=False)
    return found


def test_every_field_is_an_option() -> None:
    names = {field.name for field in fields(SamplingParams)}
    assert set(options_of(SamplingParams)) == names
    assert {flag_name(name) for name in names} <= flags(run_command.command)
    assert {flag_name(name) for name in CHAT_NAMES} <= flags(chat_command.command)


def test_defaults_are_the_apis_but_for_two() -> None:
    assert parsed() == SamplingParams(temperature=0.0, max_tokens=128)
    assert dict(DEFAULTS) == {"temperature": 0.0, "max_tokens": 128}


def test_each_option_reaches_its_field(tmp_path: Path) -> None:
    lines: dict[str, tuple[str, Any]] = {
        "max_tokens": ("3", 3),
        "temperature": ("0.5", 0.5),
        "top_p": ("0.9", 0.9),
        "top_k": ("-1", -1),
        "min_p": ("0.1", 0.1),
        "typical_p": ("0.2", 0.2),
        "seed": ("0", 0),
        "stop": ("END", ("END",)),
        "stop_token_ids": ("0", (0,)),
        "logprobs": ("0", 0),
        "prompt_logprobs": ("0", 0),
        "repetition_penalty": ("1.1", 1.1),
        "presence_penalty": ("-0.5", -0.5),
        "frequency_penalty": ("0.25", 0.25),
        "logit_bias": ("7=-inf", {7: float("-inf")}),
        "length_penalty": ("0", 0.0),
        "early_stopping": ("true", True),
        "n": ("2", 2),
        "regex": ("a+", "a+"),
        "skip_special_tokens": ("false", False),
    }
    for name, (text, value) in lines.items():
        assert getattr(parsed(flag_name(name), text), name) == value
    assert parsed("--early-stopping", "never").early_stopping == "never"
    assert parsed("--early-stopping", "false").early_stopping is False
    assert parsed("--ignore-eos").ignore_eos
    assert parsed("--beam-width", "2").beam_width == 2
    assert parsed("--choice", "a", "--choice", "b").choice == ("a", "b")
    (tmp_path / "s").write_text('{"type": "null"}')
    assert parsed("--json-schema", str(tmp_path / "s")).json_schema == '{"type": "null"}'
    assert parsed("--grammar", str(tmp_path / "s")).grammar == '{"type": "null"}'
    tested = {*lines, "ignore_eos", "beam_width", "choice", "json_schema", "grammar"}
    assert tested == set(options_of(SamplingParams))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--logit-bias", "5"), "'5' is not a token id and a number, such as 5=-1.5"),
        (("--logit-bias", "a=1"), "'a=1' is not a token id and a number"),
        (("--early-stopping", "maybe"), "'maybe' is not one of 'true', 'false', 'never'"),
        (("--stop-token-ids", "x"), "'x' is not a valid integer"),
    ],
)
def test_wrong_values(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        parsed(*arguments)
    assert message in raised.value.format_message()


def test_several_continuations_and_logprobs(optc: Optc, talker: Path) -> None:
    run = ("run", talker, "--prompt", "hi", "--max-tokens", "3", "--ignore-eos")
    drawn = ("--n", "2", "--temperature", "1", "--seed", "5")
    value = optc(*run, *drawn, "--logprobs", "1", "--json").json
    params = SamplingParams(n=2, seed=5, logprobs=1, max_tokens=3, ignore_eos=True)
    with package.load(talker) as engine:
        (output,) = engine.generate("hi", params)
    assert [one["text"] for one in value["completions"]] == [c.text for c in output.completions]
    assert output.logprobs is not None
    assert [one["logprob"] for one in value["logprobs"]] == pytest.approx(
        [one.logprob for one in output.logprobs], rel=1e-5
    )
    assert [one["top"][0]["token_id"] for one in value["logprobs"]] == [
        one.top[0][0] for one in output.logprobs
    ]
    shown = optc(*run, *drawn).out
    first, second = (c.text for c in output.completions)
    assert shown == f"─ 1\n{first}\n─ 2\n{second}\n"


def test_what_changes_nothing_is_said(optc: Optc, talker: Path) -> None:
    run = ("run", talker, "--prompt", "hi", "--max-tokens", "2")
    refused = optc(*run, "--logprobs", "2")
    assert refused.code == 2
    assert "--logprobs: changes nothing without --json (add --json)" in refused.err
    warning = "--n 3: all are the same at --temperature 0; give a higher one"
    assert f"warning: {warning}\n" in optc(*run, "--n", "3").err
    assert optc(*run, "--n", "3", "--json").json["warnings"] == [warning]
    assert "warning" not in optc(*run, "--n", "3", "--temperature", "1").err
