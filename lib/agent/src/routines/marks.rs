//! How far the event of a common routine or of the slow path's door is, by instruction.
//!
//! Gives the assembler macro MARK, by which the routines say so without any code of their own, and
//! looks an address up in what it has written. Needed where a signal has interrupted a routine
//! ([`crate::signals::context`]). Must not know what the routines do.

use crate::routines::{door, image};

/// MARK and the phases: for [`crate::routines::common`].
macro_rules! marks {
    () => {
        r#"
    /* Where a signal may interrupt, for `context`: from here on the phase is PHASE, and the id
       stands DEPTH bytes above rsp. Costs no instruction. */
    .pushsection .rodata.sptrace_marks,"a",@progbits
    .globl sptrace_marks, sptrace_marks_end
    .hidden sptrace_marks, sptrace_marks_end
    .p2align 2
sptrace_marks:
    .popsection
    .macro MARK phase, depth, from=sptrace_common_start
.Lmark\@:
    .pushsection .rodata.sptrace_marks,"a",@progbits
    .long .Lmark\@ - \from, \phase, \depth
    .popsection
    .endm
    .set SAVING, 0
    .set CHECKING, 1
    .set RESERVED, 2
    .set COMMITTED, 3
    .set PUSHED, 4
    .set DONE, 5
    .set SILENT, 6
    .set SILENT_DONE, 7
    .set DOOR_SAVING, 8
    .set DOOR_BEFORE, 9
    .set DOOR_INSIDE, 10
    .set DOOR_AFTER, 11
    .set DOOR_KEPT, 12
    .set RESERVED_VALUES, 13
"#
    };
}

pub(crate) use marks;

/// After the last MARK.
macro_rules! marks_end {
    () => {
        r#"
    .pushsection .rodata.sptrace_marks,"a",@progbits
sptrace_marks_end:
    .popsection
    "#
    };
}

pub(crate) use marks_end;

/// Where a signal interrupted a routine or the door.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Registers are being pushed; the program's are unchanged but for rax.
    Saving = 0,
    /// Nothing has happened yet.
    Checking = 1,
    /// A record is reserved, at rcx, and not complete.
    Reserved = 2,
    /// The record is written, the shadow stack is not.
    Committed = 3,
    /// The shadow frame is pushed; rdx is the frame below.
    Pushed = 4,
    /// All is done.
    Done = 5,
    /// Nothing has happened yet and nothing will be recorded; rax, rcx and rdx are being pushed.
    Silent = 6,
    /// The same, when the return address is in its place, and below the id stands where to go.
    SilentDone = 7,
    /// As `Saving`, in the slow path's door.
    DoorSaving = 8,
    /// Nothing has happened yet; all registers are saved.
    DoorBefore = 9,
    /// On the way to the agent's stack or back: nothing is certain.
    DoorInside = 10,
    /// The slow path is over; all registers are still saved.
    DoorAfter = 11,
    /// As `DoorBefore`, and the vector registers, which may be the agent's, are saved, too.
    DoorKept = 12,
    /// As `Reserved`, around a call of the kernel: the record has values.
    ReservedValues = 13,
    /// A call with its values is reserved, and not complete: what is written says so.
    ReservedCall = 14,
    /// As `Committed`, of a call with values.
    WrittenCall = 16,
    /// As `Pushed`: the frame of the call's values is not pushed yet.
    PushedCall = 17,
    /// As `Pushed`, of both frames.
    PairedCall = 18,
    /// As `Reserved`, of a record with PLACED before it, where rcx is.
    ReservedPlaced = 19,
    /// As `Reserved`, of a frame that has ended unseen before the event.
    ReservedEnd = 20,
    /// The frame is popped; its record has no id yet. Nothing has happened of the event itself.
    UntoldEnd = 21,
    /// The same, and nothing is reserved yet.
    PoppedEnd = 22,
}

impl Phase {
    fn is_of_door(self) -> bool {
        (Self::DoorSaving as u32..=Self::DoorKept as u32).contains(&(self as u32))
    }
}

#[repr(C)]
struct Mark {
    offset: u32,
    phase: Phase,
    depth: u32,
}

unsafe extern "C" {
    static sptrace_marks: Mark;
    static sptrace_marks_end: Mark;
}

/// What `rip` is in the middle of, as (phase, bytes from rsp up to the id); `area` is that of its
/// patch area, or 0 outside of all.
pub fn interrupted(rip: u64, area: u64) -> Option<(Phase, u64)> {
    let (start, bytes) = if area != 0 {
        (area, image::bytes() as u64)
    } else {
        (door::address(), door::bytes())
    };
    let offset = rip.wrapping_sub(start);
    if offset >= bytes {
        return None;
    }
    let (first, end) = (&raw const sptrace_marks, &raw const sptrace_marks_end);
    let mut found = None;
    let mut best = 0;
    let mut mark = first;
    while mark < end {
        // SAFETY: an immutable table of the image.
        let m = unsafe { &*mark };
        let of_door = m.phase.is_of_door();
        if of_door == (area == 0) && m.offset as u64 <= offset && m.offset >= best {
            best = m.offset;
            found = Some((m.phase, m.depth as u64));
        }
        mark = mark.wrapping_add(1);
    }
    found
}
