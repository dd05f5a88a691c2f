"""Guards that every request passes before its route: log, keys, hosts."""
