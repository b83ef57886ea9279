"""A store as slow as a busy parallel file system, beside the disk as it is."""

BYTES_PER_SECOND, WAIT = 300_000_000, "5 ms"
#: What `BEDFORM_THROTTLE` says for each place.
THROTTLES = {"disk": "", "slow store": f"{BYTES_PER_SECOND // 10**6} MB/s, {WAIT}"}
