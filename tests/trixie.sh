#!/bin/sh
# Programs of Debian 13 (glibc 2.41, DT_RELR, code marked for CET) in a root of their own, untraced and traced: both the same?
#
# usage: tests/trixie.sh [DIR]      (where the root is kept, default ~/.cache/sptrace-trixie; 900 MB, made once in 2 minutes)
#
# Given: a built sptrace ($SPTRACE or target/release/sptrace, linked with a glibc that is not newer than 2.41), the right of
# root, debootstrap and binutils, and when the root is made an archive that has Debian 13: $MIRROR, or the one that this
# machine's apt uses. Gives: a line for each of twelve programs, then `N passed, N failed`; status 1 if one failed. Output,
# errors and status must be the same, the trace must have calls of the program and of libc, and nothing may be lost. Not a
# step of .ci/run, for the archive and the room. Knows nothing of how sptrace works.
set -eu
cd "$(dirname "$0")/.."
sptrace=${SPTRACE:-$(pwd)/target/release/sptrace}
kept=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/sptrace-trixie}
root=$kept/root
packages=python3-minimal,sqlite3,git,gcc,libc6-dev,perl,openssl,gawk,jq,xz-utils,curl,make,bc
fail() { echo "trixie: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root, for chroot"
[ -x "$sptrace" ] || fail "no $sptrace: build it (cargo build --release), or set SPTRACE"

# The archive of Debian itself that this machine installs from, in either form of its configuration.
archive() {
    cat /etc/apt/sources.list.d/*.sources 2> /dev/null | sed -n 's/^URIs: *\([^ ]*\/debian\/*\)\( .*\)\{0,1\}$/\1/p'
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2> /dev/null | sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\/debian\/*\) .*/\2/p'
}
if [ ! -e "$kept/made" ]; then
    command -v debootstrap > /dev/null || fail "debootstrap is not installed (apt-get install debootstrap)"
    mirror=${MIRROR:-$(archive | head -n 1)}
    [ -n "$mirror" ] || fail "apt's configuration names no archive of Debian: set MIRROR to one"
    rm -rf "$root"
    mkdir -p "$root"
    echo "making $root" >&2
    debootstrap --variant=minbase --include=$packages trixie "$root" "$mirror" > "$kept/log" 2>&1 || { tail -n 5 "$kept/log" >&2; fail "debootstrap has failed, see $kept/log; MIRROR names another archive"; }
    : > "$kept/made"
fi
# What is asked for is there: this is no older system.
needs() { file=$1 what=$2; shift 2; "$@" "$root/$file" 2> /dev/null | grep -q "$what" || fail "$file has no $what: no Debian 13 in $root?"; }
needs lib/x86_64-linux-gnu/libc.so.6 RELR readelf -dW
needs lib/x86_64-linux-gnu/libm.so.6 GLIBC_2.41 readelf -VW
needs usr/bin/bash endbr64 objdump -d --section=.text
cp "$sptrace" "$root/usr/local/bin/sptrace"
chroot "$root" sptrace --version > /dev/null || fail "$sptrace does not run on Debian 13"

# What is mounted goes with the namespace.
[ -n "${TRIXIE_INSIDE:-}" ] || exec env TRIXIE_INSIDE=1 SPTRACE="$sptrace" unshare --mount "$0" "$kept"
mount -t proc proc "$root/proc"
# git and curl open them
[ -c "$root/dev/null" ] || mount --bind /dev "$root/dev"

inside() { chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 PYTHONHASHSEED=0 "$@"; }
passed=0 failed=0
# NAME COMMAND...: runs in an empty folder; NAME is a module that the trace must have
program() {
    name=$1; shift
    for how in untraced traced; do
        rm -rf "$root/work" "$root/trace"
        mkdir "$root/work" "$root/trace"
        prefix=
        [ $how = untraced ] || prefix='sptrace run -q -o /trace/data --'
        inside sh -c 'cd /work && exec "$@"' sh ${prefix:+/usr/local/bin/}$prefix "$@" > "$kept/$name.$how.out" 2> "$kept/$name.$how.err" < /dev/null && status=0 || status=$?
        echo "status $status" >> "$kept/$name.$how.out"
    done
    wrong=
    cmp -s "$kept/$name.untraced.out" "$kept/$name.traced.out" || wrong="$wrong; the output or the status differs"
    cmp -s "$kept/$name.untraced.err" "$kept/$name.traced.err" || wrong="$wrong; what it says on stderr differs"
    [ "$(wc -c < "$kept/$name.untraced.out")" -gt 20 ] || wrong="$wrong; untraced it does nothing"
    "$sptrace" report functions --format csv -i "$root/trace/data" > "$kept/$name.csv" || wrong="$wrong; no trace"
    for module in "$name" libc.so.6; do
        cut -d, -f1 "$kept/$name.csv" | grep -q "^$module" || wrong="$wrong; no calls in $module"
    done
    lost=$("$sptrace" report coverage --format csv -i "$root/trace/data" | sed -n 's/^loss,\([^,]*\),\([1-9][0-9]*\).*/\2 \1/p')
    [ -z "$lost" ] || wrong="$wrong; $lost"
    calls=$("$sptrace" report -i "$root/trace/data" | sed -n 's/^events .*; //p')
    if [ -z "$wrong" ]; then passed=$((passed + 1)); echo "ok   $name: $calls"
    else failed=$((failed + 1)); echo "FAIL $name: ${wrong#; } (see $kept/$name.*)"; fi
}

program sqlite3 sqlite3 :memory: "with recursive n(i) as (select 1 union all select i+1 from n where i<20000) select sum(i), count(distinct i%97), max(hex(i)) from n;
    create table t(a integer primary key, b text); insert into t select value, 'row '||value from generate_series(1,2000); select b, length(b) from t where a%500=0; pragma integrity_check;"
program python3.13 python3 -c '
import json, re, subprocess, sys, threading, zlib
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
class Wrong(Exception): pass
def deep(n):
    if n == 0: raise Wrong("out of the deep")
    deep(n - 1)
got = []
threads = [threading.Thread(target=lambda n=n: got.append(fib(12 + n))) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
try: deep(200)
except Wrong as e: print(e)
print(sorted(got), json.dumps({"a": [1, 2.5, None]}), re.sub(r"(\w)(\d)", r"\2\1", "a1b2"), zlib.crc32(b"x" * 100000))
print(subprocess.run(["/bin/echo", "child"], capture_output=True).stdout, file=sys.stderr)
sys.exit(3)'
program git sh -c 'export GIT_AUTHOR_DATE="2025-01-01T00:00:00Z" GIT_COMMITTER_DATE="2025-01-01T00:00:00Z" GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=me GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=me@example.org
    git init -q -b main . && seq 1 500 > a && git add a && git commit -qm one && sed -i s/7/seven/ a && git commit -qam two && git log --stat --format="%H %s" && git diff HEAD~1 | sha256sum && git gc -q && git fsck'
program cc1 sh -c 'printf "%s\n" "#include <stdio.h>" "#include <stdlib.h>" "#include <string.h>" "static int by(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }" "int (*compare[])(const void *, const void *) = {by, by, by};" "int main(int n, char **v) { qsort(v, n, sizeof *v, compare[n % 3]); for (int i = 0; i < n; i++) puts(v[i]); return 7; }" > a.c
    gcc -O2 -g -Wall -fcf-protection=full -Wl,-z,pack-relative-relocs a.c -o a && sha256sum a && ./a z y x'
program perl perl -e 'my %h; $h{$_ % 13} .= chr(65 + $_ % 26) for 1..3000; print join(" ", map { "$_:" . length $h{$_} } sort { $a <=> $b } keys %h), "\n"; my $s = join ",", 1..500; my $n = () = $s =~ /(\d)(?=\1)/g; print "$n\n"; eval { die { code => 5 } }; warn "died with $@->{code}\n"; exit $@->{code}'
program bash bash -c 'fib() { (( $1 < 2 )) && { echo "$1"; return; }; echo $(( $(fib $(($1 - 1))) + $(fib $(($1 - 2))) )); }; fib 8; declare -A m; for w in one two three two one two; do (( m[$w]++ )); done; for k in one two three; do echo "$k ${m[$k]}"; done; trap "echo bye; exit 4" TERM; kill -TERM $$; echo not here'
program openssl sh -c 'head -c 300000 /usr/bin/openssl > f && openssl dgst -sha512 f && openssl dgst -blake2b512 f && openssl enc -aes-256-cbc -pbkdf2 -iter 1000 -S 0102030405060708 -k secret -in f -out g && openssl dgst -sha3-256 g && openssl enc -d -aes-256-cbc -pbkdf2 -iter 1000 -S 0102030405060708 -k secret -in g | cmp - f && echo same; openssl prime 1000003; openssl x509 -in /nowhere'
program gawk gawk 'BEGIN { srand(1); for (i = 0; i < 20000; i++) { n[int(rand() * 50)]++; s = s sprintf("%x", i % 16) } PROCINFO["sorted_in"] = "@ind_num_asc"; for (k in n) printf "%d:%d ", k, n[k]; print gensub(/(a)(b+)/, "\\2\\1", "g", "xabbbyab"), length(s), strftime("%F", 0, 1); exit 9 }'
program libjq.so sh -c 'jq -nc "[range(3000)] | map({id: ., name: \"n\(.)\", odd: (. % 2 == 1)}) | group_by(.odd) | map({odd: .[0].odd, n: length, sum: (map(.id) | add), last: (.[-1].name | ascii_upcase | test(\"N2\"))})" && echo "{" | jq .'
program xz sh -c 'tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - /usr/share/perl5 /usr/share/doc/git 2> /dev/null | tee a.tar | xz -2 -T2 > a.xz; xz -t a.xz && xz -dc a.xz | cmp - a.tar && xz -l --robot a.xz | tail -n 1'
program libcurl.so sh -c 'curl -s file:///etc/os-release file:///usr/share/common-licenses/GPL-3 | sha256sum; curl --version; curl -sS file:///nowhere; curl -s --variable a=b --expand-url "file:///etc/{{a}}"'
program gzip sh -c 'seq 1 60000 > a && gzip -9nk a && sha256sum a.gz && gzip -dc a.gz | cmp - a && gzip -l a.gz; head -c 1000 a.gz | gzip -t'
echo "$passed passed, $failed failed"
[ $failed = 0 ]
