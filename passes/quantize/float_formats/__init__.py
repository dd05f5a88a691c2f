"""Types of few bits with scales: their values, the search for scales, rounding plainly or by GPTQ.

`formats` says what they are, `rows` rounds to them; `block_fp4` and `codebook` write operators.
"""
