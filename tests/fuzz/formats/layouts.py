"""OCI layouts and signatures: folders that others may have made, around a toy artifact."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.fuzz.edits import edit_bytes, edit_json
from tests.fuzz.form import FileFormat, Materials, expect, write_files
from tests.fuzz.odd import NUMBERS, TEXTS

_INDEX, _BLOBS = "index.json", "blobs/sha256"
_TITLE = "org.opencontainers.image.title"
_KNOWN: dict[str, list[Any]] = {
    "digest": ["sha256:" + "0" * 64, "sha256:../../x", "sha512:" + "0" * 128, "", 3, "sha256:"],
    "size": [*NUMBERS, "3", None],
    "mediaType": ["", "x/y", None, 3],
    "annotations": [{}, None, [], {_TITLE: 3}, {_TITLE: "manifest.json"}],
    _TITLE: [
        *TEXTS,
        *("manifest.json", "engines", "engines/target", "a/../b", "/x", "a//b", "a/", "é" * 200),
        *("tokenizer/tokenizer.json/x", ".manifest.json", "a\\b", "con"),
    ],
    "manifests": [[], None, {}, [{}], [3]],
    "layers": [[], None, {}, [{}], [3]],
}


class Layouts(FileFormat):
    """Pulls from a layout; the blob that the index names has the bytes of its name."""

    name = "layout"

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        from optc.artifact.store.oci.transfer import open_place, push
        from tests.artifact.toy import write_toy

        with TemporaryDirectory() as name:
            made, layout = write_toy(Path(name) / "made"), Path(name) / "layout"
            push(made, open_place(_reference(layout)))
            self.digest = made.digest
            paths = [path for path in layout.rglob("*") if path.is_file()]
            return [{str(path.relative_to(layout)): path.read_bytes() for path in paths}]

    def targets(self, files: object) -> list[str]:
        assert isinstance(files, dict)
        return [_INDEX, *[name for name in files if files[name].startswith(b'{"annotations"')] * 2]

    def edit(self, random: Random, value: Any) -> Any:
        """As of any files; but what names a changed manifest names it by its new digest."""
        name = random.choice(self.targets(value))
        data = value[name]
        changed = self.edit_file(random, name, data)
        if name == _INDEX or random.random() < 0.1:
            return {**value, name: changed}
        old, new = name.rpartition("/")[2], hashlib.sha256(changed).hexdigest()
        sizes = (f'"size": {len(data)}', f'"size": {len(changed)}')
        index = value[_INDEX].decode("utf-8", "surrogateescape").replace(old, new)
        index = index.replace(*sizes)
        others = {key: one for key, one in value.items() if key != name}
        return {
            **others,
            f"{_BLOBS}/{new}": changed,
            _INDEX: index.encode("utf-8", "surrogateescape"),
        }

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        return edit_json(random, data, _KNOWN)

    def run(self, value: Any) -> None:
        shutil.rmtree(self.folder / "layout", ignore_errors=True)
        write_files(self.folder / "layout", value)
        self.check(self.folder / "layout")

    def check(self, folder: Path) -> None:
        from optc.artifact.store.oci.transfer import open_place, pull

        output = folder.with_name("output")
        shutil.rmtree(output, ignore_errors=True)
        place = open_place(_reference(folder))
        try:
            pulled = pull(place, output, "where")
        except BaseException:
            left = [path.name for path in folder.parent.iterdir() if "output" in path.name]
            expect(not left, "a pull that failed leaves files", left)
            raise
        expect(pulled.artifact.digest == self.digest, "another artifact was pulled", output)


class Signatures(FileFormat):
    """The signature of an artifact, and files beside it; what was changed is never taken."""

    name = "signature"

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        from optc.artifact.trust.keys import PrivateKey
        from optc.artifact.trust.sign import sign
        from tests.artifact.toy import write_toy
        from tests.artifact.trust.keys import write_keys

        with TemporaryDirectory() as name:
            folder = Path(name)
            private, public = write_keys(folder)
            made = write_toy(folder / "made")
            sign(made, PrivateKey(private))
            self.key = public.read_bytes()
            paths = [path for path in made.path.rglob("*") if path.is_file()]
            files = {str(path.relative_to(made.path)): path.read_bytes() for path in paths}
        self.whole = files
        return [files]

    def targets(self, files: object) -> list[str]:
        return ["model.sig"] * 6 + ["provenance.json", "manifest.json", "tokenizer/tokenizer.json"]

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        return edit_json(random, data) if random.random() < 0.8 else edit_bytes(random, data)

    def check(self, folder: Path) -> None:
        from optc.artifact.artifact import Artifact
        from optc.artifact.trust.keys import PublicKey
        from optc.artifact.trust.sign import check_signature
        from optc.artifact.verify import check_files

        key = folder.with_name("key.pub")
        key.write_bytes(self.key)
        opened = Artifact.open(folder, "size")
        check_signature(opened, PublicKey.read(key))
        check_files(opened.path, opened.manifest.files)
        kept = {name: (folder / name).read_bytes() for name in self.whole if name != "model.sig"}
        same = all(data == self.whole[name] for name, data in kept.items())
        expect(same, "changed files hold by their signature", sorted(kept))


def _reference(folder: Path) -> Any:
    from optc.artifact.store.oci.reference import parse_reference

    return parse_reference(f"oci:{folder}:v1", "x")
