"""Which files of a crate use which, and the circles in that.

Given: the `src` folder of a crate. Gives: its files by module path, what each uses, and the sets
of files that use each other in a circle. Read from the text: `use` declarations and paths that
begin with `crate`, `super`, `self`, a child's name or an imported module. What tests within a file
use does not count, nor does what a file uses of the file above it in the tree: that one holds what
its folder shares. Nor does `sym` in assembly: it is how code below is left for code above. For
tests/tidy.py. Must not know which crates there are.
"""

import os, re

PATH = re.compile(
    r"(?<![\w:])((?:crate|super|self|[a-z_][a-z_0-9]*)(?:::[A-Za-z_][A-Za-z_0-9]*)+)"
)


def code_of(path):
    """The text without comments, strings, assembly's `sym` operands and the tests at its end."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r'b?"(?:[^"\\]|\\.)*"', '""', text, flags=re.S)
    text = re.sub(r"\bsym\s+[\w:]+", "", text)
    return re.split(r"#\[cfg\(test\)\]\s*mod ", text)[0]


def imports(text):
    """Every path that a `use` declaration names, with its alias behind a blank if it has one."""

    def expand(prefix, tree):
        depth, part, parts = 0, "", []
        for c in tree:
            depth += (c == "{") - (c == "}")
            if c == "," and depth == 0:
                parts, part = [*parts, part], ""
            else:
                part += c
        for p in (p.strip() for p in [*parts, part]):
            inner = re.match(r"^([^{]*)\{(.*)\}$", p, re.S)
            if inner:
                yield from expand(prefix + inner[1].strip(), inner[2])
            elif p:
                yield (prefix + p).replace(" as ", " ")

    for m in re.finditer(r"\buse\s+([^;]+);", text):
        yield from expand("", re.sub(r"\s+", " ", m[1]))


def files_of(src):
    """Module path, a tuple of names, to the file's path; () is the crate's root."""
    files = {}
    for folder, _, names in os.walk(src):
        for name in names:
            if not name.endswith(".rs"):
                continue
            parts = os.path.relpath(os.path.join(folder, name), src)[:-3].split(os.sep)
            if parts[-1] in ("lib", "main", "mod"):
                parts.pop()
            files[tuple(parts)] = os.path.join(folder, name)
    return files


def uses(src):
    """Module path to the module paths that it uses."""
    files, graph = files_of(src), {}
    for me, path in files.items():
        text, names, used = code_of(path), {}, set()

        def module_of(segments):
            """The longest module path that these lead to; None: out of the crate."""
            base, rest = (), list(segments)
            if rest[0] == "crate":
                rest = rest[1:]
            elif rest[0] in ("super", "self"):
                base = me
                while rest and rest[0] in ("super", "self"):
                    base, rest = (base[:-1] if rest[0] == "super" else base), rest[1:]
            elif me + (rest[0],) in files:
                base = me
            elif rest[0] in names:
                base, rest = names[rest[0]], rest[1:]
            else:
                return None
            while rest and base + (rest[0],) in files:
                base, rest = base + (rest[0],), rest[1:]
            return base

        for declared in imports(text):
            whole, _, alias = declared.partition(" ")
            segments = [s for i, s in enumerate(whole.split("::")) if s != "self" or i == 0]
            target = module_of(segments)
            if target is None:
                continue
            used.add(target)
            if target and target[-1] == segments[-1]:
                names[alias or segments[-1]] = target
        for m in PATH.finditer(re.sub(r"\buse\s+[^;]+;", "", text)):
            target = module_of(m[1].split("::"))
            if target is not None:
                used.add(target)
        graph[me] = used - {me, me[:-1]}
    return graph


def circles(graph):
    """Sets of more than one module of which each uses each other, over some way (R. Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in sorted(graph.get(v, ())):
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            at = stack.index(v)
            circle, stack[at:] = sorted(stack[at:]), []
            if len(circle) > 1:
                found.append(circle)

    for v in sorted(graph):
        if v not in index:
            visit(v)
    return found
