"""What commands that judge have in common: their options, and the files they write for CI."""
