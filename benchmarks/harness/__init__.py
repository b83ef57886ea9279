"""What the benchmarks share: data, engines, workers, rounds, statistics, reports."""
