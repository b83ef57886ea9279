"""Count sentences and type names that a reader has to decode; both counts may only fall.

A sentence counts when one of its clauses has a pronoun in the place of a concrete noun. Such a
clause opens with who, what, whoever, whatever, whom, whose, "of which" or "those that", at the
start of the sentence, after ``;``, ``:`` or an opening parenthesis. Or it hangs on a preposition, a
conjunction, "is" or "that": ``a quarter of what it holds``. Questions, the idioms of ``IDIOM``,
headings and short cells of tables are free. The sentences come from pages and from the comments and
docstrings of Rust, C, Fortran and Python, in all files that git tracks except ``LEFT_OUT``. Lines
are joined before they are matched, code is skipped, and a sentence counts once.

A type name counts when more than one file defines it: a struct, enum, union, trait or type alias
in ``crates/*/src`` and ``python/src`` outside tests, or a class in ``python/bedform``. Associated
types do not count.

``words.py`` compares both counts with ``tools/words.toml``. It fails when a count is higher, and
also when a count is lower, so that each improvement is kept: ``words.py --lower`` writes lower
counts into the file and never higher ones. ``words.py --list [PATH ...]`` prints the sentences and
names of all files or of the given paths; ``--since REV`` restricts the list to lines added since a
revision. The rule is checked first, against the sentences of ``COUNTED`` and ``FREE``.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from modules import UNREAD, strip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = ROOT / "tools" / "words.toml"
SUFFIXES = {".rs", ".c", ".h", ".f90", ".py", ".pyi", ".md"}
# Records of the past: their words stay.
LEFT_OUT = {"CHANGELOG.md", "benchmarks/RESULTS.md"}
REMEDIES = {
    "sentences": "name the thing that acts instead of who, what, whoever, whatever, those that",
    "type_names": "give each new type a name that no other module uses",
}

PRONOUN = r"(?:who|what|whoever|whatever|whom|whose)"
# The words after "what" in "what if", "what to do", "what about", "to what extent".
IDIOM = r"(?:if|to|about|extent|degree|else)\b"
OPENING = re.compile(
    rf"(?:^|[;:]\s+|\()\W*(?P<words>{PRONOUN}(?=\s+\w|'s\b)(?!\s+{IDIOM})|of which\b"
    r"|those (?:that|who|which)\b)",
    re.IGNORECASE,
)
LINKS = """
    about above across after against ahead along although among and around as at because before
    behind below beneath beside besides between beyond but by despite during except for from if in
    inside into is are was like near nor of off on once onto or out outside over past per since so
    than that through till to toward towards under unless unlike until up upon via when where
    whereas while with within without
