//! Landing pads of one language-specific data area.
//!
//! Layout: landing pad base (encoding, value), type table (encoding, ULEB offset), call-site table
//! (encoding, ULEB length, then start, length, landing pad, ULEB action for each). The pointers are
//! relative to the landing pad base, by default the function's start.

use gimli::{DwEhPe, EndianSlice, LittleEndian, Reader};
use sptrace_addr::Svma;

use crate::space::Space;

/// Bounds the work over all areas of an image, which may overlap in a hostile file.
pub(crate) struct Budget {
    entries_left: u64,
}

impl Budget {
    pub fn new(space: &Space<'_>) -> Self {
        Self {
            entries_left: space.segments().iter().map(|s| s.bytes.len() as u64).sum(),
        }
    }

    /// Appends the landing pads of the area at `lsda`; those before a broken entry are kept.
    pub fn read_landing_pads(
        &mut self,
        space: &Space<'_>,
        lsda: Svma,
        function: Svma,
        pads: &mut Vec<LandingPad>,
    ) {
        let Some(bytes) = space.bytes_from(lsda) else {
            return;
        };
        // A broken area ends at its first broken entry.
        let _ = self.read_area(bytes, lsda, function, pads);
    }

    fn read_area(
        &mut self,
        bytes: &[u8],
        lsda: Svma,
        function: Svma,
        pads: &mut Vec<LandingPad>,
    ) -> gimli::Result<()> {
        let mut area = EndianSlice::new(bytes, LittleEndian);
        let total = area.len();
        let base_encoding = DwEhPe(area.read_u8()?);
        let mut base = function.0;
        if base_encoding != gimli::DW_EH_PE_omit {
            let position = lsda.0.wrapping_add((total - area.len()) as u64);
            base = read_encoded(&mut area, base_encoding, position)?;
        }
        if DwEhPe(area.read_u8()?) != gimli::DW_EH_PE_omit {
            area.read_uleb128()?;
        }
        let encoding = DwEhPe(area.read_u8()?);
        let length = area.read_uleb128()? as usize;
        let mut table = area.split(length)?;
        while !table.is_empty() && self.entries_left > 0 {
            self.entries_left -= 1;
            read_encoded(&mut table, encoding, 0)?;
            read_encoded(&mut table, encoding, 0)?;
            let pad = read_encoded(&mut table, encoding, 0)?;
            table.read_uleb128()?;
            if pad != 0 {
                pads.push(LandingPad {
                    pad: Svma(base.wrapping_add(pad)),
                    function,
                });
            }
        }
        Ok(())
    }
}

fn read_encoded(
    from: &mut EndianSlice<'_, LittleEndian>,
    encoding: DwEhPe,
    position: u64,
) -> gimli::Result<u64> {
    let value = match encoding.format() {
        gimli::DW_EH_PE_absptr | gimli::DW_EH_PE_udata8 | gimli::DW_EH_PE_sdata8 => {
            from.read_u64()?
        }
        gimli::DW_EH_PE_uleb128 => from.read_uleb128()?,
        gimli::DW_EH_PE_sleb128 => from.read_sleb128()? as u64,
        gimli::DW_EH_PE_udata2 => u64::from(from.read_u16()?),
        gimli::DW_EH_PE_sdata2 => from.read_i16()? as u64,
        gimli::DW_EH_PE_udata4 => u64::from(from.read_u32()?),
        gimli::DW_EH_PE_sdata4 => from.read_i32()? as u64,
        _ => return Err(gimli::Error::UnknownPointerEncoding(encoding)),
    };
    Ok(match encoding.application() {
        gimli::DW_EH_PE_pcrel => value.wrapping_add(position),
        _ => value,
    })
}

/// Where an exception that passes through a function lands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LandingPad {
    /// The landing pad.
    pub pad: Svma,
    /// Start of the FDE whose calls land there.
    pub function: Svma,
}
