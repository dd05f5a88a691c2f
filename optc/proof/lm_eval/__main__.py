"""``python -m optc.proof.lm_eval``: lm-eval's own command line, which then knows ``--model
optc``."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from optc.errors import OptcError
from optc.system.needs import eval_packages


def main() -> None:
    """Run lm-eval; its options are its own."""
    try:
        with eval_packages():
            import_module("optc.proof.lm_eval.model")  # registers it
            from lm_eval.__main__ import cli_evaluate
        cli_evaluate()
    except OptcError as error:
        click.echo(f"error: {error.render()}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
