"""The runtime: continuous batching over an `Executable`. Needs no compile-time package.

`optc.runtime.loader.load` opens an artifact; `optc.runtime.engine.Engine` runs requests on it.
"""
