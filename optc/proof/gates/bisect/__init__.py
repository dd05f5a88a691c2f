"""The search for the origin of a divergence: the pass, the node, the tensor."""
