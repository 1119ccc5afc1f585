"""What the harnesses of this folder's parent share: how commands are run and compared, what /proc
says, cases and their benches. A file here is no test; the tests are `tests/*.py`.

| file | what for |
|---|---|
| case.py | cases, how they are chosen, told and skipped; where the built program is |
| bench.py | cases with a fresh folder, and ways to run sptrace in it |
| refusal.py | the same for what sptrace must refuse in one line |
| process.py | processes as /proc shows them |
| trace.py | what views of a trace say, as values |
| compare.py | a command with and without a wrapper |
| programs.py, commands.py, runtimes.py | the commands that are compared |
| fixtures.py | their inputs |
| attaching.py | attaching and detaching, and whether that leaves a trace |
| servers.py | nginx and redis-server |
| rust_modules.py | which files of a crate use which |
"""
