"""Options of a compile into tensors: a recipe, with its part for each model, and its engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from optc.backend import Backend, TensorsBuilder
from optc.compiling.ladder.members import Member
from optc.compiling.recipes.part import PartRecipe
from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.compiling.resolving.engines import EngineTarget, kinds_of, parse_engines
from optc.errors import InputError, UnsupportedError
from optc.ir.pipeline.instruments import dump_to
from optc.system.options import AUTO, CompileOptions

if TYPE_CHECKING:
    from optc.ir.pipeline.instruments import Instrument

#: Options of a compile that models of named tensors have, too.
_TAKEN = frozenset(
    {"recipe", "output", "backend", "target", "set", "gate", "calibration"}
    | {"no_gates", "force", "keep_failed", "max_ram", "dump_dir", "allow_unmeasured"}
)
#: Those that only `AUTO` has.
_OF_AUTO = frozenset({"objective", "ladder"})


@dataclass(frozen=True)
class PartsOptions:
    """A recipe for a model of named tensors.

    Attributes:
        asked: By the user.
        recipe: Of all parts.
        engines: Targets; one engine of each part for every one.
    """

    asked: CompileOptions
    recipe: Recipe
    engines: Sequence[EngineTarget]

    @classmethod
    def of(cls, asked: CompileOptions, recipe: Recipe) -> PartsOptions:
        """A recipe with the engines that are asked for; where those are of other backends, the
        recipe's other one.

        Raises:
            UnsupportedError: A backend builds none of named tensors.
        """
        engines = parse_engines(asked.backend, asked.target, recipe.backend)
        for one in engines:
            tensors_builder(one.backend)
        if recipe.otherwise and any(one.backend.name != recipe.backend for one in engines):
            recipe = load_recipe(recipe.otherwise, sets=asked.set, gates=asked.gate)
        return cls(asked, _adapted(recipe, engines, asked), engines)

    @classmethod
    def of_member(cls, member: Member) -> PartsOptions:
        """A recipe of a ladder, whose other one is a member, too.

        Raises:
            UnsupportedError: It is for another backend than the one that is asked for.
        """
        recipe = load_member(member)
        found = cls.of(member.asked, replace(recipe, otherwise=""))
        others = [e.backend.name for e in found.engines if e.backend.name != recipe.backend]
        if recipe.otherwise and others:
            raise UnsupportedError(f"is for the backend {recipe.backend}, not {others[0]}")
        return found

    def otherwise(self) -> PartsOptions:
        """The recipe's other one, with its own backend."""
        asked = self.asked
        recipe = load_recipe(self.recipe.otherwise, sets=asked.set, gates=asked.gate)
        engines = parse_engines(None, asked.target, recipe.backend)
        return replace(self, recipe=_adapted(recipe, engines, asked), engines=engines)

    def own_part(self, key: str) -> PartRecipe | None:
        """The recipe's part for one half, if it counts."""
        return self.recipe.own_parts(self.asked.backend).get(key)

    def unavailable(self, backend: Backend) -> str:
        """Why the backend builds nothing here for one of the targets; empty if it does for all."""
        reasons = [backend.available(), *(backend.takes(one.target) for one in self.engines)]
        return next(filter(None, reasons), "")

    def dumps(self, name: str) -> Sequence[Instrument]:
        """Dumps of graphs, in a folder of that name, if they are asked for."""
        folder = self.asked.dump_dir
        return [] if folder is None else [dump_to(Path(folder) / name)]


def _adapted(recipe: Recipe, engines: Sequence[EngineTarget], asked: CompileOptions) -> Recipe:
    """The recipe with what these engines want of it; ``--set`` has the last word."""
    return recipe.for_kinds(kinds_of(engines), [text.partition("=")[0] for text in asked.set])


def tensors_builder(backend: Backend) -> TensorsBuilder:
    """The backend as a builder of engines of named tensors.

    Raises:
        UnsupportedError: It builds none.
    """
    if isinstance(backend, TensorsBuilder):
        return backend
    raise UnsupportedError(
        "builds no engines of named tensors",
        where=f"backend {backend.name}",
        hint="--backend onnxruntime does",
    )


def check_taken(asked: CompileOptions) -> None:
    """Check that no option concerns decoders of text.

    Raises:
        InputError: One does.
    """
    defaults = CompileOptions()
    taken = _TAKEN | _OF_AUTO if asked.recipe == AUTO else _TAKEN
    for one in fields(CompileOptions):
        if one.name not in taken and getattr(asked, one.name) != getattr(defaults, one.name):
            auto = one.name in _OF_AUTO
            raise InputError(
                f"is for --recipe {AUTO}"
                if auto
                else "concerns decoders of text, and the model is none",
                where=f"--{one.name.replace('_', '-')}",
                hint="leave it out",
            )


def load_member(member: Member) -> Recipe:
    """A recipe of a ladder, with what is asked of it."""
    return load_recipe(member.source, sets=member.asked.set, gates=member.asked.gate)


def load_tensor_recipe(
    asked: CompileOptions,
    kind: str,
    hint: str = "optc recipes lists those for the model's task, such as tensors-fp32",
) -> Recipe:
    """The recipe that is asked for, of a model that is no decoder of text.

    Raises:
        InputError: The recipe is for another task than ``kind``; then ``hint`` says what to do.
    """
    recipe = load_recipe(asked.recipe, sets=asked.set, gates=asked.gate)
    if recipe.task != kind:
        raise InputError(
            f"the recipe {recipe.name!r} is for the task {recipe.task!r}",
            where="--recipe",
            hint=hint,
        )
    return recipe
