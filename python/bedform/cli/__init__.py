"""The command line: ``bedform COMMAND``.

Promises
--------
- Data go to stdout, everything else to stderr; ``--json`` makes the data one JSON document.
- Exit code 0 means yes, 1 no or bad data found, 2 an error in use or environment, 130 Ctrl-C.
- An error is one line: the event, the object and the remedy. ``BEDFORM_DEBUG=1`` adds the
  traceback.
- A reader of stdout that closes its end (``| head``) is not an error.

Each command is a module with a ``register(app)``; the logic is in the public Python API. The script
``bedform_command`` starts it.
"""

from ._app import app, run

__all__ = ["app", "run"]
