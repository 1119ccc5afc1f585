#!/bin/sh
# In a guest whose time stamp counter counts instructions: what a write(2) takes while sptrace, trace-cmd and bpftrace record the
# same, and what a call of a function takes with a payload of sptrace's or a uprobe. For tests/vm/cost, which reads the lines "NAME: cost MEDIAN MEAN".
T=/sys/kernel/tracing
mount -t tracefs none $T
mount -t debugfs none /sys/kernel/debug 2>/dev/null
export HOME=/tmp LD_LIBRARY_PATH=/tools BPFTRACE_STRLEN=64
CALLS=20000
EVENTS='-e raw_syscalls -e irq -e exceptions -e signal:signal_deliver -e sched:sched_switch -e sched:sched_waking -e task:task_newtask -e sched:sched_process_exec -e sched:sched_process_exit -e irq_vectors'

cost() { # NAME COMMAND...: records the program by this
    name=$1
    shift
    timeout 300 "$@" >"$name.out" 2>"$name.said"
    echo "$name: $(grep -h '^cost ' "$name.out" || { echo "failed: $(tail -n 2 "$name.said" | tr '\n' ' ')"; })"
}
bpf() { # NAME PROGRAM: the program runs while bpftrace records it
    cost "$1" /bpftrace -q -o /tmp/bpf.out -c "/cost $CALLS" -e "$2"
}

cost nothing /cost $CALLS
cost sptrace.events /sptrace ktrace -q -o e.data --level events -- /cost $CALLS
cost sptrace.function /sptrace ktrace -q -o f.data -F vfs_write -D 1 -- /cost $CALLS
cost sptrace.probe /sptrace ktrace -q -o p.data --level probes -F vfs_write -- /cost $CALLS
cost sptrace.value /sptrace ktrace -q -o v.data --level events -A vfs_write@arg3/u -- /cost $CALLS
cost sptrace.count /sptrace ktrace -q -o c.data --level events --eval 'let n = count("sizes", ["size"]); at("vfs_write").on_enter(|c| n.add(c.arg3)); record_only_syscalls("getpid")' -- /cost $CALLS
cost trace-cmd.events /trace-cmd record -q -o /tmp/e.dat -C x86-tsc $EVENTS -F -c /cost $CALLS
cost trace-cmd.function /trace-cmd record -q -o /tmp/f.dat -C x86-tsc $EVENTS -p function_graph -l vfs_write -F -c /cost $CALLS
echo 'p:cost/enter vfs_write n=%dx:x64' >$T/kprobe_events
echo 'r:cost/leave vfs_write r=%ax:x64' >>$T/kprobe_events
cost trace-cmd.value /trace-cmd record -q -o /tmp/v.dat -C x86-tsc $EVENTS -e cost -F -c /cost $CALLS
echo 'hist:keys=n' >$T/events/cost/enter/trigger
cost trace-cmd.count /cost $CALLS
echo '!hist:keys=n' >$T/events/cost/enter/trigger
echo 0 >$T/events/cost/enable
echo >$T/kprobe_events
bpf bpftrace.events 'tracepoint:raw_syscalls:sys_enter /pid == cpid/ { printf("%llu %d\n", nsecs, args->id); } tracepoint:raw_syscalls:sys_exit /pid == cpid/ { printf("%llu %d\n", nsecs, args->ret); }'
bpf bpftrace.function 'kprobe:vfs_write /pid == cpid/ { printf("%llu\n", nsecs); } kretprobe:vfs_write /pid == cpid/ { printf("%llu\n", nsecs); }'
bpf bpftrace.value 'kprobe:vfs_write /pid == cpid/ { printf("%llu %lu\n", nsecs, arg2); } kretprobe:vfs_write /pid == cpid/ { printf("%llu %ld\n", nsecs, retval); }'
bpf bpftrace.count 'kprobe:vfs_write /pid == cpid/ { @[arg2] = count(); }'

# What is added up at a call of a function of the program, in the program or by a uprobe.
payload() { # NAME SCRIPT PROGRAM: by sptrace, and by bpftrace
    cost "sptrace.$1" /sptrace run -q -o p.data --eval "$2" -- /cost $CALLS call
    cost "bpftrace.$1" /bpftrace -q -o /tmp/bpf.out -c "/cost $CALLS call" -e "$3"
}
cost call /cost $CALLS call
cost sptrace.record /sptrace run -q -o r.data -- /cost $CALLS call
payload false 'let n = count("n", []); at("f_two").on_enter(|c| if c.arg1 < 0 { n.add([]); })' 'uprobe:/cost:f_two /(int64)arg0 < 0/ { @ = count(); }'
payload key 'let n = count("n", ["a"]); at("f_two").on_enter(|c| n.add(c.arg1 & 63))' 'uprobe:/cost:f_two { @[arg0 & 63] = count(); }'
payload histogram 'let n = histogram("n", [], "a"); at("f_two").on_enter(|c| n.add(c.arg1))' 'uprobe:/cost:f_two { @ = hist(arg0); }'
payload stack 'let n = count("n", ["s"]); at("f_two").on_enter(|c| n.add(c.stack(8)))' 'uprobe:/cost:f_two { @[ustack(8)] = count(); }'
payload duration 'let n = histogram("n", [], "ns"); at("f_two").on_exit(|c| n.add(c.elapsed))' 'uprobe:/cost:f_two { @since[tid] = nsecs; } uretprobe:/cost:f_two { @ = hist(nsecs - @since[tid]); delete(@since[tid]); }'
exit 0
