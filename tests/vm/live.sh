#!/bin/sh
# In a guest: `sptrace ktrace --live` in each way that tests/kernel_live.py looks at. What each command said is in NAME.said, what it
# wrote in NAME.data, its lines in NAME.lines, its status in NAME.status. With /crash the kernel crashes in the end.
T=/sys/kernel/tracing
mount -t tracefs none $T
K=/sptrace
export HOME=/tmp

if [ -e /crash ]; then
    $K ktrace -q -o crash.data --level events --live=serial:/dev/ttyS2 --live-only write --live-only nanosleep -a >crash.said 2>&1 &
    sleep 1
    # From 6.9 on the kernel prints what an instance's buffers hold when it crashes, if it is named.
    for instance in "$T"/instances/sptrace-*; do
        echo "${instance##*/}" >/proc/sys/kernel/ftrace_dump_on_oops
    done 2>/dev/null
    /brackets >/dev/null
    sleep 1
    echo c >/proc/sysrq-trigger
fi
said() { # NAME ARGUMENT...: ktrace with these
    name=$1
    shift
    timeout 60 $K ktrace -o "$name.data" "$@" >"$name.out" 2>"$name.said"
    echo $? >"$name.status"
}
said serial --level events --live=serial:/dev/ttyS2 --live-only write --live-only '[signals]' -- /brackets
said file --blocks pipe_write:exits --live=file.lines --live-only pipe_write -- /brackets
said piped --level events --live='|cat >piped.lines' -- /brackets
# The output is read some seconds after the command has ended: then sptrace has had the time to come to the end.
said slow --level events --live='|until [ -e /tmp/over ]; do sleep 0.1; done; sleep 4; cat >slow.lines' -- /bin/busybox sh -c 'dd if=/dev/zero of=/dev/null bs=1 count=12000; : >/tmp/over'
said wrong --live=/no/such/folder/x -- /brackets
cat >hang <<'END'
mkfifo /tmp/hung
sh -c 'exec cat /tmp/hung' &
sleep 1.5
kill $!
END
said hung --level events --live=hung.lines --live-only openat -- /bin/busybox sh hang
exit 0
