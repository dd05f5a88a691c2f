"""KL against bytes of all weights: optc's recipes beside the formats of other tools."""
