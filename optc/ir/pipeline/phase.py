"""`Phase`, `Effect`: what a pass says of itself, so that nobody needs its name."""

from __future__ import annotations

from enum import Flag, IntEnum, auto


class Phase(IntEnum):
    """The purpose of a pass, in the order in which a recipe usually does it.

    Passes that a compile adds to a recipe (``--budget``, ``--trained``, a draft's pruning) are put
    behind the phases that must come before them. An order that would be wrong is refused by the
    passes themselves (`Pass.before`, `Pass.after`).
    """

    CANONICAL = auto()
    """Finds operators in an exported graph, and leads to the dense form."""
    VOCABULARY = auto()
    """Drops tokens."""
    STRUCTURE = auto()
    """Takes out layers, heads, neurons or channels."""
    SPARSITY = auto()
    """Sets single weights to zero."""
    TRAINED = auto()
    """Brings weights that were trained."""
    BASIS = auto()
    """Scales or rotates weights and what is multiplied with them."""
    STATISTICS = auto()
    """Observes inputs of layers on a text."""
    FORMATS = auto()
    """Chooses formats of weights and activations."""
    CORRECTION = auto()
    """Moves weights so that rounding them loses less."""
    FUSION = auto()
    """Makes one operator of several."""
    CACHE = auto()
    """Leads to a form with a KV cache."""
    ADDITION = auto()
    """Adds what the model has not, such as room for adapters."""
    ROUNDING = auto()
    """Rounds or casts weights."""
    ENGINE = auto()
    """Prepares the graph for one kind of engines."""


class Effect(Flag):
    """Properties of a model behind a pass, and needs of a pass."""

    NONE = 0
    READS_TEXT = auto()
    """It runs the model over a text: it has the options ``text``, ``folder``, ``sha256`` and
    ``cache``, which a compile sets."""
    READS_SAMPLES = auto()
    """It runs the model over samples of its inputs (`optc.proof.reference.tensor_samples`), which a
    compile gives."""
    REMOVES_TOKENS = auto()
    """The model has another vocabulary."""
    REMOVES_WEIGHTS = auto()
    """The model has fewer weights, or some are zero."""
    REBASES_HIDDEN = auto()
    """The last hidden states may have another basis, scale or width."""
    RESCALES_PROJECTIONS = auto()
    """Projections of queries and keys are scaled, for which no adapter was trained."""
    MOVES_KV = auto()
    """Keys and values lie in other channels, scales or layers."""
    TURNS_KV = auto()
    """Keys and values are turned, by matrices that depend on the pass's options alone."""
    KEEPS_PARAMETERS = auto()
    """Every weight is still a parameter of the model's class, rounded or not."""
    MOVES_WEIGHTS = auto()
    """Weights get other names, their rows another order, or several become one."""
    MAKES_EXPERTS = auto()
    """Linear layers become matmuls by head, of which training has no form."""
    QUANTIZES_WEIGHTS = auto()
    """Weights become integers with scales, whose rounding can be trained."""
    SETS_COMPUTE_TYPE = auto()
    """All values become of the type that its option ``dtype`` names."""
