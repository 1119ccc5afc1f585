"""Functions in Rust's text and how long they are, where rustfmt has formed it.

Given the lines of a file. For tests/tidy.py and tests/figures.py. Must not know which crates there
are.
"""

import re

FUNCTION = re.compile(
    r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:const )?(?:unsafe )?(?:extern \"C\" )?fn (\w+)"
)


def longer_than(lines, limit):
    """(name, lines) of each function that has more lines, its signature and end included."""
    for start, line in enumerate(lines):
        found = FUNCTION.match(line)
        if not found or line.rstrip().endswith(("}", ";")):
            continue
        end = found[1] + "}"
        last = next((i for i in range(start, len(lines)) if lines[i] == end), start)
        if last - start + 1 > limit:
            yield found[2], last - start + 1
