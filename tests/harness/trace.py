"""What views of a trace say, and what sptrace says of it on standard error, as values."""

import re


def began_earlier(tree):
    """The functions that were open at the start, outermost first, by thread."""
    stacks = {}
    for tid, name in re.findall(r"\[ *(\d+)\] \| *(\w+)\(\)[ ;{]*/\* began earlier", tree):
        stacks.setdefault(tid, []).append(name)
    return list(stacks.values())


def left_out(err):
    return int(re.search(r"(\d+) before the start left out \(shadow mode\)", err)[1])
