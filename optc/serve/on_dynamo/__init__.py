"""A worker of NVIDIA Dynamo: its frontend speaks HTTP and encodes, the engine here gives tokens."""
