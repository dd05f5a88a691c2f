"""Options that commands and functions share: each is declared once, with all that is said of it."""

from optc.system.options.compile_options import AUTO, PLANNED, Auto, CompileOptions
from optc.system.options.option import Option, options_of

__all__ = ["AUTO", "PLANNED", "Auto", "CompileOptions", "Option", "options_of"]
