//! Files that are no image to analyse: each has its own error.

use sptrace_image::{ImageError, Object};

const IMAGE: &str = "/bin/true";

fn refusal(change: impl Fn(&mut Vec<u8>)) -> ImageError {
    let mut bytes = std::fs::read(IMAGE).unwrap();
    change(&mut bytes);
    Object::parse(&bytes).unwrap_err()
}

#[test]
fn each_kind_of_wrong_file_has_its_own_error() {
    assert_eq!(refusal(Vec::clear), ImageError::Empty);
    assert_eq!(refusal(|b| b[0] = b'#'), ImageError::NotElf);
    assert_eq!(refusal(|b| b[4] = 1), ImageError::Not64Bit);
    assert_eq!(refusal(|b| b[5] = 2), ImageError::BigEndian);
    assert_eq!(refusal(|b| b[18] = 183), ImageError::OtherMachine(183));
    assert_eq!(
        refusal(|b| b[16] = 1),
        ImageError::OtherType("relocatable object")
    );
    assert!(matches!(
        refusal(|b| b.truncate(20)),
        ImageError::Truncated(_)
    ));
    assert!(matches!(
        refusal(|b| b.truncate(0x100)),
        ImageError::Truncated(_)
    ));
    assert!(matches!(
        refusal(|b| b.truncate(0x2100)),
        ImageError::Truncated(_)
    ));
}

#[test]
fn image_without_section_headers_keeps_what_the_loader_sees() {
    let bytes = std::fs::read(IMAGE).unwrap();
    let whole = Object::parse(&bytes).unwrap();
    let mut stripped = bytes.clone();
    stripped[40..48].fill(0);
    stripped[58..64].fill(0);
    let stripped = Object::parse(&stripped).unwrap();
    assert_eq!(stripped.build_id, whole.build_id);
    assert_eq!(stripped.needed, whole.needed);
    assert_eq!(stripped.unwind.fdes().len(), whole.unwind.fdes().len());
    for stub in whole.plt_stubs.iter().filter(|s| s.name.is_some()) {
        assert_eq!(
            stripped.plt_stub_at(stub.stub).map(|s| s.name),
            Some(stub.name)
        );
    }
}
