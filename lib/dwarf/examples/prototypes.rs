//! Prints the line of each function of a file: `cargo run -p sptrace-dwarf --example prototypes
//! FILE`.

use sptrace_image::Object;

fn main() {
    let path = std::env::args().nth(1).unwrap_or_default();
    let bytes = std::fs::read(&path).unwrap_or_default();
    let symbols = Object::parse(&bytes).map_or(Vec::new(), |object| {
        let named = object.symbols.iter().map(|s| (s.svma, s.name.to_owned()));
        named.collect()
    });
    let prototypes = sptrace_dwarf::Prototypes::new(Some(bytes));
    for (svma, name) in symbols {
        if let Some(line) = prototypes.of(svma) {
            println!("{name}: {line}");
        }
    }
}
