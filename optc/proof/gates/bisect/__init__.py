"""Where divergence begins: which pass, which node, which tensor."""
