//! Writes man/ and completions/: `cargo run -p xtask`, from anywhere in the repository.
#![forbid(unsafe_code)]

use std::path::Path;

fn main() -> std::io::Result<()> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, content) in xtask::make_all()? {
        let path = top.join(&name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, content)?;
        println!("{name}");
    }
    Ok(())
}
