//! The cache: what comes out is what went in; nothing torn, foreign or old is used.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use sptrace_addr::Svma;
use sptrace_code::{Analysis, Cached, CodeError, analyze, load_or_build};
use sptrace_image::Object;

const IMAGE: &str = "/bin/true";
const PLAN: [u8; 300] = [7; 300];

/// A folder of its own for each test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("sptrace-cache-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn only_file(&self) -> PathBuf {
        let files: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Loads with a plan of a few bytes; gives also whether it was built.
fn load(folder: &Path, image: &Path, plan_version: u32) -> (Cached, bool) {
    let built = Cell::new(false);
    let make_plan = |_: &Object<'_>, _: &Analysis| {
        built.set(true);
        PLAN.to_vec()
    };
    let cached = load_or_build(Some(folder), image, plan_version, &make_plan).unwrap();
    (cached, built.get())
}

#[test]
fn cached_analysis_equals_the_built_one() {
    let folder = Folder::new("equal");
    let image = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    assert!(load(&folder.0, image, 1).1);
    let (cached, built) = load(&folder.0, image, 1);
    assert!(!built);
    let bytes = fs::read(image).unwrap();
    let object = Object::parse(&bytes).unwrap();
    let analysis = analyze(&object);
    assert_eq!(cached.summary(), analysis.summary);
    assert_eq!(cached.plan(), Some(PLAN.to_vec()));
    let names = sptrace_code::names(&object);
    for name in &names {
        assert_eq!(cached.name_of(name.svma), name.name);
    }
    assert_eq!(cached.name_of(Svma(0x1)), "sub_1");
    assert!(!object.plt_stubs.is_empty());
    for stub in object.plt_stubs.iter().filter(|s| s.name.is_some()) {
        let name = format!("{}@plt", stub.name.unwrap());
        assert_eq!(cached.import_at(stub.got_slot), Some(name.as_str()));
        assert_eq!(cached.import_at(Svma(stub.got_slot.0 + 1)), None);
    }
}

#[test]
fn damaged_file_is_rebuilt() {
    let folder = Folder::new("damaged");
    load(&folder.0, IMAGE.as_ref(), 1);
    let file = folder.only_file();
    let whole = fs::read(&file).unwrap();
    for at in [0, 9, 40, whole.len() / 2, whole.len() - 9] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&file, &damaged).unwrap();
        assert!(load(&folder.0, IMAGE.as_ref(), 1).1, "byte {at}");
    }
    for length in [0, 7, 100, whole.len() - 8] {
        fs::write(&file, &whole[..length]).unwrap();
        assert!(load(&folder.0, IMAGE.as_ref(), 1).1, "length {length}");
    }
    assert!(!load(&folder.0, IMAGE.as_ref(), 1).1);
}

#[test]
fn another_plan_version_or_a_changed_image_is_built_anew() {
    let folder = Folder::new("versions");
    let image = folder.0.join("image");
    let cache = folder.0.join("cache");
    fs::copy(IMAGE, &image).unwrap();
    assert!(load(&cache, &image, 1).1);
    assert!(!load(&cache, &image, 1).1);
    assert!(load(&cache, &image, 2).1);
    fs::write(&image, fs::read("/bin/false").unwrap()).unwrap();
    assert!(load(&cache, &image, 1).1);
}

#[test]
fn file_that_others_may_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("writable");
    load(&folder.0, IMAGE.as_ref(), 1);
    fs::set_permissions(folder.only_file(), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(load(&folder.0, IMAGE.as_ref(), 1).1);
}

#[test]
fn unusable_folder_is_no_error() {
    let (cached, built) = load(Path::new("/dev/null/cache"), IMAGE.as_ref(), 1);
    assert!(built && cached.plan() == Some(PLAN.to_vec()));
}

#[test]
fn concurrent_builders_leave_one_whole_file() {
    let folder = Folder::new("concurrent");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| load(&folder.0, IMAGE.as_ref(), 1));
        }
    });
    folder.only_file();
    assert!(!load(&folder.0, IMAGE.as_ref(), 1).1);
}

#[test]
fn what_is_no_image_is_a_clear_error() {
    let folder = Folder::new("errors");
    let empty = folder.0.join("empty");
    fs::write(&empty, "").unwrap();
    let fails = |path: &Path| load_or_build(None, path, 1, &|_, _| Vec::new()).unwrap_err();
    assert!(matches!(fails(&folder.0), CodeError::NotAFile(_)));
    assert!(matches!(
        fails(&folder.0.join("none")),
        CodeError::Read { .. }
    ));
    assert!(matches!(fails(&empty), CodeError::Image { .. }));
    assert!(matches!(
        fails("/etc/passwd".as_ref()),
        CodeError::Image { .. }
    ));
}
