# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_sptrace_global_optspecs
    string join \n h/help V/version
end

function __fish_sptrace_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_sptrace_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_sptrace_using_subcommand
    set -l cmd (__fish_sptrace_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c sptrace -n "__fish_sptrace_needs_command" -s h -l help -d 'Print help'
complete -c sptrace -n "__fish_sptrace_needs_command" -s V -l version -d 'Print version'
complete -c sptrace -n "__fish_sptrace_needs_command" -f -a "run" -d 'Start a command under trace and write sptrace.data'
complete -c sptrace -n "__fish_sptrace_needs_command" -f -a "attach" -d 'Record running processes, and let them go as they were'
complete -c sptrace -n "__fish_sptrace_needs_command" -f -a "analyze" -d 'Show what sptrace knows of a program or library: functions, call sites, refusals'
complete -c sptrace -n "__fish_sptrace_needs_command" -f -a "ktrace" -d 'Record what the kernel does for a command, for processes, or for the whole machine'
complete -c sptrace -n "__fish_sptrace_needs_command" -f -a "ctl" -d 'Say a word to a running recording, or list those that wait for words'
complete -c sptrace -n "__fish_sptrace_needs_command" -f -a "doctor" -d 'Say what can be recorded on this machine, and what would allow more'
complete -c sptrace -n "__fish_sptrace_needs_command" -f -a "report" -d 'Show views of a trace: summary, functions, tree, coverage, folded stacks'
complete -c sptrace -n "__fish_sptrace_needs_command" -f -a "script" -d 'Check, explain and list scripts: policies of recordings, and what is made of traces'
complete -c sptrace -n "__fish_sptrace_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s F -l filter -d 'Record only functions matching GLOB and what they call, on the thread that does so; nothing else is patched before the first of them is entered (repeatable; raw or demangled name)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s N -l notrace -d 'Leave out functions matching GLOB: they are not patched, nor what only they call (repeatable)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s l -l module -d 'Patch only modules whose file name matches (repeatable; `*` stands for anything): from the program\'s main on; other functions that only code of other modules calls are not seen' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s D -l depth -d 'Patch nothing that is first reached below this depth' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l syscalls -d 'Record system calls too, with their arguments and results: all, or SET as of strace\'s -e trace= (names, %file, %process, %network, %memory, %desc, %signal, %ipc, !, /regex/)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l syscalls-only -d 'Record system calls, and no functions' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s s -l string-limit -d 'Keep so many bytes of strings and buffers of system calls' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l between -d 'Record functions matching GLOB and what they call, as -F does, but only their calls that begin between two events (see below; START may be `start`: the recording\'s): different functions each at its time, also beside -F. With --times N each does so N times. A call as an event is noticed at once here (repeatable, up to 7)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l dump-on -d 'Keep the ring in memory and write it out as a trace when EVENT happens, while the program goes on (repeatable, see below). The second is FILE.2 and so on; without an event nothing is written' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l stop-on -d 'End the recording, not the program, when EVENT happens (repeatable, see below)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l times -d 'Each event of --dump-on does so N times, and each of --between; what lies between the events of --start-on and --stop-on (`run`) is recorded N times, into one trace' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s o -l output -d 'Trace file; a former one is kept as FILE.old' -r -F
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l ring -d 'Keep only the last SIZE bytes or so of the recording (2M or more); how much of the beginning was dropped is counted' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l max-size -d 'End the recording, not the program, when the trace file has this size' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l buffer -d 'Buffer memory for all threads together (64K to 256M)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l on-full -d 'When the program calls faster than the trace can be written' -r -f -a "block\t'The program waits; the time is recorded and taken out of durations. A thread that has waited two seconds goes on all the same; its events are then lost and counted'
drop\t'Events are lost, counted, and visible as gaps'"
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l live -d 'Print a line a system call, as `report lines` does, while the program runs: to standard error, to FILE, or to the input of a COMMAND (\'|COMMAND\'). Without --syscalls, record system calls alone, with -e only those of its SET. The trace is written as always' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s a -l columns -d 'Show results in this column' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s e -l trace -d 'Show only these system calls: SET or trace=SET, as of strace (names, %file, %process, %network, %memory, %desc, %signal, %ipc, !, /regex/)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s P -l trace-path -d 'Show only calls on PATH, or on a descriptor that leads to it (repeatable)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s S -l script -d 'Follow a script: what it says of the recording adds to these options, and its handlers are told of the recording when it has ended; what they print goes to standard error. A path or a name (`sptrace script list`), with the script\'s own options behind it: -S \'slow-calls --top=5\'. See man sptrace-script' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l eval -d 'The same with the script itself, as in --eval \'only("parse*"); depth(3)\'' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l start-on -d 'Let the command run by itself, and begin the recording when EVENT happens, inside of what runs then (repeatable, see below). call:GLOB waits for functions of what has been loaded for 0.1 s or so, and with #N each process counts for itself. For return: and slow: it runs by itself up to the first call, and is followed from there to EVENT, at the cost of recording. After --stop-on it runs by itself again, with --times N until the next EVENT' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l per-process -d 'Write the lines of each process to a file of its own, FILE.PID'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s t -d 'Show the time of the day (UTC) in front of lines; -tt: with microseconds; -ttt: seconds since 1970'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s r -d 'Show the time since the line before'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s T -d 'Show how long each call took'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s f -d 'Show the thread\'s id, also where there is one thread'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s y -d 'Show what descriptors lead to; -yy: of sockets their addresses'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s v -d 'Show structures whole'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s x -d 'Show strings with bytes that are not printable ASCII in hexadecimal; -xx: all strings'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s z -d 'Show only calls that succeeded'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s Z -d 'Show only calls that failed'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s n -d 'Show the numbers of calls'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s q -l quiet -d 'Say nothing but errors and an early end of the recording'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l loader -d 'Record ld.so\'s start-up work too'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l shadow -d 'Follow the command from its start, and write nothing before the event of --start-on: that costs as much as recording. Calls count from the first one on then, and stacks that cannot be walked are whole'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s c -l call-counts -d 'Print the sums of system calls at the end, as `strace -c` does; without --syscalls, record nothing else'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -l keep-pid -d 'The command keeps the process id that was started, for those who wait for it, signal it or look for it by that: sptrace is a process in the background, in a group of its own, which says its last words a moment after the command\'s end. Its status and its signals are the command\'s own'
complete -c sptrace -n "__fish_sptrace_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s p -l pid -d 'The processes (repeatable, or separated by commas)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s F -l filter -d 'Record only functions matching GLOB and what they call, on the thread that does so; nothing else is patched before the first of them is entered (repeatable; raw or demangled name)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s N -l notrace -d 'Leave out functions matching GLOB: they are not patched, nor what only they call (repeatable)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s l -l module -d 'Patch only modules whose file name matches (repeatable; `*` stands for anything): from the program\'s main on; other functions that only code of other modules calls are not seen' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s D -l depth -d 'Patch nothing that is first reached below this depth' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l syscalls -d 'Record system calls too, with their arguments and results: all, or SET as of strace\'s -e trace= (names, %file, %process, %network, %memory, %desc, %signal, %ipc, !, /regex/)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l syscalls-only -d 'Record system calls, and no functions' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s s -l string-limit -d 'Keep so many bytes of strings and buffers of system calls' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l between -d 'Record functions matching GLOB and what they call, as -F does, but only their calls that begin between two events (see below; START may be `start`: the recording\'s): different functions each at its time, also beside -F. With --times N each does so N times. A call as an event is noticed at once here (repeatable, up to 7)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l dump-on -d 'Keep the ring in memory and write it out as a trace when EVENT happens, while the program goes on (repeatable, see below). The second is FILE.2 and so on; without an event nothing is written' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l stop-on -d 'End the recording, not the program, when EVENT happens (repeatable, see below)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l times -d 'Each event of --dump-on does so N times, and each of --between; what lies between the events of --start-on and --stop-on (`run`) is recorded N times, into one trace' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s o -l output -d 'Trace file; a former one is kept as FILE.old' -r -F
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l ring -d 'Keep only the last SIZE bytes or so of the recording (2M or more); how much of the beginning was dropped is counted' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l max-size -d 'End the recording, not the program, when the trace file has this size' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l buffer -d 'Buffer memory for all threads together (64K to 256M)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l on-full -d 'When the program calls faster than the trace can be written' -r -f -a "block\t'The program waits; the time is recorded and taken out of durations. A thread that has waited two seconds goes on all the same; its events are then lost and counted'
drop\t'Events are lost, counted, and visible as gaps'"
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l live -d 'Print a line a system call, as `report lines` does, while the program runs: to standard error, to FILE, or to the input of a COMMAND (\'|COMMAND\'). Without --syscalls, record system calls alone, with -e only those of its SET. The trace is written as always' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s a -l columns -d 'Show results in this column' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s e -l trace -d 'Show only these system calls: SET or trace=SET, as of strace (names, %file, %process, %network, %memory, %desc, %signal, %ipc, !, /regex/)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s P -l trace-path -d 'Show only calls on PATH, or on a descriptor that leads to it (repeatable)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s S -l script -d 'Follow a script: what it says of the recording adds to these options, and its handlers are told of the recording when it has ended; what they print goes to standard error. A path or a name (`sptrace script list`), with the script\'s own options behind it: -S \'slow-calls --top=5\'. See man sptrace-script' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l eval -d 'The same with the script itself, as in --eval \'only("parse*"); depth(3)\'' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l for -d 'Detach after this time: 500ms, 5s, 2m, 1h (a number alone: seconds); else at Ctrl-C, SIGTERM or SIGHUP, or when all have ended' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -l per-process -d 'Write the lines of each process to a file of its own, FILE.PID'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s t -d 'Show the time of the day (UTC) in front of lines; -tt: with microseconds; -ttt: seconds since 1970'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s r -d 'Show the time since the line before'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s T -d 'Show how long each call took'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s f -d 'Show the thread\'s id, also where there is one thread'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s y -d 'Show what descriptors lead to; -yy: of sockets their addresses'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s v -d 'Show structures whole'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s x -d 'Show strings with bytes that are not printable ASCII in hexadecimal; -xx: all strings'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s z -d 'Show only calls that succeeded'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s Z -d 'Show only calls that failed'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s n -d 'Show the numbers of calls'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s q -l quiet -d 'Say nothing but errors and an early end of the recording'
complete -c sptrace -n "__fish_sptrace_using_subcommand attach" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sptrace -n "__fish_sptrace_using_subcommand analyze" -l format -d 'Form of the output' -r -f -a "text\t'Aligned columns'
csv\t'RFC 4180, with a header line'
json\t'One array of objects for each list, in one object'"
complete -c sptrace -n "__fish_sptrace_using_subcommand analyze" -l functions -d 'List every function'
complete -c sptrace -n "__fish_sptrace_using_subcommand analyze" -l sites -d 'List every site: calls and tail calls'
complete -c sptrace -n "__fish_sptrace_using_subcommand analyze" -l refusals -d 'List the sites that cannot be traced, each with the reason'
complete -c sptrace -n "__fish_sptrace_using_subcommand analyze" -l system-calls -d 'List every instruction that calls the kernel, with the call where it is written before it'
complete -c sptrace -n "__fish_sptrace_using_subcommand analyze" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -s o -l output -d 'Trace file to write; a former one is kept as FILE.old' -r -F
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -s p -l pid -d 'These processes, with all their threads and what they start (repeatable, or separated by commas)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -l for -d 'End the recording after this time: 500ms, 5s, 2m, 1h (a number alone: seconds); else at Ctrl-C, SIGTERM or SIGHUP, or when all have ended' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -l level -d 'How deep it looks: functions (by the tracer function_graph), probes (at entry and exit of functions, slow to make), or events alone; else the deepest that this kernel allows' -r -f -a "functions\t''
probes\t''
events\t''"
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -l root -d 'Follow calls in the kernel from here: syscalls (if neither this nor -F is given), interrupts, softirqs (repeatable, or separated by commas)' -r -f -a "syscalls\t''
interrupts\t''
softirqs\t''"
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -s F -l filter -d 'Follow calls from functions of the kernel that match GLOB (repeatable; `*` alone: every function there is, which slows the machine down)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -s N -l notrace -d 'Leave out functions of the kernel that match GLOB, and what only they call (repeatable)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -s D -l depth -d 'Follow calls in the kernel so many levels, with the first one [default: 3; 1 for probes]' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -l buffer -d 'Memory of each processor\'s buffer in the kernel, in KiB' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -s q -l quiet -d 'Say nothing on stderr unless recording fails'
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -s a -l all -d 'Everything that runs on this machine, but for sptrace'
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -l check -d 'Show what this machine lets be recorded, and what would allow more'
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -l cleanup -d 'Remove what an sptrace that was killed has left in the kernel\'s tracing'
complete -c sptrace -n "__fish_sptrace_using_subcommand ktrace" -s h -l help -d 'Print help'
complete -c sptrace -n "__fish_sptrace_using_subcommand ctl" -s p -l pid -d 'Process id of the sptrace that records; needed if there are several' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand ctl" -s h -l help -d 'Print help'
complete -c sptrace -n "__fish_sptrace_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s i -l input -d 'Trace file to read' -r -F
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s o -l output -d 'File to write; `-` is standard output' -r -F
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l format -d 'Form of the output; csv for `functions`, `callers`, `callees`, `graph`, `coverage`, `diff` and `script`, json for `script`, dot and svg for `graph` [default: text; of `graph` what the ending of OUT says]' -r -f -a "text\t''
csv\t''
json\t''
dot\t''
svg\t''"
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s F -l filter -d 'Show only functions matching GLOB (`*`, `?`; raw or demangled name) and what they call' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s N -l notrace -d 'Hide functions matching GLOB and what they call' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s l -l module -d 'Show only functions of modules whose file name or path matches GLOB, whoever calls them' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s D -l depth -d 'Show at most N levels of calls' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l min-time -d 'Hide calls shorter than TIME (as 5us, 1.5ms, 2s; a bare number is nanoseconds) or of unknown length' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l from -d 'Show what runs after TIME since the start of the trace' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l to -d 'Show what begins before TIME since the start of the trace' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l tid -d 'Show only this thread; may be repeated' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l sort -d 'Order of `functions`' -r -f -a "total\t''
self\t''
calls\t''
min\t''
mean\t''
max\t''
p99\t''
name\t''"
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l by -d 'What stacks are measured by, of `folded` and `flame`' -r -f -a "time\t'Nanoseconds of their own'
calls\t'Calls'"
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l limit -d 'Show at most N functions, lines of the tree, or calls of an export (there 0 for all), or of `timeline` one by one' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l color -d 'Colours' -r -f -a "auto\t''
always\t''
never\t''"
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l eval -d 'Of `script`: the script itself, in place of its name' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l around -d 'Show what is open at a moment, and the calls that begin shortly before and after it: 40, or as --limit says. A time since the start of the trace, or a function (name or glob; #N for its Nth call)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l slowest -d 'Show only the N slowest calls of FUNC (name or glob), and what they call' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l focus -d 'Of `graph`, `functions`, `callers` and `callees`: count only what leads to functions matching FUNC (name or glob) and what they call; may be repeated' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l per -d 'What the nodes are' -r -f -a "function\t''
module\t''"
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s e -l trace -d 'Show only these system calls: SET or trace=SET, as of strace (names, %file, %process, %network, %memory, %desc, %signal, %ipc, !, /regex/)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s P -l trace-path -d 'Show only calls on PATH, or on a descriptor that leads to it (repeatable)' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s s -l string-limit -d 'Show at most N bytes of strings' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s a -l columns -d 'Of `lines`: show results in this column [default: 40]. Of `functions` and `tree`: which columns, as `calls,self,function`, of calls, untimed, earlier, total, self, min, mean, p50, p99, max, module, function, address, symbol; of the tree: duration, self, time, wall, tid, pid, thread' -r
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l user -d 'Show only functions of modules outside of the distribution\'s folders, and what they call directly'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l icicle -d 'Draw `flame` from the top down'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l fold -d 'Show once what repeats: a call with all below it, or a sequence of up to eight, that is the same in all but time. `x 1000` says how often; durations are of all together'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -l loader -d 'Show the dynamic loader\'s own work too (symbols bound at the first call, dlopen)'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s t -d 'Show the time of the day (UTC) in front of lines; -tt: with microseconds; -ttt: seconds since 1970'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s r -d 'Show the time since the line before'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s T -d 'Show how long each call took'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s f -d 'Show the thread\'s id, also where there is one thread'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s y -d 'Show what descriptors lead to; -yy: of sockets their addresses'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s v -d 'Show structures whole'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s x -d 'Show strings with bytes that are not printable ASCII in hexadecimal; -xx: all strings'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s z -d 'Show only calls that succeeded'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s Z -d 'Show only calls that failed'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s n -d 'Show the numbers of calls'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s k -l stack-traces -d 'Show the functions that each call was made in, as far as they were recorded beside it'
complete -c sptrace -n "__fish_sptrace_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sptrace -n "__fish_sptrace_using_subcommand script" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sptrace -n "__fish_sptrace_using_subcommand help; and not __fish_seen_subcommand_from run attach analyze ktrace ctl doctor report script help" -f -a "run" -d 'Start a command under trace and write sptrace.data'
complete -c sptrace -n "__fish_sptrace_using_subcommand help; and not __fish_seen_subcommand_from run attach analyze ktrace ctl doctor report script help" -f -a "attach" -d 'Record running processes, and let them go as they were'
complete -c sptrace -n "__fish_sptrace_using_subcommand help; and not __fish_seen_subcommand_from run attach analyze ktrace ctl doctor report script help" -f -a "analyze" -d 'Show what sptrace knows of a program or library: functions, call sites, refusals'
complete -c sptrace -n "__fish_sptrace_using_subcommand help; and not __fish_seen_subcommand_from run attach analyze ktrace ctl doctor report script help" -f -a "ktrace" -d 'Record what the kernel does for a command, for processes, or for the whole machine'
complete -c sptrace -n "__fish_sptrace_using_subcommand help; and not __fish_seen_subcommand_from run attach analyze ktrace ctl doctor report script help" -f -a "ctl" -d 'Say a word to a running recording, or list those that wait for words'
complete -c sptrace -n "__fish_sptrace_using_subcommand help; and not __fish_seen_subcommand_from run attach analyze ktrace ctl doctor report script help" -f -a "doctor" -d 'Say what can be recorded on this machine, and what would allow more'
complete -c sptrace -n "__fish_sptrace_using_subcommand help; and not __fish_seen_subcommand_from run attach analyze ktrace ctl doctor report script help" -f -a "report" -d 'Show views of a trace: summary, functions, tree, coverage, folded stacks'
complete -c sptrace -n "__fish_sptrace_using_subcommand help; and not __fish_seen_subcommand_from run attach analyze ktrace ctl doctor report script help" -f -a "script" -d 'Check, explain and list scripts: policies of recordings, and what is made of traces'
complete -c sptrace -n "__fish_sptrace_using_subcommand help; and not __fish_seen_subcommand_from run attach analyze ktrace ctl doctor report script help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
