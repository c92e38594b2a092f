"""Studies of methods that courses teach beyond the paper, see `benchmarks.learning.study`."""
