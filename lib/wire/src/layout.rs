//! Structures whose bytes are written one field after the other, without padding, little-endian.
//!
//! Given a structure; gives it a length, a reader and a writer, so that no offset is counted by
//! hand on either side. A field is an integer, or an enum that has the same three items as integers
//! have: its size, `from_le_bytes` and `to_le_bytes`.

/// Declares such a structure: `BYTES`, `read` and `to_bytes`.
macro_rules! layout {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            /// Bytes of one.
            pub const BYTES: usize = 0 $(+ size_of::<$type>())*;

            /// The one that these bytes begin with. `None`: they end before.
            #[inline]
            pub fn read(bytes: &[u8]) -> Option<Self> {
                let rest = bytes.get(..Self::BYTES)?;
                $(let (head, rest) = rest.split_first_chunk()?;
                let $field = <$type>::from_le_bytes(*head);)*
                let _ = rest;
                Some(Self { $($field,)* })
            }

            /// Its bytes.
            pub fn to_bytes(self) -> [u8; Self::BYTES] {
                let mut bytes = [0; Self::BYTES];
                let mut at = 0;
                $(for byte in self.$field.to_le_bytes() {
                    if let Some(place) = bytes.get_mut(at) {
                        *place = byte;
                    }
                    at += 1;
                })*
                let _ = at;
                bytes
            }
        }
    };
}

/// Declares an enum of one byte for [`layout`]. The first variant is the default, and what a number
/// reads as that is no variant's.
macro_rules! byte_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $(#[$first_meta:meta])* $first:ident = $first_number:literal,
        $($(#[$variant_meta:meta])* $variant:ident = $number:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $(#[$first_meta])*
            #[default]
            $first = $first_number,
            $($(#[$variant_meta])* $variant = $number,)*
        }

        impl $name {
            /// By its number.
            #[inline]
            pub const fn from_le_bytes([number]: [u8; 1]) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    _ => Self::$first,
                }
            }

            /// Its number.
            #[inline]
            pub const fn to_le_bytes(self) -> [u8; 1] {
                [self as u8]
            }
        }
    };
}

pub(crate) use {byte_enum, layout};

#[cfg(test)]
mod tests {
    byte_enum! {
        /// Of a test.
        pub enum Kind {
            /// The default.
            Nothing = 0,
            /// Another.
            Something = 7,
        }
    }

    layout! {
        /// Of a test.
        pub struct Record {
            /// A byte.
            pub kind: Kind,
            /// A word.
            pub word: u32,
            /// A signed one.
            pub distance: i8,
        }
    }

    #[test]
    fn fields_follow_each_other_without_padding() {
        let record = Record {
            kind: Kind::Something,
            word: 0x0403_0201,
            distance: -1,
        };
        assert_eq!(Record::BYTES, 6);
        assert_eq!(record.to_bytes(), [7, 1, 2, 3, 4, 0xff]);
        assert_eq!(Record::read(&record.to_bytes()), Some(record));
    }

    #[test]
    fn what_ends_too_early_is_none_and_an_unknown_number_is_the_default() {
        assert_eq!(Record::read(&[7, 1, 2, 3, 4]), None);
        let unknown = Record::read(&[9, 0, 0, 0, 0, 0, 0]).map(|r| r.kind);
        assert_eq!(unknown, Some(Kind::Nothing));
    }
}
