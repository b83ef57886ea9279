"""Benchmarks of replicas, a module for each, and what they share."""
