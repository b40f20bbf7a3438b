"""Make the data files of the benchmarks from images that you have: ``python -m benchmarks.data``."""
