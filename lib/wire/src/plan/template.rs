//! A slot that comes as bytes, with what in them depends on where things lie.

use crate::layout::{byte_enum, layout};

layout! {
    /// Start of a template; `original` bytes, the room (if there is one), `code` bytes and fixups
    /// follow without padding.
    pub struct Template {
        /// Bytes of code.
        pub code_bytes: u16,
        /// Number of [`Fixup`]s.
        pub fixups: u16,
        /// Bytes of moved instructions at the start of the slot, where the text jumps to (but see
        /// [`crate::plan::HOOK_ENTRY`]).
        pub moved: u16,
        /// Offset in the slot of the entry id's place (0: none).
        pub entry_id: u16,
        /// Offset in the slot of the exit id's place (0: none).
        pub exit_id: u16,
        /// Offset in the slot of instructions that were moved there to make room for the
        /// springboard, or
        /// 0. If it is not 0, a [`Room`] and the bytes of these instructions follow the original
        ///    bytes.
        pub room_to: u16,
        /// Original bytes of the text at `start` that must be found there (= span).
        pub original_bytes: u8,
        /// With [`crate::plan::SITE_SPRINGBOARD`]: where the springboard lies, as a signed distance
        /// from the end of the two-byte jump at the site.
        pub springboard: i8,
    }
}

layout! {
    /// Where instructions stood that made room for a springboard. Their bytes follow, which must be
    /// found there too.
    pub struct Room {
        /// So many bytes before the springboard they began.
        pub back: u8,
        /// Their length.
        pub bytes: u8,
    }
}

byte_enum! {
    /// What a rel32 leads to.
    pub enum FixupKind {
        /// An address of the module: signed offset from `base_svma`.
        Text = 1,
        /// A common routine, by its number ([`crate::plan::common`]).
        Common = 2,
        /// A place in the patch area, as offset.
        Area = 3,
    }
}

layout! {
    /// A rel32 in a template that depends on where things lie.
    pub struct Fixup {
        /// Offset of the rel32 in the slot.
        pub position: u16,
        /// Bytes from the rel32's start to the end of its instruction (4 or more).
        pub to_end: u8,
        /// What it leads to.
        pub kind: FixupKind,
        /// Which one, by kind.
        pub value: i32,
    }
}
