#!/usr/bin/env python3
"""Figures of the code base: what can be counted of its order.

usage: tests/figures.py [FOLDER]     (FOLDER: another checkout, to compare with)

Gives a line for each figure, and for unit tests and unsafe code a line for each crate. Counts by text: rustfmt's form is
taken for granted. Judges nothing: tests/tidy.py does that.
"""
import os, re, sys


from harness import rust_functions, rust_modules
import tidy

def sources(folder):
    for top, _, names in os.walk(folder):
        for name in sorted(names):
            if name.endswith(".rs"): yield os.path.join(top, name)


def lines_of(path):
    with open(path, encoding="utf-8") as f: return f.read().split("\n")


def unsafe_of(lines):
    """(blocks, lines of code inside them)"""
    blocks = inside = 0
    indent = None
    for line in lines:
        code = line.split("//")[0]
        if indent is not None:
            if line.startswith(indent + "}"): indent = None
            elif code.strip(): inside += 1
        elif re.search(r"\bunsafe \{", code):
            blocks += len(re.findall(r"\bunsafe \{", code))
            if code.rstrip().endswith("{"): indent = re.match(r"\s*", line)[0]
            else: inside += 1
    return blocks, inside


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else tidy.ROOT
    circles, upward, wide, long, tests, unsafe = 0, 0, 0, [], {}, {}
    for top, name, folder in tidy.crates(root):
        crate = f"{top}/{name}"
        circles += len(rust_modules.circles(rust_modules.uses(os.path.join(folder, "src"))))
        for path in sources(folder):
            lines = lines_of(path)
            wide += sum(len(line) > tidy.MAX_COLUMNS for line in lines)
            tests[crate] = tests.get(crate, 0) + sum(line.strip() == "#[test]" for line in lines)
            if f"{os.sep}src{os.sep}" not in path: continue
            long += [f"{n} {f} ({os.path.relpath(path, root)})" for f, n in rust_functions.longer_than(lines, tidy.MAX_FUNCTION)]
            blocks, inside = unsafe_of(lines)
            before = unsafe.get(crate, (0, 0))
            unsafe[crate] = (before[0] + blocks, before[1] + inside)
    upward = sum("stands on the floor" in p for p in tidy.check_circles(root))
    print(f"circles of files inside crates: {circles}")
    print(f"uses upward between folders with floors: {upward}")
    print(f"functions above {tidy.MAX_FUNCTION} lines: {len(long)}")
    for entry in sorted(long, key=lambda e: -int(e.split()[0])): print(f"    {entry}")
    print(f"lines over {tidy.MAX_COLUMNS} columns in Rust: {wide}")
    print(f"lines of ARCHITECTURE.md: {len(lines_of(os.path.join(root, 'ARCHITECTURE.md'))) - 1}")
    print("crate: unit tests, unsafe blocks, lines in them")
    for crate in tests: print(f"    {crate}: {tests[crate]}, {unsafe[crate][0]}, {unsafe[crate][1]}")


if __name__ == "__main__":
    main()
