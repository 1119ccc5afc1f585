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
                cancel alarm closefds procself smallstack sigprof sandbox forkwire altstack twins nullcall jumpout; do
        echo "$case.O0|gcc $C -O0 $case/$case.c"
        echo "$case.O2|gcc $O -O2 $case/$case.c"
    done
    echo "tailcalls.O0|gcc $C -O0 tailcalls/tailcalls.c"
    echo "tailcalls.O2|gcc $O -O2 tailcalls/tailcalls.c"
    echo "tailcalls.O2-cet|gcc $O -O2 -fcf-protection=full tailcalls/tailcalls.c"
    echo "counted.O2|gcc $O -O2 counted/counted.c"
    echo "plug.so|gcc $O -O2 -shared -fPIC dlopen/plug.c"
    echo "dlopen.O0|gcc $C -O0 dlopen/dlopen.c -Wl,-rpath,\$ORIGIN"
    echo "dlopen.O2|gcc $O -O2 dlopen/dlopen.c -Wl,-rpath,\$ORIGIN"
    for case in manythreads sandthrow; do
        echo "$case.O0|g++ $C -O0 $case/$case.cpp"
        echo "$case.O2|g++ $O -O2 $case/$case.cpp"
    done
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
