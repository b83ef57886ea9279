"""The command line, as ``python -m bedform``."""

from bedform_command import main

main()
