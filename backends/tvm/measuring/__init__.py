"""The limits of the machine, and the shares of a step's time."""
