"""``optc replay``: the requests of a log of receipts, on another artifact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.chosen import chosen_json
from optc.cli.options import add_options, stated
from optc.cli.output import figure, json_option, print_json, print_warnings, show
from optc.cli.progress import progress_on_stderr
from optc.errors import InputError, OptcError
from optc.runtime.settings import ServeSettings

if TYPE_CHECKING:
    from optc.runtime.engine import Engine
    from optc.runtime.receipts.receipt import Origin, Receipt
    from optc.runtime.receipts.replay import Replayed
    from optc.system.progress import Progress

_SERVED = ("engine", "threads", "kv_memory", "max_sequences")
#: Changes that are printed without ``--json``.
_SHOWN = 10


class ChangedError(OptcError):
    """More answers changed, or have none any more, than may.

    Args:
        values: Of the command, for the JSON object; ``warnings`` among them.
    """

    kind = "changed"
    exit_code = 4

    def __init__(self, values: Mapping[str, Any]) -> None:
        refused = len(values["refused"])
        more = f", {refused} requests are refused" if refused else ""
        super().__init__(
            f"{values['changed']} of {values['answers']} answers changed{more}",
            where="optc replay",
            hint="--allow-changed SHARE allows some",
        )
        self.details = dict(values)


@dataclass
class _Tally:
    """The counts of a replay so far."""

    requests: int = 0
    answers: int = 0
    without: int = 0
    tokens: int = 0
    same_tokens: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)

    def add(self, one: Replayed) -> None:
        names = {"line": one.line, "request_id": one.receipt.request_id}
        if one.refusal is not None:
            self.refused.append({**names, "reason": one.refusal})
            self.without += len(one.receipt.answers)
            return
        self.requests += 1
        self.answers += len(one.receipt.answers)
        self.changes += [{**names, **change.to_json()} for change in one.changes]
        tokens = sum(answer.marks.tokens for answer in one.receipt.answers)
        lost = sum(max(0, c.before.marks.tokens - c.parted_at) for c in one.changes)
        self.tokens += tokens
        self.same_tokens += tokens - lost

    @property
    def share_changed(self) -> float:
        """Of answers that are others now, or are none."""
        return (len(self.changes) + self.without) / (self.answers + self.without)

    def to_json(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "answers": self.answers,
            "same": self.answers - len(self.changes),
            "changed": len(self.changes),
            "tokens": self.tokens,
            "same_tokens": self.same_tokens,
            "refused": self.refused,
            "changes": self.changes,
        }


@click.command("replay", short_help="Compare an artifact's answers with those of a server's log.")
@click.argument("log", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--artifact", type=ARTIFACT, required=True, metavar="NEW", help="Artifact that answers again."
)
@click.option("--model", metavar="NAME", help="Only requests that named this model [all].")
@click.option(
    "--adapter",
    multiple=True,
    metavar="NAME=FOLDER",
    help="LoRA adapter that requests of the log name; repeated.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N [all].")
@click.option(
    "--allow-changed",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="SHARE",
    help="Number of answers that may change with exit code 0 [0].",
)
@add_options(ServeSettings, *_SERVED)
@json_option
def command(
    log: Path,
    artifact: Path,
    model: str | None,
    adapter: tuple[str, ...],
    limit: int | None,
    allow_changed: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Answer the requests of LOG again, and say which answers change, and at which token.

    LOG is what optc serve --receipts FILE wrote. Answers depend on nothing but the artifact and
    the request, so that the same artifact gives the same answers. Exit code 4 if answers changed.
    """
    from optc import load
    from optc.runtime.receipts.log_file import read_receipts
    from optc.runtime.receipts.origin import origin_of

    adapters = dict(_adapter(text) for text in adapter)
    wanted = _wanted(read_receipts(log), model, adapters.keys())
    total, origins, skipped = _survey(wanted, limit, log)
    settings = ServeSettings(**stated(options, _SERVED), generation_defaults=False)
    with load(artifact, settings) as engine, progress_on_stderr() as progress:
        for name, folder in adapters.items():
            engine.load_adapter(name, folder)
        now = origin_of(engine)
        chosen = _wanted(read_receipts(log), model, adapters.keys())
        taken = islice((one for one in chosen if one[2]), limit)
        tally = _replay(engine, ((line, one) for line, one, _ in taken), total, progress)
        described = chosen_json(engine.info)
    recorded = sorted({one.artifact for one in origins})
    names = {"artifact": now.artifact, "recorded": recorded, "skipped": skipped}
    values = {**described, **names, **tally.to_json()}
    warnings = _other_tokenizers(origins, now)
    if not as_json:
        print_warnings(warnings)
        _print(values)
    if tally.share_changed > allow_changed:
        raise ChangedError({**values, "warnings": warnings})
    if as_json:
        print_json("replay", values, warnings)


