"""Check the top-level modules: no crate has a cycle, and the engine's floors are those of the page.

Reads the sources alone: each ``crate::`` path, and each ``super::`` path that ends at the crate's
root, is an arrow from the module that holds it to the module that it names; a re-export of
``lib.rs`` stands for the module that defines it. Tests are left out: they may use what they like.

The table of ARCHITECTURE.md that begins with ``| floor | module |`` lists the modules of the engine
from the bottom up. Each module stands there once, and its arrows lead to its own floor or a lower
one.

The fuzzers build neither the engine nor the object stores, whose crates take minutes.

``modules.py`` fails and names one arrow for each step of a cycle, each module that the table misses
or puts on a wrong floor, and each large crate of ``fuzz/Cargo.lock``; ``modules.py --arrows CRATE``
prints all arrows of a crate.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
ENGINE = "bedform"
FUZZ_LOCK = ROOT / "fuzz" / "Cargo.lock"
# Crates that no fuzzer may need.
LARGE = (ENGINE, "bedform-remote", "object_store", "tokio")
TOKENS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|::|[{},*;]|\S")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Comments, strings and characters of Rust and C, which are not code.
UNREAD = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|\bb?r(?P<marks>#*)\".*?\"(?P=marks)"
    r'|"(?:\\.|[^"\\])*"'
    r"|'(?:\\(?:'|[^'\n]+)|[^'\\\n])'",
    re.DOTALL,
)
# An item of tests, up to its opening brace.
TEST_ITEM = re.compile(r"#\[cfg\((?:test|all\(test[^]]*)\)\]\s*(?:#\[[^]]*\]\s*)*[^;{]*")

Arrows = dict[str, dict[str, str]]


def main(arguments: list[str]) -> int:
    """Check all crates and the floors of the engine, or print the arrows of a crate."""
    crates = {
        lib.parent.parent.name: lib.parent for lib in sorted(ROOT.glob("crates/*/src/lib.rs"))
    }
    crates["bedform-python"] = ROOT / "python" / "src"
    if arguments[:1] == ["--arrows"]:
        for module, targets in sorted(arrows(crates[arguments[1]]).items()):
            sys.stdout.write(f"{module} -> {' '.join(sorted(targets))}\n")
        return 0
    errors = fuzzed(FUZZ_LOCK.read_text())
    for crate, source in crates.items():
        found = arrows(source)
        if crate == ENGINE:
            errors += misplaced(found, set(modules_of(source)), floors(PAGE.read_text()))
        for cycle in components(found):
            errors.append(f"{crate}: {', '.join(sorted(cycle))} import each other in a circle")
            errors += [
                f"  {module} -> {target}: {place}"
                for module in sorted(cycle)
                for target, place in sorted(found[module].items())
                if target in cycle
            ]
    sys.stdout.writelines(f"{error}\n" for error in errors)
    return 1 if errors else 0


def fuzzed(lock: str) -> list[str]:
    """The large crates that the fuzzers would build."""
    packages = set(re.findall(r'^name = "(.+)"$', lock, re.MULTILINE))
    return [f"fuzz/Cargo.lock: the fuzzers need {crate}" for crate in LARGE if crate in packages]


def modules_of(source: Path) -> list[str]:
    """The top-level modules of a crate."""
    return re.findall(r"\bmod\s+(\w+)\s*;", strip((source / "lib.rs").read_text()))


def floors(page: str) -> dict[str, int]:
    """The floor of each module of the engine, counted from the bottom, as the page says."""
    numbers: dict[str, int] = {}
    rows = page.split("| floor | module |", 1)[-1].splitlines()[2:]
    floor = -1
    for row in rows:
        if not row.startswith("|"):
            break
        name, modules = (cell.strip() for cell in row.split("|")[1:3])
        floor += bool(name)
        for module in re.findall(r"`(\w+)`", modules):
            numbers[module] = -1 if module in numbers else floor
    return numbers


def misplaced(found: Arrows, modules: set[str], numbers: dict[str, int]) -> list[str]:
    """The wrong rows of the table of floors."""
    errors = [f"the table of floors misses the module {name}" for name in modules - set(numbers)]
    errors += [f"there is no module {name}" for name in set(numbers) - modules]
    errors += [f"the module {name} stands there twice" for name in numbers if numbers[name] < 0]
    for module, targets in found.items():
        errors += [
            f"{module} names the module {target} of a higher floor: {place}"
            for target, place in targets.items()
            if numbers.get(target, 0) > numbers.get(module, len(numbers))
        ]
    return [f"ARCHITECTURE.md: {error}" for error in sorted(errors)]


def arrows(source: Path) -> Arrows:
    """Which modules each top-level module names, with the first place where it does."""
    modules = set(modules_of(source))
    exported = reexports(strip((source / "lib.rs").read_text()), modules)
    found: Arrows = defaultdict(dict)
    for path in sorted(source.rglob("*.rs")):
        inside = path.relative_to(source).with_suffix("").parts
        if inside[0] == "lib" or "tests" in inside:
            continue
        place = inside[:-1] if inside[-1] == "mod" else inside
        text = strip(path.read_text())
        for line, name in references(text, len(place)):
            target = name if name in modules else exported.get(name)
            if target and target != place[0]:
                found[place[0]].setdefault(target, f"{path.relative_to(ROOT)}:{line}")
    return found


def reexports(library: str, modules: set[str]) -> dict[str, str]:
    """Map each name that the crate's root re-exports to the module that defines it."""
    names = {}
    for statement in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", library):
        for path in use_paths(statement):
            if path[0] in modules:
                names[path[-1]] = path[0]
    return names


