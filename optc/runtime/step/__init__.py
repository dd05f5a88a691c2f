"""One step of an engine: its rows, masks, copies of keys and values, and the verdict on drafts."""
