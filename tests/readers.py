"""Exports read as those do whose formats they are: Perfetto's trace by the schema of its Python package, the Firefox Profiler's profile by
its published types, and by its command line tool where that is installed.

Given: the bytes of an export. Gives: sums, or an exception that says what is not as the format has it.
Must not know: how sptrace writes them. What is not installed is said by `missing`.
"""
import collections, json, os, shutil, subprocess, time

SLICE_BEGIN, SLICE_END, INSTANT = 1, 2, 3
CLEARED, NEEDED = 1, 2


def perfetto_schema():
    """The messages of Perfetto's trace, if its package is there (pip install perfetto)."""
    try: from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError: return None
    return perfetto_trace_pb2


def profiler_cli(): return shutil.which("profiler-cli")


def missing():
    """What cannot be read here, a line each."""
    if not perfetto_schema(): yield "perfetto was not read by its schema: the Python package perfetto is not installed"
    if not profiler_cli(): yield "firefox was not read by its own tool: @firefox-devtools/profiler-cli is not installed"


def packets(data):
    """The packets of a trace, one by one: all of them at once take much memory."""
    schema, at = perfetto_schema(), 0
    while at < len(data):
        if data[at] != 0x0a: raise ValueError("not a packet")
        size, shift, at = 0, 0, at + 1
        while True:
            size, shift, at = size | (data[at] & 0x7f) << shift, shift + 7, at + 1
            if data[at - 1] < 0x80: break
        packet = schema.TracePacket.FromString(data[at:at + size])
        packet.DiscardUnknownFields()
        if packet.ByteSize() != size: raise ValueError(f"fields that the schema does not know, beside {packet}")
        yield packet
        at += size


class Sequence:
    """What a sequence of packets has named so far."""
    def __init__(self): self.is_known, self.categories, self.names, self.annotations, self.sources = False, {}, {}, {}, {}

    def learn(self, packet):
        if packet.sequence_flags & CLEARED: self.__init__(); self.is_known = True
        data = packet.interned_data
        for kind, entries in ((self.categories, data.event_categories), (self.names, data.event_names), (self.annotations, data.debug_annotation_names), (self.sources, data.source_locations)):
            for entry in entries:
                if entry.iid == 0: raise ValueError("a name has the number 0")
                kind[entry.iid] = entry


def perfetto_events(data):
    """By track its events in the order of time: (time, slice begins?, (module, name) or None, notes)."""
    sequences, tracks, events = collections.defaultdict(Sequence), {}, collections.defaultdict(list)
    for packet in packets(data):
        sequence = sequences[packet.trusted_packet_sequence_id]
        sequence.learn(packet)
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.uuid in tracks: raise ValueError(f"track {track.uuid} is described twice")
            if track.HasField("thread") and track.parent_uuid not in tracks: raise ValueError(f"track {track.uuid} comes before its process")
            tracks[track.uuid] = track
        if not packet.HasField("track_event"): continue
        event = packet.track_event
        if event.track_uuid not in tracks: raise ValueError(f"track {event.track_uuid} is not described")
        if packet.sequence_flags & NEEDED and not sequence.is_known: raise ValueError("names are needed before there can be any")
        if event.type == INSTANT: continue
        if event.type not in (SLICE_BEGIN, SLICE_END): raise ValueError(f"an event of type {event.type}")
        notes = {sequence.annotations[a.name_iid].name: a.string_value or a.uint_value for a in event.debug_annotations}
        is_begin = event.type == SLICE_BEGIN
        name = (sequence.categories[event.category_iids[0]].name, sequence.names[event.name_iid].name) if is_begin else None
        events[event.track_uuid].append((packet.timestamp, is_begin, name, notes))
    return {track: sorted(list, key=lambda event: event[0]) for track, list in events.items()}


