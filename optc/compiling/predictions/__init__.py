"""What a compile will give and take, before it runs: bytes of the artifact, and time."""
