"""Models by name: ``org/name`` or ``org/name@revision`` of the Hugging Face Hub.

huggingface_hub does the work: its cache, tokens (``hf auth login``, ``HF_TOKEN``), offline mode
(``HF_HUB_OFFLINE=1``) and endpoint (``HF_ENDPOINT``). Only files that a compile reads are
downloaded, and Python code only where it may run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.errors import InputError, OptcError, UnavailableError, UnsupportedError
from optc.importer.checkpoint import INDEX, INDEX_SUFFIX, SINGLE, named_weights, shard_names
from optc.importer.config import CONFIG_FILE
from optc.importer.pickled import tensors as pickled
from optc.importer.quantized.settings import MODELOPT_FILE
from optc.importer.tokenizer_files import MORE_TEMPLATES, TOKENIZER_FILES
from optc.system.foreign.errors import foreign_errors
from optc.system.logs.logger import logger
from optc.system.progress import Progress, no_progress
from optc.system.sources.adapter import CONFIG_FILE as ADAPTER_CONFIG
from optc.system.sources.adapter import WEIGHTS_FILES as ADAPTER_WEIGHTS
from optc.system.sources.address import check_address
from optc.system.sources.recognize import HUB_NAME, of_hub, refusal, refusal_without_config

if TYPE_CHECKING:
    from huggingface_hub.utils import tqdm

_SMALL = (
    CONFIG_FILE,
    INDEX,
    pickled.INDEX,
    MODELOPT_FILE,
    *TOKENIZER_FILES,
    f"{MORE_TEMPLATES}/*.jinja",
    ADAPTER_CONFIG,
    *ADAPTER_WEIGHTS,
)
_MIB = 1 << 20
#: Bytes of a file whose size the server did not say, or said wrongly.
_UNSAID = 256 << 20
_LOG = logger(__name__)


@dataclass(frozen=True)
class HubModel:
    """A model of the Hub.

    Attributes:
        repo: ``org/name``.
        revision: A branch, tag or commit.
        code: Python code is wanted too.
    """

    repo: str
    revision: str = "main"
    code: bool = False

    def fetch_small(self) -> Path:
        """The snapshot in the cache, with all files but weights, those of an adapter excepted: what
        a compile looks at before it begins. Without the Hub it is the one that is in the cache.

        Raises:
            InputError: There is no such model or revision, or it is not for everybody.
            UnavailableError: The Hub cannot be reached, and the cache does not have it.
        """
        from huggingface_hub import snapshot_download

        wanted = [*_SMALL, *(["*.py"] if self.code else [])]
        with self._errors():
            folder = snapshot_download(
                self.repo, revision=self.revision, allow_patterns=wanted, tqdm_class=_silent()
            )
        if not any((Path(folder) / name).is_file() for name in (CONFIG_FILE, ADAPTER_CONFIG)):
            raise refusal_without_config(str(self), self._names())
        return Path(folder)

    def _names(self) -> list[str]:
        """Of all files of the model, as of a folder."""
        from huggingface_hub import HfApi

        with self._errors():
            found = HfApi().list_repo_files(self.repo, revision=self.revision)
        folders = {f"{name.partition('/')[0]}/" for name in found if "/" in name}
        return sorted({*found, *folders} - {".gitattributes"})

    def fetch_files(self, names: Collection[str], progress: Progress = no_progress) -> Path:
        """The snapshot in the cache, with those of the files ``names`` that the Hub has.

        Raises:
            InputError, UnavailableError: As `fetch_small`.
        """
        from huggingface_hub import snapshot_download

        progress(f"download {self}", 0, 0)
        with self._errors():
            folder = snapshot_download(
                self.repo,
                revision=self.revision,
                allow_patterns=list(names),
                tqdm_class=_silent(),
            )
        return Path(folder)

    def fetch_weights(self, folder: Path, progress: Progress = no_progress) -> None:
        """Download the files of weights of the snapshot in ``folder`` that are not there: those
        that transformers would take.

        Raises:
            UnsupportedError: The model has none that are read.
            InputError, UnavailableError: As `fetch_small`.
        """
        named = named_weights(folder)
        if named is not None:
            self._fetch_one(named, folder, progress)
            if named.endswith(INDEX_SUFFIX):
                self._fetch_shards(folder / named, progress)
            return
        missing: OptcError | None = None
        for single, index in ((SINGLE, INDEX), (pickled.SINGLE, pickled.INDEX)):
            try:  # before the shards of an index, as transformers does
                self._fetch_one(single, folder, progress)
                return
            except (UnsupportedError, UnavailableError) as error:
                missing = missing or error
            if (folder / index).is_file():
                self._fetch_shards(folder / index, progress)
                return
        if isinstance(missing, UnavailableError):
            raise missing
        raise refusal(str(self), self._names()) from missing

    def _fetch_shards(self, index: Path, progress: Progress) -> None:
        for name in shard_names(index):
            self._fetch_one(name, index.parent, progress)

    def _fetch_one(self, name: str, folder: Path, progress: Progress) -> None:
        from huggingface_hub import hf_hub_download

        if (folder / name).is_file():
            return
        _LOG.info("%s: downloading %s", self, name)
        with self._errors(name):
            hf_hub_download(
                self.repo,
                name,
                revision=folder.name,
                tqdm_class=_telling(progress, f"download {name}, MiB"),
            )

    def __str__(self) -> str:
        return self.repo if self.revision == "main" else f"{self.repo}@{self.revision}"

    @contextmanager
    def _errors(self, file: str = CONFIG_FILE) -> Iterator[None]:
        """Exceptions of huggingface_hub while it gets ``file`` become errors of optc; those at an
        answer that no Hub gives are written nowhere."""
        from huggingface_hub import constants

        problem = f"{constants.ENDPOINT}, asked for the model's files, gives no answer of a Hub"
        hint = "is HF_ENDPOINT a Hub, and does a proxy ask for a login? then try again"
        with foreign_errors(str(self), problem, hint), self._known_errors(file):
            yield

    @contextmanager
    def _known_errors(self, file: str) -> Iterator[None]:
        from huggingface_hub import errors

        where = str(self)
        try:
            yield
        except errors.GatedRepoError as error:
            page = f"https://huggingface.co/{self.repo}"
            hint = f"accept its terms at {page}, then 'hf auth login' or HF_TOKEN"
            raise InputError("the model is gated", where=where, hint=hint) from error
        except errors.RepositoryNotFoundError as error:
            raise InputError(
                "no such model folder, and no such model on the Hugging Face Hub",
                where=where,
                hint="if it is private: 'hf auth login' or HF_TOKEN",
            ) from error
        except errors.RevisionNotFoundError as error:
            raise InputError(
                f"the model has no revision {self.revision!r}",
                where=where,
                hint="a branch, a tag or a commit",
            ) from error
        except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
            raise self._unreachable() from error
        except errors.EntryNotFoundError as error:
            raise UnsupportedError(
                f"the model has no {file}",
                where=where,
                hint="is the model complete on the Hub?",
            ) from error
        except errors.HfHubHTTPError as error:
            text = str(error).splitlines()[0]
            raise UnavailableError(f"the Hub refuses: {text}", where=where) from error

    def _unreachable(self) -> UnavailableError:
        """The error where the cache does not have the model, and the Hub is not asked or silent."""
        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE:
            problem, first = "HF_HUB_OFFLINE keeps optc off the Hub", "unset HF_HUB_OFFLINE"
        else:
            problem = f"the Hub ({constants.ENDPOINT}) cannot be reached"
            first = "check the network and HF_ENDPOINT"
        return UnavailableError(
            f"no such model folder, the Hugging Face cache does not have the model, and {problem}",
            where=str(self),
            hint=f"{first}; or where there is a network: hf download {self.repo} --local-dir "
            f"{self.repo.split('/')[1]}; then give that folder",
        )


def hub_model(given: str | Path, *, code: bool = False) -> HubModel | None:
    """The model of the Hub that ``given`` names; None where it is a path.

    Raises:
        InputError: It is an address, such as of a page.
    """
    check_address(given)
    found = HUB_NAME.fullmatch(str(given))
    if found is None or not of_hub(given):
        return None
    return HubModel(found["repo"], found["revision"] or "main", code)


def local_model(given: str | Path, *, code: bool = False, progress: Progress = no_progress) -> Path:
    """The folder of a model, downloaded with its weights where ``given`` names one of the Hub.

    Raises:
        InputError, UnsupportedError, UnavailableError: As `HubModel`.
    """
    model = hub_model(given, code=code)
    if model is None:
        return Path(given)
    folder = model.fetch_small()
    if (folder / CONFIG_FILE).is_file():  # else an adapter, which is whole
        model.fetch_weights(folder, progress)
    return folder


def local_files(
    given: Path | None, names: Collection[str], progress: Progress = no_progress
) -> Path | None:
    """The folder of what belongs to a model, such as heads that draft for it; downloaded where
    ``given`` names a repository of the Hub. None stays None.

    Raises:
        InputError, UnavailableError: As `HubModel.fetch_small`.
    """
    named = None if given is None else hub_model(given)
    return given if named is None else named.fetch_files(names, progress)


def _silent() -> type[tqdm]:
    """A progress bar that shows nothing: small files take no time worth it."""
    return _telling(no_progress, "")


def _telling(progress: Progress, stage: str) -> type[tqdm]:
    """A class of progress bars that tell ``progress`` instead of drawing."""
    from huggingface_hub.utils import tqdm

    class Telling(tqdm):
        monitor_interval = 0  # no thread that watches bars, one for each class

        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._done = int(options.get("initial") or 0)
            self._total = int(options.get("total") or 0)
            super().__init__(*arguments, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self._done += int(n or 0)
            if self._done > max(2 * self._total, _UNSAID):
                raise InputError(
                    f"more than {self._done} bytes come where {self._total} were said",
                    where=stage or "download",
                    hint="the server is no Hub, or damaged",
                )
            progress(stage, self._done // _MIB, max(self._total // _MIB, self._done // _MIB))

    return Telling
