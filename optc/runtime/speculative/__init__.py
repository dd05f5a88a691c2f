"""Speculation: proposers draft tokens, the model checks them all in one step.

Output is token for token that of plain decoding, whatever is drafted (`verifier`).
"""