def references(text: str, depth: int) -> list[tuple[int, str]]:
    """List the first name of each path from the crate's root, in a file ``depth`` levels deep."""
    root = r"\bcrate\s*::" if depth > 1 else r"\b(?:crate|super)\s*::"
    if depth > 1:
        root = rf"\b(?:crate|super(?:\s*::\s*super){{{depth - 1}}})\s*::"
    found = []
    for match in re.finditer(root, text):
        line = text.count("\n", 0, match.start()) + 1
        rest = text[match.end() :].lstrip()
        if rest.startswith("{"):
            found += [(line, path[0]) for path in use_paths(rest[: closing(rest)])]
        elif name := NAME.match(rest):
            found.append((line, name.group()))
    return found


def use_paths(tree: str) -> list[list[str]]:
    """List the paths of a use tree; a renamed item by its original name."""
    tokens = TOKENS.findall(re.sub(r"\bas\s+\w+", "", tree))

    def parse(at: int, prefix: list[str]) -> tuple[list[list[str]], int]:
        paths, path = [], list(prefix)
        while at < len(tokens):
            word = tokens[at]
            if word == "{":
                inner, at = parse(at + 1, path)
                paths += inner
                path = []
            elif word in {",", "}"}:
                if len(path) > len(prefix):
                    paths.append(path)
                if word == "}":
                    return paths, at
                path = list(prefix)
            elif word == "self":
                paths.append(path)
                path = []
            elif NAME.fullmatch(word):
                path.append(word)
            at += 1
        if len(path) > len(prefix):
            paths.append(path)
        return paths, at

    return [path for path in parse(0, [])[0] if path]


def closing(text: str) -> int:
    """Return the end of the braces with which ``text`` starts."""
    depth = 0
    for at, letter in enumerate(text):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth == 0:
            return at + 1
    return len(text)


def strip(text: str) -> str:
    """Return the text without comments, strings and test modules; line numbers stay the same."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    text = UNREAD.sub(blank, text)
    while match := TEST_ITEM.search(text):
        end = match.end()
        end += closing(text[end:]) if text[end : end + 1] == "{" else 1
        text = text[: match.start()] + re.sub(r"[^\n]", " ", text[match.start() : end]) + text[end:]
    return text


def components(found: Arrows) -> list[set[str]]:
    """Return the sets of modules that reach each other."""
    reached = {module: reachable(found, module) for module in found}
    cycles: list[set[str]] = []
    for module in sorted(found):
        if module in reached[module] and not any(module in cycle for cycle in cycles):
            cycles.append({other for other in reached[module] if module in reached.get(other, ())})
    return cycles


def reachable(found: Arrows, module: str) -> set[str]:
    """Return all modules that are reachable from one."""
    seen: set[str] = set()
    waiting = list(found.get(module, {}))
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting += found.get(current, {})
    return seen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
