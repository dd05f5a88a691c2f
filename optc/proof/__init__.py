"""The result is proven: it is compared with its source, judged, and its speed is measured."""
