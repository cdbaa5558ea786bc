"""Other programs that tests and benchmarks run beside ours."""
