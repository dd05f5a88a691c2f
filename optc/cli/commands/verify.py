"""``optc verify``: every byte of an artifact against its manifest, and gates that are open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.cli.artifact_path import ARTIFACT
from optc.cli.options import add_options
from optc.cli.output import (
    byte_text,
    json_option,
    print_json,
    print_warnings,
    reserved_stdout,
    show,
)
from optc.cli.progress import progress_on_stderr
from optc.cli.tables import gates_tables
from optc.errors import InputError
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    from optc.artifact.artifact import Artifact
    from optc.artifact.manifest import Manifest
    from optc.artifact.trust.sign import Signed
    from optc.compiling.judging.verify_gates import VerifiedGates

_PATH = click.Path(path_type=Path)


@click.command("verify", short_help="Check an artifact's files, and gates that are open.")
@click.argument("artifact", type=ARTIFACT)
@click.option("--key", type=_PATH, metavar="FILE", help="Check that this public key signed it.")
@click.option("--gates", "gated", is_flag=True, help="Measure the gates that have no verdict.")
@click.option("--reference", type=_PATH, help="For --gates: the model that was compiled.")
@click.option(
    "--eval-text",
    type=_PATH,
    help="For --gates: evaluation text, .jsonl or plain [a text that ships with optc].",
)
@click.option(
    "--inputs",
    multiple=True,
    type=_PATH,
    metavar="FILE|DIR",
    help="For --gates of models that do not generate text, as of optc compile; repeated.",
)
@add_options(CompileOptions, "allow_remote_code")
@json_option
def command(
    artifact: Path,
    key: Path | None,
    gated: bool,
    reference: Path | None,
    eval_text: Path | None,
    inputs: Sequence[Path],
    allow_remote_code: bool,
    as_json: bool,
) -> None:
    """Check size and sha256 of every file of ARTIFACT; name the first one that differs.

    Checked is also all else that a load would refuse on any machine: what the manifest says of
    every engine, and that no file is opened that it does not list.

    With --key: check, before all else, that optc sign or model_signing signed these files with the
    private key of this one; exit code 5 if not.

    Of a patch, its two files are checked, and with --key who signed them.

    With --gates: measure, on this machine, the gates of engines that could not run where the
    artifact was compiled; exit code 4 if one does not hold or cannot be measured here either.
    """
    from optc.artifact.artifact import Artifact
    from optc.artifact.patches.patch import is_patch
    from optc.artifact.verify import check_files, unlisted_files
    from optc.runtime.loader import artifact_tokenizer

    if is_patch(artifact) and not gated:
        _verify_patch(artifact, key, as_json)
        return
    model = _reference(reference) if gated else None
    opened = Artifact.open(artifact, "size")
    manifest = opened.manifest
    signed = None if key is None else _signature(opened, key)
    with progress_on_stderr() as progress:
        check_files(
            artifact,
            manifest.files,
            whole=True,
            progress=lambda path, count: progress(f"hashed {path}", count, count),
        )
    artifact_tokenizer(opened)  # whose files a load parses, and may refuse
    strangers = unlisted_files(artifact, manifest.files)
    warnings = [f"{name} is not in the manifest" for name in strangers]
    found = None
    if model is not None and manifest.task.face != TEXT_GENERATION.face:
        found = _tensor_gates(opened, model, inputs)
    elif model is not None:
        found = _gates(opened, model, eval_text, allow_remote_code)
    if found is not None:
        warnings += found.warnings
        if not as_json:
            show(*gates_tables([asdict(gate) for gate in found.gates]))
        found.check()
    if as_json:
        values = _values(artifact, manifest, found)
        values |= {} if signed is None else {"signature": signed.to_json()}
        print_json("verify", values, warnings)
        return
    print_warnings(warnings)
    total = sum(entry.bytes for entry in manifest.files)
    click.echo(f"{artifact}: {len(manifest.files)} files, {byte_text(total)}, all as written")
    click.echo(f"digest {manifest.digest}")
    if signed is not None:
        click.echo(f"{signed.files} files signed by the key {signed.key}")


def _verify_patch(folder: Path, key: Path | None, as_json: bool) -> None:
    from optc.artifact.patches.patch import open_patch

    opened = open_patch(folder)
    signed = None
    if key is not None:
        from optc.artifact.trust.keys import PublicKey
        from optc.artifact.trust.sign import check_signed

        signed = check_signed(folder, lambda _: opened.digests, PublicKey.read(key))
    patch = opened.patch
    if as_json:
        values: dict[str, Any] = {"artifact": str(folder), "digest": patch.digest, "ok": True}
        values |= {"files": len(opened.digests), "bytes": patch.changes.bytes}
        print_json("verify", values | ({} if signed is None else {"signature": signed.to_json()}))
        return
    click.echo(f"{folder}: {byte_text(patch.changes.bytes)}, all as written")
    click.echo(f"digest {patch.digest}, from {patch.base} to {patch.result}")
    if signed is not None:
        click.echo(f"{signed.files} files signed by the key {signed.key}")


def _signature(artifact: Artifact, key: Path) -> Signed:
    from optc.artifact.trust.keys import PublicKey
    from optc.artifact.trust.sign import check_signature

    return check_signature(artifact, PublicKey.read(key))


def _reference(given: Path | None) -> Path:
    """The model that ``--gates`` needs; asked for before anything is hashed."""
    if given is None:
        raise InputError(
            "needs the model that the artifact was compiled from",
            where="--gates",
            hint="--reference MODEL",
        )
    return given


def _tensor_gates(artifact: Artifact, reference: Path, inputs: Sequence[Path]) -> VerifiedGates:
    from optc.system.needs import compile_packages

    with compile_packages(), reserved_stdout(), progress_on_stderr() as progress:
        from optc.compiling.tensors.verify import verify_tensor_gates

        return verify_tensor_gates(artifact, reference, inputs, progress)


def _gates(
    artifact: Any, reference: Path, eval_text: Path | None, allow_remote_code: bool
) -> VerifiedGates:
    from optc.system.needs import compile_packages

    with compile_packages(), reserved_stdout(), progress_on_stderr() as progress:
        from optc.compiling.judging.verify_gates import verify_gates

        return verify_gates(
            artifact,
            reference,
            eval_text=eval_text,
            allow_remote_code=allow_remote_code,
            progress=progress,
        )


def _values(artifact: Path, manifest: Manifest, found: VerifiedGates | None) -> dict[str, Any]:
    total = sum(entry.bytes for entry in manifest.files)
    figures = {"ok": True, "files": len(manifest.files), "bytes": total}
    gates = {} if found is None else {"gates": [asdict(gate) for gate in found.gates]}
    return {"artifact": str(artifact), "digest": manifest.digest, **figures, **gates}