"""
HANGING = re.compile(
    rf"\b(?P<words>(?:{'|'.join(LINKS.split())})\s+(?:who|what)(?:ever)?)(?=\s+\w)(?!\s+{IDIOM})",
    re.IGNORECASE,
)

BULLET = re.compile(r"\s*(?:[-*+>]|\d+\.)\s+")
HEADING = re.compile(r"\s*#{1,6} |\s*(?:-{3,}|={3,})\s*$")
CODE = re.compile(r"``.*?``|`[^`]*`")
# A cell of a table with so few words is a label, not a sentence.
LABEL_WORDS = 3
# The space between two sentences: after a full stop, before a capital letter.
BOUNDARY = re.compile(r"(?<=[.!?])[\"')*_\]]*\s+(?=[\"'(*_\[]*[A-Z])")
# The delimiters of a comment in Rust, C or Fortran, on each of its lines.
DELIMITER = re.compile(r"^\s*(?://+!?|/\*[*!]*|\*/|\*(?= |$)|!+>?)|\*/$")
FORTRAN = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|(?P<comment>![^\n]*)")
QUOTES = re.compile(r"^[rRuUbB]*[\"']+|[\"']+$")
# The tokens of Python that may stand between a statement and a docstring.
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT}

RUST_SOURCE = re.compile(r"(?:crates/[^/]+|python)/src/(?!(?:.*/)?tests[/.]).*\.rs$")
RUST_TYPE = re.compile(
    r"^(?:[ \t]*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|union|trait)"
    r"|(?:pub(?:\([^)]*\))?\s+)?type)\s+(?P<name>[A-Z]\w*)",
    re.MULTILINE,
)
PYTHON_SOURCE = re.compile(r"python/bedform/.*\.py$")
PYTHON_CLASS = re.compile(r"^[ \t]*class (?P<name>\w+)\s*[:(]", re.MULTILINE)

COUNTED = """
unless the system fetches ahead what it is told of
has a number below what is settled, and is none
Prices are those of what reading does.
Who computes, of many who mostly wait (`Turns`)
who makes chunks waits until who writes earlier ones (`Room`)
A check that goes on while what it is about is made (`beside`)
Who resolves a cell, and what becomes of what is found on the way
for who holds a snapshot of the time before
what another program writes later by what it read before cannot be read
those first that recorded reads used least lately, for their bytes and what they save
What is read of a chunk that starts at `offset`
Patterns of earlier runs that what comes next is held against
Of which no codec makes less: gzip takes longest.
Segments are listed first; those that are gone are skipped.
Seconds (what the system took for a request) of the last read.
"""
FREE = """
Every blocking wait polls for cancellation.
unless the kernel honours readahead hints
is ignored: its number is below the settled one
Draining pauses during a commit and resumes when it returns.
A part is deleted once its bytes are durable in the log.
Predictions model the requests that a read makes.
A semaphore that limits concurrent CPU work (`CpuPermits`).
A memory budget shared by encoders and writers (`MemoryBudget`).
Runs a precondition check concurrently with the write it guards (`concurrent_check`).
Makes the background reader. Not stored here: that would be a reference cycle through the store.
Hooks of `resolve`: cache lookup, admission, wait counting.
Replaced shards, kept for open snapshots.
A program with cached metadata may write chunks that nobody can decode.
Least recently used first, weighted by seconds saved per byte.
The byte ranges to read from the chunk at `offset`.
Patterns of earlier runs, compared with each new read.
has lasted two seconds and should be reported
What does a crash leave?
Says what to do about a full disk, and what if that fails.
The writer, who holds the lease, names segments that no commit refers to and whose owner is gone.
The field `of what` names the resource.
"""

# A line of prose with its number, from 1; an empty one ends a paragraph.
Line = tuple[int, str]


class Sentence(NamedTuple):
    """A sentence of a file, with its first and last line."""

    path: str
    first: int
    last: int
    text: str

    def clause(self) -> str | None:
        """The first words that make the sentence count."""
        plain = masked(self.text)
        if plain.rstrip("\"')*_ ").endswith("?"):
            return None
        match = OPENING.search(plain) or HANGING.search(plain)
        return match["words"] if match else None


class TypeName(NamedTuple):
    """A name of types, with the path and line of each definition."""

    name: str
    places: list[tuple[str, int]]


def main(arguments: list[str]) -> int:
    """Compare the counts with the file, or do one of the other tasks."""
    parser = argparse.ArgumentParser(prog="words.py", allow_abbrev=False)
    task = parser.add_mutually_exclusive_group()
    task.add_argument("--list", nargs="*", metavar="PATH", help="print the sentences and names")
    task.add_argument("--lower", action="store_true", help="write lower counts into words.toml")
    parser.add_argument("--since", metavar="REV", help="list lines added since this revision")
    options = parser.parse_args(arguments)
    if options.list is not None or options.since:
        show(options.list or [], options.since)
        return 0
    return check_examples() or compare(lower=options.lower)


def compare(*, lower: bool) -> int:
    """Compare the counts with words.toml; 1 where a count is too high, or lower than recorded."""
    sentences, names = findings(tracked())
    counts = {"sentences": len(sentences), "type_names": len(names)}
    allowed = tomllib.loads(NUMBERS.read_text())
    failed = False
    for key, count in counts.items():
        if count > allowed[key]:
            failed = True
            sys.stdout.write(
                f"{key} rose to {count}, tools/words.toml allows {allowed[key]}: {REMEDIES[key]}"
                " (`tools/words.py --list --since REV` lists those of a change)\n"
            )
        elif count < allowed[key] and not lower:
            failed = True
            sys.stdout.write(
                f"{key} fell to {count}, tools/words.toml says {allowed[key]}:"
                " run `tools/words.py --lower` and commit the file\n"
            )
    if lower:
        lines = NUMBERS.read_text()
        for key, count in counts.items():
            lines = lines.replace(f"{key} = {allowed[key]}", f"{key} = {min(count, allowed[key])}")
        NUMBERS.write_text(lines)
    return int(failed)


def show(below: list[str], since: str | None) -> None:
    """Print the sentences and names of all files, of the given paths, or of added lines."""
    added = added_lines(since) if since else None
    roots = [Path(path).resolve() for path in below]

    def is_listed(path: str, first: int, last: int) -> bool:
        if roots and not any((ROOT / path).is_relative_to(root) for root in roots):
            return False
        return added is None or not added[path].isdisjoint(range(first, last + 1))

    sentences, names = findings(tracked())
    for sentence in sentences:
        if is_listed(sentence.path, sentence.first, sentence.last):
            sys.stdout.write(
                f"{sentence.path}:{sentence.first}: [{sentence.clause()}] {sentence.text}\n"
            )
    for name, places in names:
        if any(is_listed(path, line, line) for path, line in places):
            where = " ".join(f"{path}:{line}" for path, line in places)
            sys.stdout.write(f"type {name}: {where}\n")


def check_examples() -> int:
    """Check each line of ``COUNTED`` and ``FREE``."""
    wrong = 0
    for expected, lines in ((True, COUNTED), (False, FREE)):
        for line in lines.strip().split("\n"):
            if any(sentence.clause() for sentence in sentences_of("page.md", line)) != expected:
                wrong += 1
                verdict = "does not count" if expected else "counts"
                sys.stdout.write(f"tools/words.py {verdict} its example {line!r}: mend the rule\n")
    return int(wrong > 0)


def findings(texts: dict[str, str]) -> tuple[list[Sentence], list[TypeName]]:
    """The sentences and the names that count."""
    sentences = []
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, text in texts.items():
        sentences += [found for found in sentences_of(path, text) if found.clause()]
        for name, line in types_of(path, text):
            places[name].append((path, line))
    shared = [name for name in sorted(places) if len({path for path, _ in places[name]}) > 1]
    return sentences, [TypeName(name, places[name]) for name in shared]


def tracked() -> dict[str, str]:
    """The text of each file to read, by its path from the root."""
    paths = [path for path in git("ls-files", "-z").split("\0") if path not in LEFT_OUT]
    kept = [path for path in paths if Path(path).suffix in SUFFIXES and (ROOT / path).is_file()]
    return {path: (ROOT / path).read_text() for path in kept}


def added_lines(revision: str) -> dict[str, set[int]]:
    """The lines of each file that the work tree adds to a revision."""
    added: dict[str, set[int]] = defaultdict(set)
    path = ""
    for line in git("diff", "--unified=0", "--no-renames", "--no-prefix", revision).split("\n"):
        if line.startswith("+++ "):
            path = line.removeprefix("+++ ")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            added[path].update(range(first, first + count))
    return added


def git(*arguments: str) -> str:
    """The output of a git command that runs at the root."""
    command = ["git", *arguments]
    return subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout  # noqa: S603


def types_of(path: str, text: str) -> Iterator[tuple[str, int]]:
    """The types that a file defines, with their lines."""
    if PYTHON_SOURCE.match(path):
        pattern, code = PYTHON_CLASS, text
    elif RUST_SOURCE.match(path):
        pattern, code = RUST_TYPE, strip(text)
    else:
        return
    for match in pattern.finditer(code):
        yield match["name"], code.count("\n", 0, match.start("name")) + 1


def sentences_of(path: str, text: str) -> Iterator[Sentence]:
    """All sentences of a file's prose."""
    for paragraph in paragraphs(prose(path, text)):
        joined, starts = "", []
        for _, line in paragraph:
            starts.append(len(joined))
            joined += line.strip() + " "
        ends = [match.end() for match in BOUNDARY.finditer(masked(joined))]
        for begin, end in zip([0, *ends], [*ends, len(joined)], strict=True):
            first, last = (paragraph[bisect_right(starts, at) - 1][0] for at in (begin, end - 1))
            yield Sentence(path, first, last, joined[begin:end].strip())


