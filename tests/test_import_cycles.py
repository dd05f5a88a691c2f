"""No module imports one that imports it, and each of the core can be the first that is imported."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter

import grimp

#: Imports each module that stdin names in a fork of a process that has none of them.
_EACH_FIRST = """
import importlib, os, sys
import numpy, onnx_ir
failed = []
for name in sys.stdin.read().split():
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    failed += [name] if os.waitpid(child, 0)[1] else []
sys.exit(len(failed))
"""


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("optc", exclude_type_checking_imports=False)


def _is_first(name: str) -> bool:
    """True of what others may import before anything else of optc: top level, and the ground."""
    return name != "optc.__main__" and (
        name.count(".") == 1 or name.startswith(("optc.system.", "optc.artifact.tasks"))
    )


def test_imports_make_no_circle() -> None:
    graph = _graph()
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imports).prepare()  # a circle is a CycleError that names it


def test_every_module_of_the_core_can_be_imported_first() -> None:
    names = sorted(n for n in _graph().modules if _is_first(n))
    assert "optc.backend" in names
    found = subprocess.run(
        [sys.executable, "-c", _EACH_FIRST],
        input="\n".join(names),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, "")


#: Rooms that import each other, of those that lie beside each other or further apart: a newcomer
#: cannot say which is below. None may join them.
PAIRS = {
    ("optc.backends.tvm.compiling", "optc.backends.tvm.measuring"),
    ("optc.backends.tvm.loaded", "optc.backends.tvm.replay"),
    ("optc.backends.tvm.loaded", "optc.backends.tvm.weights"),
    ("optc.importer.adapted", "optc.importer.folders"),
    ("optc.importer.conversion", "optc.importer.gguf"),
    ("optc.serve.guards", "optc.serve.messages"),
}


def test_rooms_that_import_each_other_become_no_more() -> None:
    graph = _graph()
    packages = {name for name in graph.modules if graph.find_children(name)}

    def room(name: str) -> str:
        return name if name in packages else name.rpartition(".")[0]

    arrows = {
        (room(name), room(read))
        for name in graph.modules
        for read in graph.find_modules_directly_imported_by(name)
    }
    found = {
        (a, b)
        for a, b in arrows
        if a < b and (b, a) in arrows and not b.startswith(f"{a}.") and a != "optc"
    }
    assert found == PAIRS
