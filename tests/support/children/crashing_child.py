"""Stands in for the compiler's process: says something and crashes."""

import os
import sys

if __name__ == "__main__":
    print("before the crash", file=sys.stderr, flush=True)
    os.abort()
