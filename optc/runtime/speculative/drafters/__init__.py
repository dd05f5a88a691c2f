"""The drafters: n-grams of the text, lookahead, Medusa heads, and models of their own."""
