"""Shared parts of the benchmarks: data, engines, workers, rounds, statistics, reports."""
