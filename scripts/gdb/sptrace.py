"""Lets gdb walk through calls that sptrace has patched, in a live process or a core.

usage: (gdb) source scripts/gdb/sptrace.py

There is no unwind information for slots and for what they call: without this script `bt` ends there. Where return addresses
are replaced, a slot ends in `call EXIT; jmp back` (see lib/patch/README.md), so the jump tells where the call came from.
Where they are the program's own, the call in the text leads to the slot, and a return leads through one that ends in a jump.
In front of a call, inside the common routines or the agent, the frame is taken for the caller's: registers that are saved
there read as they are. Asks the process for nothing but its maps and memory; changes nothing.
"""
import re
import struct

import gdb
from gdb.unwinder import Unwinder

SLOTS_START = 0x2800  # the common routines lie before (lib/wire/src/plan/area.rs)
HOT, SHADOW_TOP = 0x1000, 0x1018  # of the thread block (lib/agent/src/memory/state.rs)
FLAGS, ROUTINE, ID, ROUTINES = 8, 64, 104, 64  # of what the door pushes (lib/agent/src/memory/frame.rs)
OPEN_BITS = 3 << 62  # flags of a shadow frame's id
REGISTERS = "rax rbx rcx rdx rsi rdi rbp r8 r9 r10 r11 r12 r13 r14 r15".split()


def read(address, length):
    """Bytes of the process, or None."""
    try:
        return gdb.selected_inferior().read_memory(address, length).tobytes()
    except (gdb.error, OverflowError):
        return None


def word(address):
    data = read(address, 8)
    return struct.unpack("<Q", data)[0] if data else 0


def jump_target(address):
    """Where the call or jump with a displacement of 32 bits leads."""
    data = read(address, 5)
    if not data or data[0] not in (0xE8, 0xE9):
        return 0
    return (address + 5 + struct.unpack("<i", data[1:])[0]) & (1 << 64) - 1


def is_flags(value):
    """Whether it may be the flags register: bit 1 is always set, and only 22 bits may be (Intel SDM, volume 1, 3.4.3)."""
    return value & 2 and value < 1 << 22


class Areas:
    """The executable shared mappings without a file, and the agent."""

    def __init__(self):
        self.of_pid, self.areas, self.agent = None, [], []

    def look(self):
        try:
            text = gdb.execute("info proc mappings", to_string=True)
        except gdb.error:
            return
        self.of_pid = gdb.selected_inferior().pid
        rows = [re.match(r"\s*0x(\w+)\s+0x(\w+)\s+0x\w+\s+0x\w+\s+(r-x\S*)\s+(.*)", line) for line in text.split("\n")]
        rows = [(int(r[1], 16), int(r[2], 16), r[4]) for r in rows if r]
        self.areas = [(start, end) for start, end, name in rows if name.startswith("/dev/zero")]
        self.agent = [(start, end) for start, end, name in rows if name.startswith("/memfd:sptrace")]

    def find(self, pc, what):
        return next((r for r in getattr(self, what) if r[0] <= pc < r[1]), None)

    def known(self, pc):
        """(area, is the agent); asks for the maps once more if the address is new."""
        if gdb.selected_inferior().pid != self.of_pid:
            self.look()
        return self.find(pc, "areas"), self.find(pc, "agent")


def back_at(address):
    """Where the way back at an address leads: `jmp BACK`, or `push [rip+BACK]` before a return; 0: it is none."""
    code = read(address, 2) or b""
    if code[:1] == b"\xe9": return jump_target(address)
    return int.from_bytes(read(jump_target(address + 1), 8) or b"", "little") if code == b"\xff\x35" else 0


def way_back(area, address, limit=64):
    """From in front of, or at, the end of a slot: where its last jump leads."""
    for at in range(address, min(address + limit, area[1] - 10)):
        if area[0] <= jump_target(at) < area[0] + SLOTS_START and (back := back_at(at + 5)):
            return back
    return 0


def is_exit(area, address):
    """Whether a slot's `call EXIT` has just been made from before `address`: it follows the call of what was called, and
    the way back follows it."""
    before = read(address - 10, 10) or b""
    called = before[:1] == b"\xe8" and not area[0] <= jump_target(address - 10) < area[0] + SLOTS_START
    return (called or before[1:5] == b"\xff\x54\x24\xf8") and back_at(address) != 0


def kept_call(area, at):
    """(return address, stack pointer) if one of the words from `at` on is the return address of a call in the text that leads
    to a slot of the area: of a call through a pointer, what was called lies below it."""
    for place in (at, at + 8):
        back = word(place)
        if area[0] + SLOTS_START <= jump_target(back - 5) < area[1]: return (back, place + 8)
    return None


