#!/bin/sh
# In a guest: users, groups and capabilities change in each way that tests/privileges.py looks at. What each command said is in
# NAME.said, what it wrote in NAME.data, its status in NAME.status.
T=/sys/kernel/tracing
mount -t tracefs none $T
K=/sptrace
export HOME=/tmp

said() { # NAME ARGUMENT...: ktrace with these
    name=$1
    shift
    timeout 60 $K ktrace -o "$name.data" "$@" >"$name.out" 2>"$name.said"
    echo $? >"$name.status"
}
cat $T/kprobe_events >before.probes
cp /identity /suid
chmod 4755 /identity /suid
chmod 755 / /out
said changes --privileges --level events -- /identity
said suid --privileges -D 1 -F commit_creds -- /identity suid
said quiet --privileges --level events -- /bin/busybox true
cat $T/kprobe_events >after.probes
exit 0
