"""Benchmarks of replicas, one module each, and their shared parts."""
