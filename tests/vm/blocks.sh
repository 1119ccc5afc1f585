#!/bin/sh
# In a guest: hooks basic blocks of the kernel's functions in each way that tests/blocks.py looks at. What each command said is in
# NAME.said, what it wrote in NAME.data, its status in NAME.status.
T=/sys/kernel/tracing
mount -t tracefs none $T
K=/sptrace
export HOME=/tmp

said() { # NAME ARGUMENT...: ktrace with these
    name=$1
    shift
    timeout 90 $K ktrace -o "$name.data" "$@" >"$name.out" 2>"$name.said"
    echo $? >"$name.status"
    echo "$(cut -d ' ' -f 1 /proc/uptime) $name"
}
probes() { # NAME: what there is of them, and of instances
    cat $T/kprobe_events >"$1.probes"
    ls $T/instances >>"$1.probes"
}

counted() { # NAME FUNCTION...: their graphs with what the recording NAME has counted
    name=$1
    shift
    for function in "$@"; do
        $K analyze --kernel "$function" -i "$name.data" --format json >"$name.$function.json" 2>"$name.$function.error"
    done
}

probes before
cat >pipes <<'END'
dd if=/dev/zero bs=20000 count=30 2>/dev/null | cat >/dev/null
dd if=/dev/zero bs=100 count=50 2>/dev/null | (sleep 0.1; cat >/dev/null)
# More than a pipe holds, and a reader that begins when the writer waits, in its write(2).
rm -f /tmp/writer
sh -c 'echo $$ >/tmp/new; mv /tmp/new /tmp/writer; exec dd if=/dev/zero bs=100000 count=2 2>/dev/null' |
    (until grep -q '^1 ' "/proc/$(cat /tmp/writer)/syscall"; do sleep 0.05; done 2>/dev/null; cat >/dev/null)
END
said pipes --blocks pipe_write --blocks vfs_write --blocks try_to_wake_up -- /bin/busybox sh pipes
counted pipes pipe_write vfs_write try_to_wake_up
# A hit that comes while another is dealt with is missed: that may take a few attempts.
for _ in 1 2 3 4 5; do
    said woken --blocks try_to_wake_up -- /bin/busybox sh pipes
    grep -q ' 0 lost' woken.said && break
done
counted woken try_to_wake_up
$K analyze --kernel pipe_write --format svg >pipe_write.svg
$K analyze --kernel pipe_write --format dot >pipe_write.dot
$K analyze --kernel no_such_function >nothing.out 2>nothing.said
echo $? >nothing.status

# The kernel counts, too, by probes of somebody else at the same blocks, which come when the text has been read.
/bin/busybox sed -n 's/.*"block": "\(pipe_write+0x[0-9a-f]*\)".*/\1/p' pipes.pipe_write.json >places
cat >until_there <<'END'
until [ -e /tmp/go ]; do sleep 0.1; done
/brackets
END
$K ktrace -o counted.data --blocks pipe_write -- /bin/busybox sh until_there >counted.out 2>counted.said &
sptrace=$!
for _ in $(seq 100); do
    grep -q pipe_write counted.said && break
    sleep 0.1
done
while read -r place; do
    echo "p:oracle/o_${place#*+} $place" >>$T/kprobe_events 2>/dev/null
done <places
mkdir $T/instances/oracle
echo 1 >$T/instances/oracle/events/oracle/enable
cat $T/kprobe_profile >profile0
touch /tmp/go
wait $sptrace
echo $? >counted.status
cat $T/kprobe_profile >profile1
$K analyze --kernel pipe_write >hooked.out 2>hooked.said
echo 0 >$T/instances/oracle/events/oracle/enable
rmdir $T/instances/oracle
echo >$T/kprobe_events
counted counted pipe_write

said exits --blocks pipe_write:exits -- /brackets
block=$(/bin/busybox sed -n 3p places)
echo "$block" >single
said single --blocks "pipe_write:${block#*+}" -- /brackets
cat >reads <<'END'
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    read -r line </proc/version
    sleep 0.1
done
END
said staggered --blocks vfs_read:exits@500ms..1200ms -- /bin/busybox sh reads
said both --blocks pipe_write -F pipe_write -F vfs_write -D 2 -- /brackets
said wrong --blocks no_such_function -- /brackets
said nowhere --blocks pipe_write:0xfffff -- /brackets
probes recorded

$K ktrace -o killed.data --blocks pipe_write -- /bin/busybox sleep 100 >killed.said 2>&1 &
sptrace=$!
for _ in $(seq 100); do
    grep -q "pipe_write" killed.said && break
    sleep 0.1
done
sleep 1
kill -9 $sptrace
wait $sptrace
probes killed
$K ktrace --cleanup >cleaned.said 2>&1
probes cleaned
exit 0