def perfetto_sums(data, unknown):
    """By function calls and nanoseconds, less those whose end is one of `unknown`."""
    sums = collections.defaultdict(lambda: [0, 0, 0])
    for events in perfetto_events(data).values():
        stack = []
        for at, is_begin, name, notes in events:
            if is_begin:
                stack.append((name, at, notes.get("begin")))
                continue
            name, begin, how = stack.pop()
            sums[name][0] += how != "earlier"
            if notes.get("end") not in unknown: sums[name][1] += notes.get("duration_ns", at - begin)
        if stack: raise ValueError("a slice has no end")
    return {name: tuple(n) for name, n in sums.items() if any(n)}


def perfetto_flows(data):
    """The process that each flow leads to. It leads forwards in time, from another process, to the first slice of a track."""
    tracks, begins, ends, first = {}, {}, {}, {}
    for packet in packets(data):
        event, track = packet.track_event, packet.track_descriptor
        if packet.HasField("track_descriptor") and track.HasField("thread"): tracks[track.uuid] = track.thread.pid
        for flow in event.flow_ids: begins[flow] = (packet.timestamp, tracks[event.track_uuid], event.type)
        for flow in event.terminating_flow_ids: ends[flow] = (packet.timestamp, event.track_uuid)
        if event.type == SLICE_BEGIN: first[event.track_uuid] = min(packet.timestamp, first.get(event.track_uuid, packet.timestamp))
    if begins.keys() != ends.keys(): raise ValueError(f"flows begin {sorted(begins)}, and end {sorted(ends)}")
    for flow, (at, pid, type) in begins.items():
        end, track = ends[flow]
        if not at < end or pid == tracks[track] or type != INSTANT: raise ValueError(f"flow {flow} leads from {at} to {end}, from {pid} to {tracks[track]}")
    return {tracks[track]: at for at, track in ends.values()}


# The types of a processed profile, version 55, as its project publishes them: a field is (type, may be left out).
# A type is a Python type, a set of words, None for null, a list of one type, a dict of fields, a tuple of alternatives.
INDEX, MS = int, (int, float)
OR_NULL = lambda type: (type, None)
TABLES = {
    "samples": {"stack": [OR_NULL(INDEX)], "time": [MS], "weight": [MS], "weightType": {"tracing-ms"}},
    "markers": {"data": [OR_NULL(dict)], "name": [INDEX], "startTime": [OR_NULL(MS)], "endTime": [OR_NULL(MS)], "phase": [int], "category": [INDEX]},
    "stackTable": {"frame": [INDEX], "prefix": [OR_NULL(INDEX)]},
    "frameTable": {"address": [int], "inlineDepth": [int], "category": [OR_NULL(INDEX)], "subcategory": [OR_NULL(INDEX)], "func": [INDEX],
                   "nativeSymbol": [OR_NULL(INDEX)], "innerWindowID": [OR_NULL(int)], "line": [OR_NULL(int)], "column": [OR_NULL(int)]},
    "funcTable": {"name": [INDEX], "isJS": [bool], "relevantForJS": [bool], "resource": [INDEX], "fileName": [OR_NULL(INDEX)],
                  "lineNumber": [OR_NULL(int)], "columnNumber": [OR_NULL(int)]},
    "nativeSymbols": {"libIndex": [INDEX], "address": [int], "name": [INDEX], "functionSize": [OR_NULL(int)]},
    "resourceTable": {"lib": [OR_NULL(INDEX)], "name": [INDEX], "host": [OR_NULL(INDEX)], "type": [int]},
}
COLOURS = {"transparent", "purple", "green", "orange", "yellow", "lightblue", "blue", "brown", "magenta", "red", "lightred", "darkgrey", "grey"}
THREAD = {"processType": {"default"}, "processStartupTime": MS, "processShutdownTime": OR_NULL(MS), "registerTime": MS, "unregisterTime": OR_NULL(MS),
          "pausedRanges": [dict], "name": str, "isMainThread": bool, "pid": str, "tid": (int, str), "stringArray": [str],
          **{name: {**columns, "length": int} for name, columns in TABLES.items()}}
