"""``optc run --input FILE --output FILE``: a file of requests becomes a file of answers."""
