//! The cache: what comes out is what went in; nothing torn, foreign or old is used.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use sptrace_addr::Svma;
use sptrace_code::{
    Analysis, Cached, CodeError, Places, analyze, clear, fill, image_of, kept, list, load_or_build,
};
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
    let cached = load_or_build(
        &Places::only(folder.to_owned()),
        image,
        plan_version,
        &make_plan,
    )
    .unwrap();
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
    assert_eq!(cached.plan()[..], PLAN);
    let names = sptrace_code::names(&object, image);
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
fn what_is_kept_is_found_without_being_made() {
    let folder = Folder::new("kept");
    let places = Places::only(folder.0.clone());
    assert!(kept(&places, IMAGE.as_ref(), 1).is_none());
    load(&folder.0, IMAGE.as_ref(), 1);
    let found = kept(&places, IMAGE.as_ref(), 1).expect("it was made just now");
    assert_eq!(found.plan_bytes(), PLAN);
    assert!(kept(&places, IMAGE.as_ref(), 2).is_none());
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
    assert!(built && cached.plan()[..] == PLAN);
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
    let nowhere = Places {
        own: None,
        ..Places::only(PathBuf::new())
    };
    let fails = |path: &Path| load_or_build(&nowhere, path, 1, &|_, _| Vec::new()).unwrap_err();
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

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let folder = Folder::new("room");
    let images = ["/bin/true", "/bin/false", "/bin/cat"].map(Path::new);
    let mut places = Places::only(folder.0.clone());
    let load = |places: &Places, image: &Path| {
        load_or_build(places, image, 1, &|_, _| PLAN.to_vec()).unwrap();
    };
    for image in &images[..2] {
        load(&places, image);
    }
    let all = list(&folder.0);
    let bytes: u64 = all.iter().map(|kept| kept.bytes).sum();
    // The one of /bin/true was used longer ago; a warm start makes it the newest.
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(90_000);
    for (kept, ago) in all.iter().zip([1, 2]) {
        let file = fs::File::open(&kept.path).unwrap();
        file.set_modified(long_ago - std::time::Duration::from_secs(ago))
            .unwrap();
    }
    load(&places, images[0]);
    let elsewhere = Places::only(folder.0.join("elsewhere"));
    load(&elsewhere, images[2]);
    let third = list(&folder.0.join("elsewhere"))[0].bytes;
    places.limit_bytes = bytes + third - 1;
    load(&places, images[2]);
    let left: Vec<_> = list(&folder.0).iter().filter_map(image_of).collect();
    assert!(left.contains(&images[0].to_owned()), "{left:?}");
    assert!(left.contains(&images[2].to_owned()), "{left:?}");
    assert!(!left.contains(&images[1].to_owned()), "{left:?}");
    // A limit that nothing fits into leaves the one that is needed now.
    places.limit_bytes = 1;
    load(&places, images[1]);
    let left: Vec<_> = list(&folder.0).iter().filter_map(image_of).collect();
    assert_eq!(left, [images[1].to_owned()]);
    fs::write(folder.0.join("other"), "").unwrap();
    assert_eq!(clear(&folder.0).unwrap().0, 1);
    assert!(folder.0.join("other").exists() && list(&folder.0).is_empty());
}

#[test]
fn what_root_has_analysed_serves_all_and_only_for_the_same_code() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new("shared");
    let image = folder.0.join("image");
    fs::copy("/lib/x86_64-linux-gnu/libc.so.6", &image).unwrap();
    let shared = folder.0.join("shared");
    let make_plan = |_: &Object<'_>, _: &Analysis| PLAN.to_vec();
    assert!(fill(&shared, &image, 1, &make_plan).unwrap());
    assert!(!fill(&shared, &image, 1, &make_plan).unwrap());
    assert_eq!(image_of(&list(&shared)[0]), Some(image.clone()));
    let built = Cell::new(0);
    let load = |own: &str, image: &Path| {
        let mut places = Places::only(folder.0.join(own));
        places.shared = vec![shared.clone()];
        let make_plan = |_: &Object<'_>, _: &Analysis| {
            built.set(built.get() + 1);
            PLAN.to_vec()
        };
        load_or_build(&places, image, 1, &make_plan).unwrap()
    };
    // Only root's folder is trusted.
    let expected = u32::from(fs::metadata(&shared).unwrap().uid() != 0);
    let original = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let cached = load("own", original);
    assert_eq!(built.get(), expected);
    assert_eq!(cached.plan()[..], PLAN);
    // It is the user's own from then on.
    fs::remove_file(&list(&shared)[0].path).unwrap();
    load("own", original);
    assert_eq!(built.get(), expected);
    // The same build id with other code is another image.
    fill(&shared, &image, 1, &make_plan).unwrap();
    let mut bytes = fs::read(&image).unwrap();
    let object = Object::parse(&bytes).unwrap();
    let code = object.code_ranges[0].bytes.as_ptr() as usize - bytes.as_ptr() as usize;
    bytes[code + 0x1000] ^= 0x10;
    fs::write(&image, &bytes).unwrap();
    load("own", &image);
    assert_eq!(built.get(), expected + 1);
    assert!(matches!(
        fill(Path::new("/dev/null/x"), original, 1, &make_plan),
        Err(CodeError::NotWritten(_))
    ));
}
