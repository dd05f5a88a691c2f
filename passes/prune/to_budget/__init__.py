"""Neurons and bits under one budget: which MLPs lose how many neurons, so that bits go further.

`degrees` lists what each MLP may be left with, `losses` says what the model then loses, `joint`
makes one choice of neurons and formats, `wholes` measures choices as a whole; the pass is in
`prune_to_budget`.
"""