def return_slot(area, address):
    """From a return point's slot, at or behind its call of RETURN, where it goes on in the text; 0: it is none. In front of that
    call stands how far away the id of the call that returns is."""
    for call in range(address - 40, address + 1):
        if not area[0] <= jump_target(call) < area[0] + SLOTS_START: continue
        after = call + 5
        of = after + struct.unpack("<i", read(call - 4, 4) or b"    ")[0]
        if not area[0] + SLOTS_START <= of < area[1] or not area[0] <= jump_target(of - 5) < area[0] + SLOTS_START: continue
        for at in range(max(after, address), after + 40):
            target = jump_target(at)
            if target and (read(at, 1) == b"\xe9") and not area[0] <= target < area[1]: return target
    return 0


class Id:
    """What tells frames apart: gdb asks for these two."""

    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class SlotUnwinder(Unwinder):
    def __init__(self):
        super().__init__("sptrace")
        self.areas = Areas()

    def place(self, pc, sp, gs, registers):
        """(return address, stack pointer) of the program's code that is at work there."""
        area, agent = self.areas.known(pc)
        if agent:
            found = self.door(sp, registers)
            if found:
                return found
            # The innermost recorded call, then: what it calls is at work.
            frame = word(gs + SHADOW_TOP) if gs else 0
            rsp, shadow_id = word(frame), word(frame + 8) & ~OPEN_BITS
            area = self.areas.known(shadow_id)[0]
            if area and rsp and (kept := kept_call(area, rsp - 8)): return kept
            return (way_back(area, shadow_id), rsp) if area and rsp else None
        if not area:
            return None
        if pc >= area[0] + SLOTS_START:
            if kept := kept_call(area, sp): return kept
            if back := return_slot(area, pc): return (back, sp)
            back = way_back(area, pc)
            # A slot without a way back is a jump's: the return address is on top.
            return (back, sp) if back else (word(sp), sp + 8)
        return next(filter(None, (self.behind_id(at) for at in range(sp, sp + 40 * 8, 8))), None)

    def behind_id(self, at):
        """The same, if the word at `at` is the return address of a routine's call into a slot."""
        value = word(at)
        area = self.areas.find(value, "areas")
        if not area or value < area[0] + SLOTS_START or not area[0] <= jump_target(value - 5) < area[0] + SLOTS_START:
            return None
        if kept := kept_call(area, at + 8): return kept
        if back := return_slot(area, value - 5): return (back, at + 8)
        if read(value, 3) == b"\x8f\x04\x24": return (word(at + 16), at + 24)  # a slot that asks, with a pointer pushed
        if read(value, 2) == b"\xff\x25": return (word(at + 8), at + 16)  # it has called acts
        back = back_at(value) if is_exit(area, value) else way_back(area, value)
        return (back, at + 8) if back else (word(at + 8), at + 16)

    def door(self, sp, registers):
        """The same, in the agent: in a register, or on its stack, stands the address of what its door has pushed."""
        data = next(filter(None, (read(sp, length) for length in (16384, 4096, 1024, 256))), b"")
        for value in registers + [value for (value,) in struct.iter_unpack("<Q", data)]:
            if value % 8 == 0 and value >= 1 << 16 and word(value + ROUTINE) < ROUTINES and is_flags(word(value + FLAGS)):
                found = self.behind_id(value + ID)
                if found:
                    return found
        return None

    def __call__(self, frame):
        pc, sp = int(frame.read_register("rip")), int(frame.read_register("rsp"))
        mask = (1 << 64) - 1
        try:
            gs = int(frame.read_register("gs_base")) & mask
        except (gdb.error, ValueError):
            gs = 0
        registers = [int(frame.read_register(name)) & mask for name in REGISTERS]
        found = self.place(pc & mask, sp & mask, gs, registers)
        if not found or not found[0]:
            return None
        info = frame.create_unwind_info(Id(gdb.Value(found[1]), gdb.Value(pc & mask)))
        for name in REGISTERS:
            info.add_saved_register(name, frame.read_register(name))
        long_type = gdb.lookup_type("unsigned long")
        info.add_saved_register("rip", gdb.Value(found[0]).cast(long_type))
        info.add_saved_register("rsp", gdb.Value(found[1]).cast(long_type))
        return info


gdb.unwinder.register_unwinder(None, SlotUnwinder(), replace=True)
