"""Real trained models out of packages that ship them as data (see ``__main__``).

Other benchmarks and tests call `fetch.real_model`; those that need float weights of a GGUF file
call `floats.float_folder`.
"""
