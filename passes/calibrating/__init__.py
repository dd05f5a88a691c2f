"""What passes have in common that learn from a text: reading it, finding results again, costs."""
