"""What carrying two runs of the reference through a text takes: products, sums, room for values."""
