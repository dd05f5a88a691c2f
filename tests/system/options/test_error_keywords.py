"""Errors of functions name keywords where those of commands name flags."""

from __future__ import annotations

from pathlib import Path

import pytest

import optc
from optc.cli.main import run
from optc.errors import InputError
from optc.system.options import CompileOptions
from optc.system.options.error_keywords import keywords, with_keywords
from optc.system.options.option import flag_name, options_of

#: Wrong values, and the words of the function's error.
WRONG = {
    "gate": ("kl_mean", "gate: 'kl_mean' is not name=bound"),
    "set": ("bits", "set: 'bits' is not pass.option=value"),
    "recipe": ("int4", "recipe: unknown recipe 'int4' (did you mean 'int4-fast' or 'int4-fused'?)"),
    "max_ram": ("much", "max_ram: 'much' is not a size"),
    "backend": ("none", "backend"),
    "budget": ("much", "budget: "),
    "eval_text": ("absent", "eval_text: no such file"),
    "calibration": ("absent", "calibration: no such file"),
    "draft": ("absent", "draft: "),
    "objective": ("fast", "objective: the recipe int8-fused is named"),
    "self_draft": ("many", "self_draft: 'many' layers"),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"architectures": ["L"], "model_type": "llama"}')
    (tmp_path / "model.safetensors").write_text("weights")
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("name", WRONG)
def test_functions_name_keywords_and_commands_flags(
    name: str, model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    value, message = WRONG[name]
    with pytest.raises(InputError) as caught:
        optc.compile(model, **{name: value})
    assert message in str(caught.value)
    assert "--" not in str(caught.value)
    if name in ("recipe", "gate", "max_ram", "set"):
        assert run(["compile", str(model), flag_name(name), value]) == 2
        assert f"error: {flag_name(name)}: " in capfd.readouterr().err


def test_every_option_has_its_keyword() -> None:
    for name, one in options_of(CompileOptions).items():
        found = with_keywords(f"leave {flag_name(name)} out")
        assert found == f"leave {name}{'=True' if one.kind == 'flag' else ''} out"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("--max-ram", "max_ram"),
        ("--gate name=bound changes a bound", "gate='name=bound' changes a bound"),
        ("--eval-text FILE judges", "eval_text=FILE judges"),
        ("take --recipe auto", "take recipe='auto'"),
        ("name one: --draft self:bits=2", "name one: draft='self:bits=2'"),
        ("leave out --self-draft or --trained", "leave out self_draft or trained"),
        ("--json and --plain-http", "--json and --plain-http"),
    ],
)
def test_values_behind_a_flag(text: str, found: str) -> None:
    assert with_keywords(text) == found


def test_the_error_is_the_same_one() -> None:
    error = InputError("wrong", where="--gate", hint="see --recipe NAME")

    def fail(number: int) -> int:
        raise error

    with pytest.raises(InputError) as caught:
        keywords(fail)(3)
    assert caught.value is error
    assert str(error) == error.render() == "gate: wrong (see recipe=NAME)"
    assert keywords(lambda number: number + 1)(3) == 4
