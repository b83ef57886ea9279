"""The parts of the benchmark `prefetch`, one module each."""
