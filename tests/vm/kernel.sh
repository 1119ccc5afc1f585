#!/bin/sh
# In a guest: records by `sptrace ktrace` in each way that tests/guest.py looks at. What each command said is in NAME.said, what
# it wrote in NAME.data, its status in NAME.status; the settings of the kernel's tracing are in NAME.state.
T=/sys/kernel/tracing
mount -t tracefs none $T
K=/sptrace
export HOME=/tmp
timeout='timeout 60'

said() { # NAME ARGUMENT...: ktrace with these
    name=$1
    shift
    $timeout $K ktrace -o "$name.data" "$@" >"$name.out" 2>"$name.said"
    echo $? >"$name.status"
    echo "$(cut -d ' ' -f 1 /proc/uptime) $name"
}
state() { # NAME: every setting that there is
    for file in $T/buffer_percent $T/buffer_size_kb $T/per_cpu/*/buffer_size_kb $T/current_tracer $T/dynamic_events $T/enabled_functions \
        $T/kprobe_events $T/max_graph_depth $T/set_* $T/trace_clock $T/tracing_cpumask $T/tracing_on $T/tracing_thresh $T/options/*; do
        echo "== $file"
        cat "$file"
    done >"$1.state" 2>&1
    ls $T/instances >>"$1.state"
}
until_so() { # COMMAND: waits until it succeeds, 10 s at most
    for _ in $(seq 50); do
        if eval "$1" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
}

child() { # PID: its child, as soon as it has one
    for _ in $(seq 50); do
        if grep -l "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status 2>/dev/null | head -n 1 | grep -o '[0-9]*'; then return; fi
        sleep 0.2
    done
}
is_quick() { [ -e /quick ]; }

# The top level's buffer has its full size once anybody has used it, and never again a smaller one.
cat $T/buffer_size_kb | grep -q expanded && echo 1408 >$T/buffer_size_kb
state fresh
$K ktrace --check >check.out
said functions -- /brackets
said values -D 1 -A 'vfs_write@arg3/u,retval/d' -A 'vfs_getxattr' -A 'ksys_read@count!=1' -- /brackets
said script -D 1 --eval 'let n = count("sizes", ["size"]); let b = sum("bytes", ["one"], ["bytes"]); let h = histogram("by two", [], "size");
at("ksys_write").on_enter(|c| { n.add(c.count); b.add(c.tid, c.arg3); h.add(c.count); if c.count == 1 { c.record(); } });' -- /brackets
said turns -D 1 --start-on call:vfs_getxattr#3 --stop-on return:vfs_getxattr#6 -- /brackets
is_quick || {
said refused --eval 'let n = count("sizes", ["size"]); at("ksys_write").on_enter(|c| { n.add(c.count << 2); });' -- /brackets
said calls --eval 'record_only_syscalls("getppid,write")' -- /brackets
said dumps --ring 2M --dump-on call:vfs_getxattr#40 --dump-on exit -D 1 -- /brackets
said deep -F pipe_write -F pipe_read --root syscalls -D 4 -- /brackets
said shallow -D 1 -N '__x64_sys_write' -- /brackets
said probes --level probes -F ksys_write -F vfs_write -- /brackets
said events --level events -- /brackets
sh -c 'while :; do :; done' &
busy=$!
sh -c 'while :; do /bin/busybox cat /dev/null; done' &
starting=$!
said attached -p $starting --for 1s -D 2
kill $starting
said machine -a --for 1s --root interrupts,softirqs -D 2
kill $busy
said nothing -F 'no_such_function*' -- /brackets
said many -F '*_*' -- /brackets
said tiny --buffer 4 -D 3 -- /bin/busybox dd if=/dev/zero of=/dev/null bs=1 count=20000
}
state recorded

# The kernel counts, too, in another instance.
echo 'p:oracle/ppid __x64_sys_getppid' >>$T/kprobe_events
echo 'p:oracle/xattr vfs_getxattr' >>$T/kprobe_events
mkdir $T/instances/oracle
echo 1 >$T/instances/oracle/events/oracle/enable
cat $T/kprobe_profile >profile0
# It asks for its parent's number itself.
timeout=
said counted -F vfs_getxattr --root syscalls -D 1 -- /brackets
cat $T/kprobe_profile >profile1
is_quick || said probed --level probes -F vfs_getxattr -F __x64_sys_getppid -- /brackets
cat $T/kprobe_profile >profile2
timeout='timeout 60'
echo 0 >$T/instances/oracle/events/oracle/enable
rmdir $T/instances/oracle
echo >$T/kprobe_events

# Settings of somebody who traces nothing at the moment are given back, also after SIGKILL.
echo 'vfs_read vfs_write' >$T/set_ftrace_filter
echo kfree >$T/set_ftrace_notrace
echo 1 >$T/set_ftrace_pid
echo global >$T/trace_clock
echo 700 >$T/buffer_size_kb
if [ -e $T/per_cpu/cpu1 ]; then echo 900 >$T/per_cpu/cpu1/buffer_size_kb; fi
if ! grep -q function_graph $T/available_tracers; then exit 3; fi
mkdir $T/instances/look
if ! grep -q function_graph $T/instances/look/available_tracers; then
    echo do_exit >$T/set_graph_function
    echo schedule >$T/set_graph_notrace
    echo 7 >$T/max_graph_depth
fi
rmdir $T/instances/look
state own
said own -D 1 -- /brackets
state own.after
for level in functions probes; do
    if is_quick && [ $level = probes ]; then break; fi
    $K ktrace -o killed.data -D 1 --level $level -F vfs_getxattr -- /bin/busybox sleep 100 >killed.$level.said 2>&1 &
    sptrace=$!
    command=$(child $sptrace)
    until_so 'cat $T/current_tracer $T/instances/sptrace*/current_tracer $T/kprobe_events | grep -q "function_graph\|sptrace_"'
    sleep 0.5
    kill -9 $sptrace
    wait $sptrace
    kill -9 $command
    state killed.$level
    if ! is_quick && grep -q function_graph $T/current_tracer; then
        # Somebody begins to use what is not given back yet.
        echo function >$T/current_tracer
        $K ktrace --cleanup >taken.said 2>&1
        cat $T/current_tracer >taken.tracer
        echo nop >$T/current_tracer
    fi
    if [ $level = functions ]; then $K ktrace --cleanup >cleaned.$level.said 2>&1; else said next -D 1 -- /brackets; fi
    state cleaned.$level
done
echo >$T/set_graph_function
echo >$T/set_graph_notrace
echo 0 >$T/max_graph_depth

is_quick && exit 0

# Somebody traces at the top level.
echo function >$T/current_tracer
state used
said used -D 1 -- /brackets
said used.events --level events -- /brackets
state used.after
echo nop >$T/current_tracer
echo 1 >$T/events/sched/sched_switch/enable
state switched
said switched -D 1 -- /brackets
state switched.after
echo 0 >$T/events/enable

echo 2 >/proc/sys/kernel/kptr_restrict
said hidden -- /brackets
said hidden.asked --level functions -- /brackets
exit 0
