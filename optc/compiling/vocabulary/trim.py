"""The vocabulary of a compile, trimmed: its tokenizer, and what the graph and passes need of it.

It lies in a folder as a model's does: ``tokenizer.json``, and ``config.json`` with the new ids of
BOS and EOS, so that passes that read a text with the model's tokenizer read it with this one. With
them is ``kept_ids.json``: the source model's id of each new one.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers
from msgspec import structs

from optc.artifact.manifest import TokenizerEntry
from optc.compiling.judging.reference_model import KEPT_FILE
from optc.compiling.recipes.recipe_additions import with_vocabulary
from optc.compiling.resolving.options import ResolvedOptions
from optc.compiling.resolving.tokenizer import FOLDER, write_tokenizer
from optc.compiling.vocabulary.trim_tokenizer import kept_ids, trimmed
from optc.errors import InputError
from optc.importer.imported import ImportedModel
from optc.ir.pipeline.phase import Effect
from optc.ir.vocabulary import digest_ids, write_ids
from optc.proof.conversations.chat import Chat
from optc.proof.conversations.conversation import Conversation, no_template
from optc.proof.conversations.load import TEMPLATE, artifact_chat
from optc.proof.conversations.read import Document, read_texts
from optc.proof.reference.text import default_documents


@dataclass(frozen=True)
class VocabularyFacts:
    """For the report.

    Attributes:
        kept: Tokens that stay.
        tokens: That the source's tokenizer has.
        text: Where the text is that chose them.
        text_tokens: Of it, by the source's tokenizer.
        heldout_tokens: Of the gates' text, by the source's tokenizer.
        heldout_respelled: Share of them that do not stay.
        heldout_growth: Tokens of the gates' text by the new tokenizer, over ``heldout_tokens``.
    """

    kept: int
    tokens: int
    text: str
    text_tokens: int
    heldout_tokens: int
    heldout_respelled: float
    heldout_growth: float


@dataclass(frozen=True)
class TrimmedVocabulary:
    """The result of trimming, for the stages of a compile.

    Attributes:
        folder: With ``tokenizer/`` as the artifact has it, and the files of the module's docstring.
        entry: For the manifest.
        options: With a recipe whose passes know the vocabulary.
        facts: For the report.
    """

    folder: Path
    entry: TokenizerEntry
    options: ResolvedOptions
    facts: VocabularyFacts

    def write_tokenizer(self, artifact: Path) -> TokenizerEntry:
        """Write the tokenizer's files into an artifact; its entry."""
        shutil.copytree(self.folder / FOLDER, artifact / FOLDER)
        return self.entry

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        return asdict(self.facts)


def trim_vocabulary(
    options: ResolvedOptions, imported: ImportedModel, scratch: Path
) -> TrimmedVocabulary:
    """Choose the tokens that stay by the calibration text, rewrite the tokenizer, and check it.

    Args:
        options: Of the compile; its recipe runs ``vocab-trim``.
        imported: The model.
        scratch: A folder beside the artifact.

    Raises:
        InputError: There is no text or no tokenizer, or a text reads otherwise after trimming.
        UnsupportedError: The tokenizer is of a kind that cannot be trimmed.
    """
    one = next(p for p in options.recipe.pipeline.passes if p.has(Effect.REMOVES_TOKENS))
    at = f"pass {one.name}"
    if options.asked.calibration is None:
        raise InputError(
            "there is no text of a domain whose tokens stay",
            where=at,
            hint="--calibration FILE gives one such as the model will read and write",
        )
    folder = scratch / "vocabulary"
    folder.mkdir()
    entry = write_tokenizer(
        imported.folder,
        imported.tokenizer_files,
        imported.config,
        folder,
        allow_remote_code=options.asked.allow_remote_code,
    )
    if entry is None:
        raise InputError("the model has no tokenizer", where=at, hint="leave the pass out")
    file = folder / entry.files[0]
    source = file.read_text("utf-8")
    chat = artifact_chat(folder, entry)
    documents = _rendered(read_texts(options.asked.calibration), chat)
    heldout = _heldout(options, chat)
    before = tokenizers.Tokenizer.from_str(source)
    counts = _counts(before, documents)
    data = json.loads(source)
    min_count, where = int(vars(one)["min_count"]), str(imported.folder)
    ends = {*entry.eos_token_ids, *([] if entry.bos_token_id is None else [entry.bos_token_id])}
    kept = kept_ids(data, counts, min_count, ends, where)
    file.write_text(json.dumps(trimmed(data, kept, where), ensure_ascii=False), "utf-8")
    after = tokenizers.Tokenizer.from_str(file.read_text("utf-8"))
    _check_round_trip(before, after, [*documents, *heldout], where)
    entry = _renumbered(entry, kept)
    _write_folder(folder, file, entry, kept)
    found = _facts(before, after, kept, counts, heldout)
    facts = replace(found, text=options.asked.calibration.name)
    return TrimmedVocabulary(folder, entry, _with_vocabulary(options, folder, kept), facts)


