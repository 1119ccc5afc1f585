//! A minimal ELF image around hand-assembled code: one executable segment at `CODE`, which begins
//! at the entry point, and one of data at `DATA`; no section headers.

pub const CODE: u64 = 0x10_0000;
pub const DATA: u64 = 0x20_0000;
const ET_EXEC: u16 = 2;

pub fn image(code: &[u8], data: &[u8]) -> Vec<u8> {
    let (code_offset, data_offset) = (0x1000usize, 0x1000 + code.len().next_multiple_of(0x1000));
    let mut file = vec![0u8; data_offset + data.len()];
    file[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &ET_EXEC.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(20, &1u32.to_le_bytes());
    put(24, &CODE.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(52, &64u16.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &2u16.to_le_bytes());
    for (index, (flags, offset, svma, size)) in [
        (5u32, code_offset, CODE, code.len()),
        (4, data_offset, DATA, data.len()),
    ]
    .into_iter()
    .enumerate()
    {
        let at = 64 + 56 * index;
        put(at, &1u32.to_le_bytes());
        put(at + 4, &flags.to_le_bytes());
        put(at + 8, &(offset as u64).to_le_bytes());
        put(at + 16, &svma.to_le_bytes());
        put(at + 32, &(size as u64).to_le_bytes());
        put(at + 40, &(size as u64).to_le_bytes());
    }
    put(code_offset, code);
    put(data_offset, data);
    file
}
