"""``python -m bedform`` is the command line."""

from bedform_command import main

main()