MAY_THREAD = {"showMarkersInTimeline": bool, "processName": str}
META = {"interval": MS, "startTime": MS, "processType": int, "product": str, "stackwalk": int, "version": int, "preprocessedProfileVersion": int, "markerSchema": [dict]}
MAY_META = {"extensions": {"baseURL": [str], "id": [str], "name": [str], "length": int}, "categories": [{"name": str, "color": COLOURS, "subcategories": [str]}],
            "debug": bool, "oscpu": str, "symbolicated": bool, "usesOnlyOneStackType": bool, "sourceCodeIsNotOnSearchfox": bool,
            "sampleUnits": {"time": {"ms", "bytes"}, "eventDelay": {"ms"}, "threadCPUDelta": {"ns", "\u00b5s", "variable CPU cycles"}}}
PROFILE, MAY_PROFILE = {"meta": dict, "libs": [dict], "threads": [dict]}, {"pages": [dict], "counters": [dict], "profilerOverhead": [dict]}


def differs(value, type, at="profile"):
    """Where a value is not of a type: the first place, or None."""
    if isinstance(type, tuple):
        found = [differs(value, one, at) for one in type]
        return None if None in found else found[0]
    if type is None or isinstance(type, set): return None if (value is None if type is None else value in type) else f"{at} is {value!r}"
    if isinstance(type, list):
        if not isinstance(value, list): return f"{at} is no list"
        return next((f for i, one in enumerate(value) if (f := differs(one, type[0], f"{at}[{i}]"))), None)
    if isinstance(type, dict): return differs_in(value, type, {}, at)
    # A bool is an int in Python, and nowhere else.
    return None if isinstance(value, type) and not (type in (int, float) and isinstance(value, bool)) else f"{at} is {value!r}"


def differs_in(value, must, may, at):
    if not isinstance(value, dict): return f"{at} is no object"
    if left := must.keys() - value.keys(): return f"{at} lacks {sorted(left)}"
    if more := value.keys() - must.keys() - may.keys(): return f"{at} has {sorted(more)}, which the format does not have"
    return next((f for name, one in value.items() if (f := differs(one, {**must, **may}[name], f"{at}.{name}"))), None)


def firefox_differs(profile):
    """Where a profile is not as the published types say; None: nowhere."""
    found = differs_in(profile, PROFILE, MAY_PROFILE, "profile") or differs_in(profile["meta"], META, MAY_META, "meta")
    for number, thread in enumerate(profile["threads"]):
        at = f"threads[{number}]"
        found = found or differs_in(thread, THREAD, MAY_THREAD, at)
        for name, columns in TABLES.items():
            table = thread.get(name, {})
            lengths = {column: len(table.get(column, ())) for column, type in columns.items() if isinstance(type, list)}
            if set(lengths.values()) - {table.get("length")}: found = found or f"{at}.{name}: {table.get('length')} rows, and {lengths}"
    return found


def firefox_sums(path, most):
    """Of so many threads: how many there are, and by thread and function the nanoseconds of its own, as the Firefox Profiler's own tool
    has added them up.
    """
    session = f"sptrace-{os.getpid()}"

    def ask(*arguments): return subprocess.run([profiler_cli(), *arguments, "--session", session], capture_output=True, text=True, timeout=120)

    def told(*arguments):
        """What it answers as JSON; its daemon may need longer than it waits itself."""
        end = time.monotonic() + 60
        while (done := ask(*arguments, "--json")).returncode and time.monotonic() < end: time.sleep(0.5)
        if done.returncode: raise ValueError(f"profiler-cli {' '.join(arguments)}: {done.stderr[-300:]}")
        return json.loads(done.stdout)
    ask("load", path)
    try:
        sums, threads = {}, told("thread", "list", "--limit", "0")["threads"]
        for thread in sorted(threads, key=lambda thread: thread["threadIndex"])[:most]:
            own = sums[thread["threadIndex"]] = collections.Counter()
            for f in told("thread", "functions", "--thread", thread["threadHandle"], "--limit", "0")["functions"]: own[f["name"]] += round(f["selfSamples"] * 1e6)
        return len(threads), {at: {name: ns for name, ns in own.items() if ns} for at, own in sums.items()}
    finally: ask("stop", session)
