#!/bin/sh
# strace's own test suite, run with sptrace in strace's place.
#
# usage: tests/strace_suite.sh [DIR]    (work directory, default /tmp/sptrace-strace; what was built there is used again)
#
# Debian's source package strace: its test programs say of each system call what strace shows of it. tests/as_strace.py
# translates strace's command line. Needs the network and dpkg-dev, autoconf's tools as of Debian's package, python3; takes
# some six minutes on two processors. Not a step of .ci/run for that reason. Prints a line a cause with how many tests fail by it,
# and at the end how many pass; in DIR, `passed` and `failed` name them, with causes. $TESTS: a glob of tests; $JOBS: how many
# run at once. The status is 1 if fewer than $WANTED (250) pass.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
export SPTRACE="${SPTRACE:-$root/target/release/sptrace}"
work=${1:-/tmp/sptrace-strace}
mkdir -p "$work/apt/lists/partial"
work=$(cd "$work" && pwd)
export LC_ALL=C

# the machine's own sources, for source packages
if [ ! -d "$work/strace" ]; then
    sed -s 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources > "$work/apt/debian.sources" 2> /dev/null || :
    sed 's/^deb /deb-src /' /etc/apt/sources.list > "$work/apt/debian.list" 2> /dev/null || :
    apt="-qq -o Dir::Etc::sourcelist=- -o Dir::Etc::sourceparts=$work/apt -o Dir::State::lists=$work/apt/lists -o APT::Sandbox::User=root"
    apt-get $apt update
    (cd "$work" && apt-get $apt source --download-only strace && dpkg-source --no-check -x strace_*.dsc strace > /dev/null)
fi
if [ ! -e "$work/built" ]; then
    (cd "$work/strace" && ./configure --enable-mpers=no && make -j2 && cd tests && make -j2 check TESTS=) > "$work/build" 2>&1
    touch "$work/built"
fi
exec python3 "$root/tests/harness/strace_suite.py" "$work" "$root/tests/as_strace.py" "${TESTS:-*}" "${JOBS:-2}" "${WANTED:-250}"
