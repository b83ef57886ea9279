"""The benchmarks of Bedform against its peers; run as `python -m benchmarks NAME`."""
