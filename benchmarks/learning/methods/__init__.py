"""What a course teaches beyond the paper: a study a question, see `benchmarks.learning.study`."""
