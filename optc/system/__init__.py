"""What the operating system lets this process have."""
