"""From a `Program` to a shared library, in a process of its own."""