def masked(text: str) -> str:
    """The text with capital letters in the place of code."""
    return CODE.sub(lambda code: "X" * len(code.group()), text)


def paragraphs(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Paragraphs, items of lists and cells of tables; without code and headings."""
    current: list[Line] = []
    fenced = example = False
    for number, line in lines:
        bare = line.strip()
        fence = bare.startswith(("```", "~~~"))
        fenced ^= fence
        example = bool(bare) and (example or bare.startswith(">>>"))
        skipped = not bare or fence or fenced or example or HEADING.match(line)
        bullet = BULLET.match(line)
        if current and (skipped or bullet or bare.startswith("|")):
            yield current
            current = []
        if skipped:
            continue
        if bare.startswith("|"):
            cells = [] if "?" in bare else bare.split("|")
            yield from ([(number, cell)] for cell in cells if len(cell.split()) > LABEL_WORDS)
        else:
            current.append((number, line[bullet.end() :] if bullet else line))
    if current:
        yield current


def prose(path: str, text: str) -> Iterator[Line]:
    """The lines of a file that are prose."""
    match Path(path).suffix:
        case ".md":
            yield from enumerate(text.split("\n"), 1)
        case ".py" | ".pyi":
            yield from python_prose(text)
        case ".f90":
            yield from comments(text, FORTRAN)
        case _:
            yield from comments(text, UNREAD)


def comments(text: str, scanner: re.Pattern[str]) -> Iterator[Line]:
    """The lines of comments; adjacent ones with the same marker belong together."""
    number, read = 1, 0
    end, previous = 0, ""
    for match in scanner.finditer(text):
        comment = match["comment"]
        if comment is None:
            continue
        number += text.count("\n", read, match.start())
        read = match.start()
        is_alone = not text[text.rfind("\n", 0, read) + 1 : read].strip()
        marker = comment[: len(comment) - len(comment.lstrip("/!*"))] if is_alone else ""
        if number > end + 1 or marker != previous or "*" in marker or not is_alone:
            yield number, ""
        for end, line in enumerate(comment.split("\n"), number):
            yield end, DELIMITER.sub("", line)
        previous = marker
    yield end, ""


def python_prose(text: str) -> Iterator[Line]:
    """The lines of a Python file's comments, and of its strings that are statements."""
    end = 0
    is_statement = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        number, column = token.start
        if token.type == tokenize.COMMENT:
            is_alone = not token.line[:column].strip()
            if number > end + 1 or not is_alone:
                yield number, ""
            yield number, token.string.lstrip("#!:")
            end = number if is_alone else 0
        elif token.type == tokenize.STRING and is_statement:
            yield from docstring(number, token.string)
        if token.type not in LAYOUT:
            is_statement = False
        elif token.type == tokenize.NEWLINE:
            is_statement = True
    yield end, ""


def docstring(first: int, literal: str) -> Iterator[Line]:
    """The lines of a docstring; a change of indentation ends a paragraph."""
    before = 0
    yield first, ""
    for number, line in enumerate(QUOTES.sub("", literal).split("\n"), first):
        bullet = BULLET.match(line)
        indent = bullet.end() if bullet else len(line) - len(line.lstrip())
        if number > first + 1 and indent != before:
            yield number, ""
        yield number, line
        before = indent
    yield first, ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