def _replay(
    engine: Engine, receipts: Iterable[tuple[int, Receipt]], total: int, progress: Progress
) -> _Tally:
    from optc.runtime.receipts.replay import replay

    tally = _Tally()
    for done, one in enumerate(replay(engine, receipts), 1):
        tally.add(one)
        progress("replay", done, total)
    return tally


def _wanted(
    receipts: Iterator[tuple[int, Receipt]], model: str | None, adapters: Iterable[str]
) -> Iterator[tuple[int, Receipt, bool]]:
    """The receipts of a model, and whether their adapter is there."""
    known = {None, *adapters}
    for line, one in receipts:
        if model is None or one.model == model:
            yield line, one, one.adapter in known


def _survey(
    wanted: Iterator[tuple[int, Receipt, bool]], limit: int | None, log: Path
) -> tuple[int, set[Origin], dict[str, int]]:
    """The number of requests that will be replayed, the engine that answered them, and the numbers
    that are left out for want of an adapter, by its name.

    Raises:
        InputError: There are none.
    """
    count, origins, skipped = 0, set(), Counter[str]()
    for _, one, usable in wanted:
        if usable:
            count += 1
            origins.add(one.origin)
        else:
            skipped[str(one.adapter)] += 1
        if count == limit:
            break
    if not count:
        hint = f"--adapter {next(iter(skipped))}=FOLDER gives its adapter" if skipped else ""
        raise InputError("holds no receipts to replay", where=str(log), hint=hint)
    return count, origins, dict(skipped)


def _other_tokenizers(origins: Iterable[Origin], now: Origin) -> list[str]:
    if all(one.tokenizer == now.tokenizer for one in origins):
        return []
    return ["the log is of another tokenizer.json: the same tokens may be other texts here"]


def _adapter(text: str) -> tuple[str, Path]:
    name, separator, folder = text.partition("=")
    if not (name and separator and folder):
        raise InputError(f"{text!r} is no adapter", where="--adapter", hint="NAME=FOLDER")
    return name, Path(folder)


def _print(values: Mapping[str, Any]) -> None:
    tokens = values["tokens"]
    share = 100 * values["same_tokens"] / tokens if tokens else None
    show(
        f"{values['requests']} requests, {values['answers']} answers: {values['same']} the same, "
        f"{values['changed']} changed; {figure(share)} % of the tokens stand before a change"
    )
    lines = [
        f"line {one['line']}, answer {one['index']}: parts at token {one['parted_at']} of "
        f"{one['before']['tokens']}"
        for one in values["changes"][:_SHOWN]
    ]
    if left := len(values["changes"]) - len(lines):
        lines.append(f"and {left} more, all of them with --json")
    lines += [f"line {one['line']} is refused: {one['reason']}" for one in values["refused"]]
    lines += [
        f"{count} requests are left out: no --adapter {name}"
        for name, count in values["skipped"].items()
    ]
    if lines:
        show(*lines)
