#!/bin/sh
# Test suites of other people's software, untraced and under `sptrace run`: the results must be the same.
#
# usage: tests/suites.sh [DIR]      (work directory, default /tmp/sptrace-suites; what was built there is used again)
#
# Debian's sources of gawk (`make check`: some 550 tests, 3,000 processes), catch2 (its self-test: 1,600 assertions, most
# of which throw) and zlib (`make test`), and of CPython's own suite, as installed, the tests of threads, signals, child
# processes and exceptions; of libsigsegv and libunwind (`make check`), and of redis, whose servers run under `--keep-pid`.
# Needs the network, dpkg-dev, g++, make, tcl, libpython3.11-testsuite; takes some minutes. Not a step of .ci/run for that
# reason. Prints the counts of each suite; the status is 1 if one differs. $SUITES: the names of some alone.
set -eu
cd "$(dirname "$0")/.."
sptrace=${SPTRACE:-$(pwd)/target/release/sptrace}
work=${1:-/tmp/sptrace-suites}
mkdir -p "$work/apt/lists/partial"
work=$(cd "$work" && pwd)
export LC_ALL=C

# the machine's own sources, for source packages
sed -s 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources > "$work/apt/debian.sources" 2> /dev/null || :
sed 's/^deb /deb-src /' /etc/apt/sources.list > "$work/apt/debian.list" 2> /dev/null || :
apt="-qq -o Dir::Etc::sourcelist=- -o Dir::Etc::sourceparts=$work/apt -o Dir::State::lists=$work/apt/lists -o APT::Sandbox::User=root"
wanted() { case " ${SUITES:-$1} " in *" $1 "*) return 0;; esac; return 1; }
fetch() {
    [ ! -d "$work/$1" ] || return 0
    apt-get $apt update
    (cd "$work" && apt-get $apt source --download-only "$1" && dpkg-source --no-check -x "$1"_*.dsc "$1" > /dev/null)
}
# of what configures itself by autoconf
build() {
    fetch "$1"
    [ -e "$work/$1.built" ] || { (cd "$work/$1" && ./configure && make -j2) > "$work/$1.build" 2>&1; touch "$work/$1.built"; }
}

if wanted gawk; then
    fetch gawk
    # (its documentation cannot be built from Debian's source)
    [ -x "$work/gawk/gawk" ] || (cd "$work/gawk" && { ./configure && make -k -j2; } > "$work/gawk.build" 2>&1) || [ -x "$work/gawk/gawk" ]
    # One test of gawk is left out: whether a second begins between its two readings of the clock is chance.
    sed -i 's/^\(\ttestext\) time$/\1/' "$work/gawk/test/Makefile"
fi
if wanted zlib; then
    fetch zlib
    [ -e "$work/zlib/libz.a" ] || (cd "$work/zlib" && { ./configure && make -j2; } > "$work/zlib.build" 2>&1)
fi
! wanted catch2 || fetch catch2
if wanted catch2 && [ ! -x "$work/catch2/selftest" ]; then
    cd "$work/catch2" && mkdir -p objects
    for file in include/internal/*.cpp include/reporters/*.cpp projects/SelfTest/*.cpp projects/SelfTest/UsageTests/*.cpp projects/SelfTest/IntrospectiveTests/*.cpp; do
        echo "g++ -std=c++14 -O1 -Iinclude -Iprojects/SelfTest -c $file -o objects/$(echo "$file" | tr / _).o"
    done | xargs -P2 -I{} sh -c '{}' > "$work/catch2.build" 2>&1
    g++ objects/*.o -o selftest
fi
! wanted libsigsegv || build libsigsegv
! wanted libunwind || build libunwind
if wanted redis; then
    fetch redis
    [ -x "$work/redis/src/redis-benchmark" ] || make -C "$work/redis" -j2 MALLOC=libc > "$work/redis.build" 2>&1
    # The suite starts src/redis-server and takes the number of that process for the server's.
    if [ ! -e "$work/redis/src/redis-server.untraced" ]; then
        mv "$work/redis/src/redis-server" "$work/redis/src/redis-server.untraced"
        printf '%s\n' '#!/bin/sh' 'exec $TRACER "$(dirname "$0")/redis-server.untraced" "$@"' > "$work/redis/src/redis-server"
        chmod +x "$work/redis/src/redis-server"
    fi
fi
if wanted cpython; then
    mkdir -p "$work/cpython"
    /usr/bin/python3 -c 'import test.test_threading' 2> /dev/null || { echo "suites: CPython's tests are not installed (apt-get install libpython3.11-testsuite)" >&2; exit 1; }
fi

failed=0
# What the traced run is started by, and what a trace must say of itself.
tracer() { "$sptrace" run -q -o "$work/$name.data" -- "$@"; }
# NAME DIRECTORY COUNT COMMAND...: COUNT is a sed script that leaves of the output what must be the same
suite() {
    name=$1 directory=$2 count=$3; shift 3
    wanted "$name" || return 0
    cd "$work/$directory"
    "$@" > "$work/$name.untraced" 2>&1 && untraced=0 || untraced=$?
    tracer "$@" > "$work/$name.traced" 2>&1 && traced=0 || traced=$?
    for how in untraced traced; do sed -n "$count" "$work/$name.$how" > "$work/$name.$how.counts"; done
    if [ "$untraced" = "$traced" ] && cmp -s "$work/$name.untraced.counts" "$work/$name.traced.counts" && [ -s "$work/$name.traced.counts" ]
    then verdict='ok  '; else verdict=FAIL failed=1; fi
    echo "$verdict $name: status $untraced untraced, $traced traced; $(wc -l < "$work/$name.traced.counts") lines of results; $("$sptrace" report -i "$work/$name.data" | sed -n 's/^events *//p')"
    [ "$verdict" != FAIL ] || diff "$work/$name.untraced.counts" "$work/$name.traced.counts" | head -20
}
# the name of each test, and the differences of those that fail (some need locales)
suite gawk gawk/test 's/[[:space:]][0-9]\{4\}-[0-9].*//; /^make/d; /^gcc/d; p' make check
suite catch2 catch2 '/^test cases:\|^assertions:\|failed/p' ./selftest
suite zlib zlib '/test OK\|error\|OK$/p' make test
# each test with its result, whatever threads have printed in between
suite cpython cpython 's/^.*\(test_[A-Za-z0-9_]* (test\.[^)]*)\).*$/\1/p; s/^.* \.\.\. \(ok\|FAIL\|ERROR\|skipped .*\|expected failure\)$/\1/p; /^Total tests/p; /^Result/p' \
    /usr/bin/python3 -m test -v test_threading test_signal test_subprocess test_exceptions
# Words of records that make no sense were lost here once: these suites fill stacks, and walk them from anywhere.
suite libsigsegv libsigsegv '/^PASS\|^FAIL\|^SKIP\|^# /p' make check
suite libunwind libunwind '/^PASS\|^XFAIL\|^FAIL\|^SKIP\|^# /p' make check
# Each server is recorded for itself, and is the process that the suite has started.
tracer() { TRACER="$sptrace run --keep-pid -q -o $work/redis.data --" "$@"; }
suite redis redis 's/\x1b\[[0-9;]*m//g; s/^\[ok\]: \(.*\) (.*)/ok \1/p; s/^\[err\]: /err /p; /All tests passed/p' \
    ./runtest --clients 1 --single unit/type/string --single unit/type/list --single unit/expire --single unit/dump --single unit/auth --single unit/multi --single integration/aof --single integration/rdb
exit $failed
