"""No module imports one that imports it, annotations included."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp


def test_imports_make_no_circle() -> None:
    graph = grimp.build_graph("optc", exclude_type_checking_imports=False)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imports).prepare()  # a circle is a CycleError that names it
