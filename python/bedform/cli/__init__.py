"""The command line: ``bedform COMMAND``.

Promises
--------
- Data go to stdout, everything else to stderr; ``--json`` makes the data one JSON document.
- Exit code 0 means yes, 1 no or bad data found, 2 an error in use or environment, 130 Ctrl-C.
- An error is one line: what happened, to which object, what to do. ``BEDFORM_DEBUG=1`` adds the
  traceback.
- A reader of our output that goes away (``| head``) is not an error.

Each command is a module of its own with a ``register(app)``; the logic is the public Python API's.
The script that starts all this is ``bedform_command``.
"""

from ._app import app, run

__all__ = ["app", "run"]
