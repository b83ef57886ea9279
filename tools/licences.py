"""Check that everything the default build links may be used under Apache-2.0 or MIT.

Reads `cargo metadata`, so it needs no tool beyond cargo. A licence expression passes when one of
its alternatives consists of allowed licences only; a crate without an expression fails.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    # Permissive, like BSD-3-Clause: the licence of bzip2, which its port to Rust keeps.
    "bzip2-1.0.6",
    # Permissive, for data: the list of root certificates, which only other systems build in.
    "CDLA-Permissive-2.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}


def is_allowed(expression: str) -> bool:
    """Return True if an alternative of an SPDX expression needs allowed licences only.

    Parentheses are read as groups of alternatives, which is how crates use them: an ``AND`` of
    groups is allowed if each group is.
    """
    expression = expression.replace("/", " OR ")
    while group := re.search(r"\(([^()]*)\)", expression):
        verdict = "MIT" if is_allowed(group.group(1)) else "refused"
        expression = expression[: group.start()] + verdict + expression[group.end() :]
    return any(
        all(term.strip() in ALLOWED for term in re.split(r"\s+AND\s+", alternative))
        for alternative in re.split(r"\s+OR\s+", expression)
    )


def main() -> int:
    """Print one line per crate that fails, and a count."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603
    packages = metadata["packages"]
    refused = [
        f"{package['name']} {package['version']}: {package['license'] or 'no licence given'}"
        for package in packages
        if not package["license"] or not is_allowed(package["license"])
    ]
    for line in refused:
        sys.stderr.write(f"licence not allowed: {line}\n")
    sys.stdout.write(f"licences of {len(packages)} crates checked, {len(refused)} refused\n")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
