#!/bin/sh
# In a guest: records both sides by `sptrace run -K` and `attach -K`, for tests/merged.py. What each command said is in NAME.said,
# what the program wrote in NAME.out, the trace in NAME.data, the status in NAME.status; the settings of the kernel's tracing
# are in NAME.state.
T=/sys/kernel/tracing
mount -t tracefs none $T
K=/sptrace
export HOME=/tmp

ran() { # NAME ARGUMENT...: sptrace with these, its command first
    name=$1 verb=$2
    shift 2
    timeout 100 $K "$verb" -K -o "$name.data" "$@" >"$name.out" 2>"$name.said"
    echo $? >"$name.status"
    echo "$(cut -d ' ' -f 1 /proc/uptime) $name"
}
state() { # NAME: settings, and what is left
    for file in $T/current_tracer $T/set_* $T/trace_clock $T/tracing_on $T/kprobe_events $T/max_graph_depth $T/buffer_size_kb; do
        echo "== $file"
        cat "$file"
    done >"$1.state" 2>&1
    ls $T/instances >>"$1.state"
}
child() { # PID: its child, as soon as it has one
    for _ in $(seq 100); do
        if grep -l "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status 2>/dev/null | head -n 1 | grep -o '[0-9]*'; then return; fi
        sleep 0.1
    done
}
is_quick() { [ -e /quick ]; }

cat $T/buffer_size_kb | grep -q expanded && echo 1408 >$T/buffer_size_kb
state fresh
ran sides run -- /sides
ran syscalls run --syscalls --kernel-level events -- /sides
ran values run --kernel-depth 1 --kernel-argument 'vfs_write@arg3/u,retval/d' -- /sides
ran blocks run --kernel-blocks vfs_read:exits -- /sides
ran privileges run --kernel-level events --kernel-privileges -- /identity
ran spawn run --kernel-level events -- /sides spawn
state recorded

# Killed in the middle: the program goes on, the next start mends.
$K run -K -o killed.data -- /bin/busybox sleep 100 >killed.said 2>&1 &
sptrace=$!
command=$(child $sptrace)
for _ in $(seq 100); do grep -qs 1 $T/instances/sptrace*/tracing_on && break; sleep 0.1; done
sleep 2
kill -9 $sptrace
wait $sptrace
state killed
kill -0 "$command" && echo alive >killed.command
kill -9 "$command"
ran next run --kernel-depth 1 -- /sides
state mended

# A call that never returns.
mkfifo /tmp/fifo
$K run -K -o hang.data --kernel-filter fifo_open --kernel-filter wait_for_partner --kernel-root syscalls -- /sides hang /tmp/fifo >hang.out 2>hang.said &
sptrace=$!
command=$(child $sptrace)
# What is written while it hangs: at the latest when the kernel's side has come to its wait.
for _ in $(seq 100); do
    cp hang.data hang.early.data 2>/dev/null && $K report tree -i hang.early.data 2>/dev/null | grep -q 'waiting' && [ "$(tr '\0' ' ' <"/proc/$command/cmdline")" = '/sides hang /tmp/fifo ' ] && break
    sleep 0.2
done
kill -9 "$command"
wait $sptrace
echo $? >hang.status

is_quick && exit 0
ran tiny run --kernel-buffer 4 -- /bin/busybox dd if=/dev/zero of=/dev/null bs=1 count=5000
state tiny

# Somebody else takes the processor.
cp /sides /disturb
/disturb disturb &
disturb=$!
ran frames run --kernel-level events -- /sides frames
kill $disturb
ran calm run --kernel-level events -- /sides frames

# Who waits for whom?
for i in $(seq 400); do echo "line $i of a text that is long enough to be worth the name of a line, and has aaaaaaaaaaaaaaaaaaaaaaaab in it"; done >/tmp/text
for _ in 1 2 3 4 5 6; do cat /tmp/text; done >/tmp/big
ran pipeline run --kernel-filter pipe_read --kernel-filter pipe_write --kernel-depth 1 -- /gnu/dash -c "PATH=/gnu; cat /tmp/big | sed -e 's/\\(a*\\)*c//' -e 's/\\(a*\\)*d//' | grep line | sort >/dev/null"

/sides work &
working=$!
sleep 0.5
ran attached attach -p $working --for 1s
kill -0 $working && echo alive >attached.command
kill $working
exit 0
