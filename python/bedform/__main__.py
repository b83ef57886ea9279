"""``python -m bedform`` is the command line."""

from .cli import main

main()
