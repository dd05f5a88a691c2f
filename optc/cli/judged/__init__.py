"""The common parts of commands that judge: their options, and the files they write for CI."""
