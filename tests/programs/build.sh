#!/bin/sh
# Compiles every test program into a folder.
#
# usage: tests/programs/build.sh OUT
#
# Given a folder, gives one executable a line of the table below, named NAME there. What lacks its compiler (musl-gcc,
# rustc) is skipped with a word on stderr, so that a bare machine still has the rest. Knows nothing of what tests do
# with the programs. Runs two compilers at a time; a failure of any ends in status 1.
set -eu
[ $# -eq 1 ] || { echo "usage: $0 OUT" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$here"

C='-g -pthread -Wall -Wextra -Wno-infinite-recursion -fno-omit-frame-pointer'
O='-g -pthread -Wall -Wextra -Wno-infinite-recursion'
table() {
    for case in direct recursion pointers callbacks longjmp threads procs ctors sleeper deep varargs coroutine \
                cancel alarm closefds procself smallstack sigprof sandbox forkwire inherited gated stages altstack twins nullcall jumpout busy aligned cancelasync recorder mainexits headed lineage; do
        echo "$case.O0|gcc $C -O0 $case/$case.c"
        echo "$case.O2|gcc $O -O2 $case/$case.c"
    done
    echo "tailcalls.O0|gcc $C -O0 tailcalls/tailcalls.c"
    echo "tailcalls.O2|gcc $O -O2 tailcalls/tailcalls.c"
    echo "tailcalls.O2-cet|gcc $O -O2 -fcf-protection=full tailcalls/tailcalls.c"
    # Two segments of code with a hole between them, as in node.
    echo "sigprof.gap|gcc $O -O2 -no-pie -Wl,-Ttext=0x404000 sigprof/sigprof.c"
    # Its unwind information counts from the stack pointer.
    echo "stepped.O2|gcc $O -O2 -fomit-frame-pointer stepped/stepped.c"
    # One function without unwind information among many that have some.
    echo "handwritten.O2|gcc $C -O2 handwritten/handwritten.c"
    # No table says how to walk its stack.
    echo "recorder.cet|gcc -pthread -O2 -fcf-protection=full -fno-plt recorder/recorder.c"
    echo "recorder.tableless|gcc -pthread -O2 -s -fno-asynchronous-unwind-tables recorder/recorder.c"
    # Values of calls.
    for level in 0 2; do
        echo "values.O$level|gcc $O -O$level values/values.c"
        echo "values.classes.O$level|g++ $O -O$level values/classes.cpp"
    done
    echo "values.everywhere|g++ $O -O2 values/everywhere.cpp"
    # Signals that are delivered; a static program has no rendezvous of modules.
    for level in 0 2; do echo "delivered.O$level|gcc $O -O$level delivered/delivered.c"; done
    echo "delivered.static|gcc $O -O2 -static delivered/delivered.c"
    echo "claimed.O2|gcc $O -O2 claimed/claimed.c"
    echo "vanished.O2|gcc $O -O2 vanished/vanished.c"
    echo "vanishedpaths.O2|gcc $O -O2 vanished/paths.c"
    for level in 0 2; do echo "entered.O$level|gcc $O -O$level entered/entered.c"; done
    echo "values.bare|gcc $O -O2 -g0 values/values.c"
    for case in library wild signalled; do echo "values.$case|gcc $O -O2 -fno-builtin values/$case.c"; done
    # Calls that are counted.
    for level in 0 2; do echo "tallies.O$level|gcc $O -O$level tallies/tallies.c"; done
    echo "tallies.static|gcc $O -O2 -static tallies/tallies.c"
    for level in 0 2; do echo "heats.O$level|gcc $O -O$level heats/heats.c"; done
    echo "heats.static|gcc $O -O2 -static heats/heats.c"
    for level in 0 2; do echo "rounds.O$level|gcc $O -O$level rounds/rounds.c"; done
    echo "rounds.static|gcc $O -O2 -static rounds/rounds.c"
    for level in 0 2; do echo "unborn.O$level|gcc $O -O$level unborn/unborn.c"; done
    for sanitizer in address thread undefined leak; do echo "sanitized.$sanitizer|gcc $O -O1 -fsanitize=$sanitizer sanitized/sanitized.c"; done
    if command -v clang >/dev/null; then echo "sanitized.memory|clang $O -O1 -fsanitize=memory sanitized/sanitized.c"; fi
    echo "heirloom.O2|gcc $O -O2 heirloom/heirloom.c"
    echo "starter.O2|gcc $O -O2 starter/starter.c"
    echo "counted.O2|gcc $O -O2 counted/counted.c"
    echo "plug.so|gcc $O -O2 -shared -fPIC dlopen/plug.c"
    echo "dlopen.O0|gcc $C -O0 dlopen/dlopen.c -Wl,-rpath,\$ORIGIN"
    echo "dlopen.O2|gcc $O -O2 dlopen/dlopen.c -Wl,-rpath,\$ORIGIN"
    for case in manythreads sandthrow throwtimer abyss guarded; do
        echo "$case.O0|g++ $C -O0 $case/$case.cpp"
        echo "$case.O2|g++ $O -O2 $case/$case.cpp"
    done
    for case in attachee heirs; do
        for level in 0 2; do echo "$case.O$level|g++ $O -O$level $case/$case.cpp"; done
    done
    echo "attachee.static|g++ $O -O2 -s -static attachee/attachee.cpp"
    echo "virtual.O0|g++ $C -O0 virtual/virtual.cpp"
    echo "virtual.O2|g++ $O -O2 virtual/virtual.cpp"
    echo "exceptions.O0|g++ $C -O0 exceptions/exceptions.cpp"
    echo "exceptions.O2|g++ $O -O2 exceptions/exceptions.cpp"
    echo "exceptions.stripped|g++ $O -O2 -s exceptions/exceptions.cpp"
    echo "exceptions.static|g++ $O -O2 -s -static exceptions/exceptions.cpp"
    echo "virtual.stripped|g++ $O -O2 -s virtual/virtual.cpp"
    echo "callforms.cfi|gcc $O -O1 callforms/callforms.c -Wa,--defsym,CFI=1 callforms/forms.s"
    echo "callforms.plain|gcc $O -O1 callforms/callforms.c callforms/forms.s"
    echo "callforms.nopie|gcc $O -O1 -no-pie callforms/callforms.c -Wa,--defsym,CFI=1,--defsym,NOPIE=1 callforms/forms.s"
    echo "callforms.static|gcc $O -O1 -static callforms/callforms.c -Wa,--defsym,CFI=1 callforms/forms.s"
    echo "tailforms.O1|gcc $O -O1 tailforms/tailforms.c tailforms/forms.s"
    echo "tailforms.stripped|gcc $O -O1 -s tailforms/tailforms.c tailforms/forms.s"
    echo "state.O2|gcc $O -O2 state/state.c state/forms.s"
    echo "state.stripped|gcc $O -O3 -flto -s state/state.c state/forms.s"
    echo "state.static|gcc $O -O2 -static state/state.c state/forms.s"
    echo "state.so|gcc -shared -fPIC -Wa,--defsym,LIB=1 state/lib.c state/forms.s -Wl,-z,lazy"
    echo "state.lazy|gcc $O -O2  -DLIB state/state.c -ldl"
    for level in 0 2; do echo "walks.O$level|gcc $O -O$level -rdynamic walks/walks.c"; done
    echo "unwind.so|g++ $O -O2 -shared -fPIC unwind/plug.cpp"
    for level in 0 2; do
        echo "unwind.O$level|g++ $O -O$level -rdynamic -fnon-call-exceptions unwind/unwind.cpp"
    done
    echo "unwind.O3-lto|g++ $O -O3 -flto -rdynamic -fnon-call-exceptions unwind/unwind.cpp"
    for level in 0 2; do
        echo "flow.O$level|gcc $O -O$level -rdynamic flow/flow.c flow/forms.s"
        echo "splitstack.O$level|gcc $O -O$level -fsplit-stack splitstack/splitstack.c"
        for case in signals worlds jit; do echo "$case.O$level|gcc $O -O$level $case/$case.c"; done
    done
    echo "flow.one.so|gcc $O -O2 -shared -fPIC -DONE flow/plug.c"
    echo "flow.two.so|gcc $O -O2 -shared -fPIC flow/plug.c"
    echo "flow.run.so|gcc $O -O2 -shared -fPIC flow/run.c -Wl,-rpath,\$ORIGIN"
    echo "flow.cet|gcc $O -O3 -flto -fno-plt -fcf-protection=full -rdynamic flow/flow.c flow/forms.s"
    echo "signals.O3-lto|gcc $O -O3 -flto signals/signals.c"
    echo "signals.static|gcc $O -O2 -static signals/signals.c"
    if [ -e /usr/include/seccomp.h ]; then
        echo "filtered.O2|gcc $O -O2 filtered/filtered.c -lseccomp"
    else
        echo "skipped: libseccomp-dev is missing" >&2
    fi
    if command -v clang >/dev/null; then
        echo "flow.clang|clang $O -Wno-unknown-attributes -O2 -rdynamic flow/flow.c flow/forms.s"
        echo "unwind.clang|clang++ $O -Wno-unknown-attributes -O2 -rdynamic -fnon-call-exceptions unwind/unwind.cpp"
        echo "signals.clang|clang $O -Wno-unknown-attributes -O2 signals/signals.c"
    fi
    echo "unwind.cet|g++ $O -O2 -fcf-protection=full -fno-plt -rdynamic -fnon-call-exceptions unwind/unwind.cpp"
    echo "nolibc|gcc -g -nostdlib -static -no-pie nolibc/nolibc.s"
    for case in direct recursion callbacks longjmp threads procs; do
        echo "$case.static|gcc $O -O2 -static $case/$case.c"
    done
    echo "direct.static-pie|gcc $O -O2 -static-pie $PIC direct/direct.c"
    echo "threads.static-pie|gcc $O -O2 -static-pie $PIC threads/threads.c"
    echo "direct.nopie|gcc $O -O2 -no-pie -fno-pie direct/direct.c"
    echo "pointers.nopie|gcc $O -O2 -no-pie -fno-pie pointers/pointers.c"
    echo "direct.now|gcc $O -O2 -Wl,-z,now direct/direct.c"
    echo "pointers.lazy|gcc $O -O2 -Wl,-z,lazy pointers/pointers.c"
    echo "pointers.noplt|gcc $O -O2 -fno-plt pointers/pointers.c"
    echo "callbacks.split|gcc $O -O2 -ffunction-sections -Wl,-z,separate-code callbacks/callbacks.c"
    if command -v musl-gcc >/dev/null; then
        for case in direct longjmp threads cancel; do
            echo "$case.musl|musl-gcc $O -O2 -static $case/$case.c"
        done
    else
        echo "skipped: musl-gcc is missing" >&2
    fi
    if command -v rustc >/dev/null; then
        echo "values.strings|rustc --crate-name values_strings --edition 2021 -O -C debuginfo=2 values/strings.rs"
        echo "panic.debug|rustc --crate-name panic_debug --edition 2021 -C debuginfo=1 panic/panic.rs"
        echo "panic.release|rustc --crate-name panic_release --edition 2021 -O panic/panic.rs"
        echo "panic.stripped|rustc --crate-name panic_stripped --edition 2021 -O -C strip=symbols panic/panic.rs"
    else
        echo "skipped: rustc is missing" >&2
    fi
}
PIC=-fPIE
# A program newer than its whole folder and this table is kept.
table | xargs -d '\n' -P 2 -I LINE sh -c '
    line=$1; out=$2
    name=${line%%|*}; command=${line#*|}
    case=${name%%.*}; [ -d "$case" ] || case=dlopen
    if [ -e "$out/$name" ] && [ -z "$(find "$case" calllog.h build.sh -newer "$out/$name" -type f)" ]; then exit 0; fi
    $command -o "$out/$name.new" && mv "$out/$name.new" "$out/$name" || { echo "cannot build $name" >&2; exit 1; }
' sh LINE "$out"
