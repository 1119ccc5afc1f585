#!/bin/sh
# The long run before a release: everything five times, what may race fifty times, under a second load; then half an hour of
# random combinations; then each fuzz target for ten minutes (needs the nightly toolchain and cargo-fuzz).
#
# usage: tests/long.sh [DIR [race|all|scripts|stress|fuzz]...]        SPTRACE names the binary (else target/release/sptrace)
#
# Given: a built sptrace. Gives: one log for each part in DIR (default: a new folder), and a line for each with its last line;
# status 1 if any part failed. Takes some hours on two processors. CI runs a bounded part of each (.ci/run).
set -u
cd "$(dirname "$0")/.."
logs=${1:-$(mktemp -d /var/tmp/sptrace-long-XXXXXX)}
[ $# -eq 0 ] || shift
parts=${*:-race all scripts stress fuzz}
mkdir -p "$logs"
programs=$logs/programs
[ -d "$programs" ] || tests/programs/build.sh "$programs" >"$logs/build.log" 2>&1 || exit 1
racing='altstack alarm cancel exceptions forkwire jit manythreads panic procs sandthrow signals sigprof threads unwind'
everywhere=$(pwd)/tests/everywhere.rhai
only=
for name in $racing; do
    for variant in O0 O2 O3-lto clang cet static musl release stripped; do only="$only --only programs/$name.$variant"; done
    only="$only --only filter/$name.*"
done

# The second load: one busy process for each processor.
load=
for _ in $(seq "$(nproc)"); do nice -n 5 sh -c 'while :; do :; done' & load="$load $!"; done
trap 'kill $load 2>/dev/null' EXIT INT TERM

status=0
part() {
    name=$1
    shift
    if "$@" >"$logs/$name.log" 2>&1; then result=ok; else result=FAILED; status=1; fi
    printf '%-6s %-12s %s\n' "$result" "$name" "$(tail -n 1 "$logs/$name.log")"
}
race() {
    part race.run python3 tests/transparency.py --programs "$programs" $only --repeat 50
    part race.kill python3 tests/transparency.py --programs "$programs" $only --repeat 50 --kill
}
all() {
    for turn in 1 2 3 4 5; do
        part "all.run.$turn" python3 tests/transparency.py --programs "$programs" --repeat 4
        part "all.kill.$turn" python3 tests/transparency.py --programs "$programs" --kill --seed "$turn"
        part "count.$turn" python3 tests/transparency.py --programs "$programs" --option=--count
        part "order.$turn" python3 tests/transparency.py --programs "$programs" --option=--stamps --option=none
        part "order.kill.$turn" python3 tests/transparency.py --programs "$programs" --kill --seed "$turn" --option=--stamps --option=none
        part "order.calls.$turn" python3 tests/transparency.py --programs "$programs" --option=--stamps --option=none --option=--syscalls=all
        part "auto.calls.$turn" python3 tests/transparency.py --programs "$programs" --option=--stamps --option=auto --option=--syscalls=all
        part "order.within.$turn" python3 tests/transparency.py --programs "$programs" --option=--stamps --option=none --option=-F --option='*a*'
        part "replaced.$turn" python3 tests/transparency.py --programs "$programs" --option=--return-points=never
        part "replaced.kill.$turn" python3 tests/transparency.py --programs "$programs" --kill --seed "$turn" --option=--return-points=never
        part "replaced.calls.$turn" python3 tests/transparency.py --programs "$programs" --option=--return-points=never --option=--syscalls=all
        part "auto.$turn" python3 tests/transparency.py --programs "$programs" --option=--stamps --option=auto
        part "auto.kill.$turn" python3 tests/transparency.py --programs "$programs" --kill --seed "$turn" --option=--stamps --option=auto
        part "values.$turn" python3 tests/values.py --programs "$programs" --wild 10000000
        part "truth.$turn" python3 tests/truth.py --programs "$programs"
        part "truth.order.$turn" python3 tests/truth.py --programs "$programs" --option=--stamps --option=none --only 'order *'
        part "truth.auto.$turn" python3 tests/truth.py --programs "$programs" --option=--stamps --option=auto --only 'order *' --only 'counts *'
        part "goroutines.$turn" python3 tests/goroutines.py
        part "servers.$turn" python3 tests/servers.py
        part "servers.kill.$turn" python3 tests/servers.py --kill
        part "attach.$turn" python3 tests/attach.py --full --seed "$turn" --programs "$programs"
        part "exports.$turn" python3 tests/exports.py --long --programs "$programs"
        part "guest.$turn" python3 tests/guest.py
        part "blocks.$turn" python3 tests/blocks.py
        part "kernel_live.$turn" python3 tests/kernel_live.py
        part "killpoints.$turn" python3 tests/kill_points.py --programs "$programs"
    done
}
scripts() {
    part scripts.run python3 tests/transparency.py --programs "$programs" --repeat 4 --option=-S --option="$everywhere"
    part scripts.race python3 tests/transparency.py --programs "$programs" $only --repeat 20 --option=-S --option="$everywhere"
    part scripts.kill python3 tests/transparency.py --programs "$programs" --kill --option=-S --option="$everywhere"
    part scripts.points python3 tests/kill_points.py --programs "$programs" --first 5 --crowd 20 --option=-S --option="$everywhere"
}
stress() { part stress python3 tests/stress.py --for 1800 --seed 1 --programs "$programs"; }
fuzz() {
    for target in $(cargo +nightly fuzz list --fuzz-dir tests/fuzz || echo none); do
        part "fuzz.$target" cargo +nightly fuzz run --fuzz-dir tests/fuzz "$target" -- -max_total_time=600 -timeout=60
    done
}
for name in $parts; do "$name"; done
exit $status