def _heldout(options: ResolvedOptions, chat: Chat | None) -> list[str]:
    text = options.asked.eval_text
    return default_documents() if text is None else _rendered(read_texts(text), chat)


def _rendered(documents: Iterable[Document], chat: Chat | None) -> list[str]:
    """Texts, and conversations as the model's chat template writes them."""
    found: list[str] = []
    for one in documents:
        if not isinstance(one, Conversation):
            found.append(one)
        elif chat is None:
            raise no_template(one)
        else:
            chat.check_tools(one)
            found.append(chat.render(one, one.messages, generate=False).unmarked.text)
    return found


def _counts(tokenizer: tokenizers.Tokenizer, documents: Sequence[str]) -> Counter[int]:
    found: Counter[int] = Counter()
    for text in documents:
        found.update(tokenizer.encode(text, add_special_tokens=False).ids)
    return found


def _check_round_trip(
    before: tokenizers.Tokenizer, after: tokenizers.Tokenizer, texts: Iterable[str], where: str
) -> None:
    """Every text reads as it did with the tokenizer before: its normalizer may change some."""
    for text in texts:
        read = [
            one.decode(one.encode(text, add_special_tokens=False).ids, skip_special_tokens=False)
            for one in (before, after)
        ]
        if read[0] != read[1]:
            place = next(
                (i for i, (a, b) in enumerate(zip(*read, strict=False)) if a != b),
                min(map(len, read)),
            )
            shown = (one[max(0, place - 20) : place + 20] for one in read)
            raise InputError(
                "with the trimmed tokenizer a text reads {1!r}, not {0!r}".format(*shown),
                where=where,
                hint="take a recipe that keeps all tokens",
            )


def _renumbered(entry: TokenizerEntry, kept: Sequence[int]) -> TokenizerEntry:
    """The entry with new ids of the tokens that begin and end texts, and the list of ids."""
    new = {old: place for place, old in enumerate(kept)}
    return structs.replace(
        entry,
        files=(*entry.files, KEPT_FILE),
        bos_token_id=None if entry.bos_token_id is None else new[entry.bos_token_id],
        eos_token_ids=tuple(new[old] for old in entry.eos_token_ids),
    )


def _write_folder(folder: Path, file: Path, entry: TokenizerEntry, kept: Sequence[int]) -> None:
    write_ids(file.parent, kept)
    write_ids(folder, kept)
    shutil.copyfile(file, folder / file.name)
    eos = next(iter(entry.eos_token_ids), None)
    ids = {"bos_token_id": entry.bos_token_id, "eos_token_id": eos}
    (folder / "config.json").write_text(json.dumps(ids), "utf-8")
    if entry.chat_template:
        shutil.copyfile(folder / entry.chat_template, folder / TEMPLATE)
        names = json.dumps(entry.template_tokens)
        (folder / "tokenizer_config.json").write_text(names, "utf-8")


def _with_vocabulary(
    options: ResolvedOptions, folder: Path, kept: Sequence[int]
) -> ResolvedOptions:
    sha256 = digest_ids(kept)
    recipe, draft = (
        with_vocabulary(one, folder, sha256) for one in (options.recipe, options.draft_recipe)
    )
    candidates = tuple(
        replace(one, recipe=with_vocabulary(one.recipe, folder, sha256))
        for one in options.candidates
    )
    return replace(options, recipe=recipe, draft_recipe=draft, candidates=candidates)


def _facts(
    before: tokenizers.Tokenizer,
    after: tokenizers.Tokenizer,
    kept: Sequence[int],
    counts: Counter[int],
    heldout: Sequence[str],
) -> VocabularyFacts:
    was, now = _counts(before, heldout), _counts(after, heldout).total()
    stays = set(kept)
    gone = sum(number for token, number in was.items() if token not in stays)
    return VocabularyFacts(
        kept=len(kept),
        tokens=before.get_vocab_size(with_added_tokens=True),
        text="",
        text_tokens=counts.total(),
        heldout_tokens=was.total(),
        heldout_respelled=gone / max(was.total(), 1),
        heldout_growth=now / max(was.total(), 1),
    )
