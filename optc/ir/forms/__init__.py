"""Forms of a model: types that check a graph and give its metadata typed (docs/normal-form.md).

A model is in exactly one form. The importer gives an exported graph, ``canonicalize`` makes the
dense form of it, ``kv-cache`` the ragged step, ``kv-slots`` the static-KV form. Passes declare
which forms they take and which one they give, so that an illegal order is refused before anything
runs.
"""
