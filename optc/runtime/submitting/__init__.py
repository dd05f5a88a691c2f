"""A request on its way in: prepared in the caller's thread, handed to the engine's."""
