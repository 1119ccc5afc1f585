//! How the kernel reaches its probes: by a jump, by its function tracer, or by a breakpoint.
//!
//! Given addresses; gives what the list of probes in debugfs says of them. The kernel replaces a
//! breakpoint by a jump some time after it was set, where it may. Where debugfs is not mounted, it
//! is for a moment, in a folder of our own.
//!
//! Must not know: whose probes they are.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

const USUAL: &str = "/sys/kernel/debug";
const FILE: &str = "kprobes/list";

/// How a probe is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// By a jump.
    Jump,
    /// By the call that the function tracer has at the function's beginning.
    Tracer,
    /// By a breakpoint.
    Breakpoint,
    /// Not at all: it is switched off, or its module is gone.
    Off,
}

/// Of all probes of the machine, by their addresses. `None`: the kernel does not say it.
pub fn ways() -> Option<HashMap<u64, Way>> {
    if let Ok(list) = std::fs::read_to_string(Path::new(USUAL).join(FILE)) {
        return Some(parse(&list));
    }
    let folder = std::env::temp_dir().join(format!("sptrace-debugfs-{}", std::process::id()));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .ok()?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let list = mount(
        Some("debugfs"),
        &folder,
        Some("debugfs"),
        flags,
        None::<&str>,
    )
    .ok()
    .and_then(|()| {
        let list = std::fs::read_to_string(folder.join(FILE)).ok();
        let _ = umount2(&folder, MntFlags::MNT_DETACH);
        list
    });
    let _ = std::fs::remove_dir(&folder);
    list.map(|list| parse(&list))
}

/// Lines such as `ffffffff8129c2b4  k  vfs_write+0x54    [OPTIMIZED]`. Of several probes at one
/// address each has a line, and all are reached in the same way.
fn parse(list: &str) -> HashMap<u64, Way> {
    let way = |line: &str| {
        let address = u64::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
        let way = match line {
            l if l.contains("[GONE]") || l.contains("[DISABLED]") => Way::Off,
            l if l.contains("[OPTIMIZED]") => Way::Jump,
            l if l.contains("[FTRACE]") => Way::Tracer,
            _ => Way::Breakpoint,
        };
        Some((address, way))
    };
    list.lines().filter_map(way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_understood() {
        let ways = parse(
            "ffffffff8129c2b4  k  vfs_write+0x54    [OPTIMIZED]\n\
             ffffffff8129c264  k  vfs_write+0x4    [FTRACE]\n\
             ffffffff8129c270  k  vfs_write+0x10  \n\
             ffffffff8129c280  r  vfs_write+0x20  [DISABLED]\nnonsense\n",
        );
        let of = |low: u64| ways.get(&(0xffff_ffff_8129_c000 | low)).copied();
        assert_eq!(of(0x2b4), Some(Way::Jump));
        assert_eq!(of(0x264), Some(Way::Tracer));
        assert_eq!(of(0x270), Some(Way::Breakpoint));
        assert_eq!(of(0x280), Some(Way::Off));
        assert_eq!(ways.len(), 4);
    }
}
