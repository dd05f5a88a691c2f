"""The products, sums and room for values of two runs of the reference through a text."""
