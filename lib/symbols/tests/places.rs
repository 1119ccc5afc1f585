//! Debug files, made as distributions and users make theirs, in all places where they may lie.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use sptrace_image::DebugLinks;
use sptrace_symbols::{Image, Places, Servers};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("sptrace-places-{name}-{}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        let _ = fs::remove_dir_all(&folder.0);
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn run(&self, program: &str, words: &[&str]) {
        let status = Command::new(program)
            .args(words)
            .current_dir(&self.0)
            .status();
        assert!(status.unwrap().success(), "{program} {words:?}");
    }

    /// A stripped program `a` that names `a.debug`, which has its debug information.
    fn build(&self, linker: &str) {
        fs::write(self.path("a.c"), "int main(void) { return 0; }\n").unwrap();
        self.run("cc", &["-g", "-o", "a", linker, "a.c"]);
        self.run("objcopy", &["--only-keep-debug", "a", "a.debug"]);
        self.run("strip", &["a"]);
        self.run("objcopy", &["--add-gnu-debuglink=a.debug", "a"]);
    }

    fn put(&self, from: &str, to: &str) {
        let to = self.path(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(self.path(from), to).unwrap();
    }

    fn found(&self, places: &Places) -> (Option<PathBuf>, Vec<String>) {
        let path = self.path("a");
        let found = places.debug_information(&fs::read(&path).unwrap(), &path);
        (found.file.map(|(path, _)| path), found.refused)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const WITH_ID: &str = "-Wl,--build-id=0xab12345678";
const WITHOUT_ID: &str = "-Wl,--build-id=none";

fn with_folder(folder: &Path) -> Places {
    Places {
        folders: vec![folder.to_owned()],
        servers: None,
    }
}

#[test]
fn a_debug_file_is_found_wherever_debuggers_look() {
    for linker in [WITH_ID, WITHOUT_ID] {
        let folder = Folder::new("found");
        folder.build(linker);
        let below = folder.0.strip_prefix("/").unwrap().join("a.debug");
        let below = Path::new("root").join(below);
        let mut places = vec!["a.debug", ".debug/a.debug", below.to_str().unwrap()];
        if linker == WITH_ID {
            places.push("root/.build-id/ab/12345678.debug");
        }
        let mut last = "a.debug";
        for place in places {
            folder.put(last, place);
            let (found, refused) = folder.found(&with_folder(&folder.path("root")));
            assert_eq!(found, Some(folder.path(place)), "{linker}");
            assert!(refused.is_empty(), "{refused:?}");
            last = place;
        }
        fs::remove_file(folder.path(last)).unwrap();
        assert_eq!(folder.found(&Places::default()), (None, vec![]));
    }
}

#[test]
fn one_of_another_build_is_refused_with_a_sentence() {
    let folder = Folder::new("refused");
    folder.build(WITH_ID);
    fs::write(folder.path("b.c"), "int main(void) { return 1; }\n").unwrap();
    folder.run("cc", &["-g", "-o", "a.debug", "-Wl,--build-id=0xcd", "b.c"]);
    let (found, refused) = folder.found(&Places::default());
    assert_eq!(found, None);
    assert!(
        refused.len() == 1 && refused[0].contains("its build id is not that of"),
        "{refused:?}"
    );
    folder.build(WITHOUT_ID);
    let mut bytes = fs::read(folder.path("a.debug")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(folder.path("a.debug"), bytes).unwrap();
    let (found, refused) = folder.found(&Places::default());
    assert_eq!(found, None);
    assert!(
        refused.len() == 1 && refused[0].contains("its checksum is not"),
        "{refused:?}"
    );
}

#[test]
fn a_name_that_leads_elsewhere_is_not_followed() {
    let folder = Folder::new("elsewhere");
    let image = |name| Image {
        path: Path::new("/tmp/a"),
        build_id: &[],
        link: Some((name, 0)),
    };
    for name in ["../etc/passwd", "/etc/passwd", "..", ".", ""] {
        let found = with_folder(&folder.0).debug_file(image(name));
        assert!(found.file.is_none() && found.refused.is_empty(), "{name}");
    }
}

#[test]
fn what_several_debug_files_share_is_found_by_name_and_by_id() {
    let folder = Folder::new("shared");
    folder.build(WITH_ID);
    fs::write(folder.path("s.c"), "int shared;\n").unwrap();
    folder.run(
        "cc",
        &[
            "-g",
            "-r",
            "-o",
            "s.debug",
            "-nostdlib",
            "-Wl,--build-id=0x5511",
            "s.c",
        ],
    );
    fs::write(folder.path("link"), b"../.dwz/s.debug\0\x55\x11").unwrap();
    folder.run(
        "objcopy",
        &["--add-section", ".gnu_debugaltlink=link", "a.debug"],
    );
    folder.put("a.debug", "root/.build-id/ab/12345678.debug");
    let places = with_folder(&folder.path("root"));
    let supplement = || {
        let path = folder.path("a");
        let found = places.debug_information(&fs::read(&path).unwrap(), &path);
        assert!(found.file.is_some());
        (found.supplement, found.refused)
    };
    let (none, refused) = supplement();
    assert!(
        none.is_none() && refused[0].contains("refers to ../.dwz/s.debug"),
        "{refused:?}"
    );
    let expected = fs::read(folder.path("s.debug")).unwrap();
    assert_eq!(DebugLinks::of(&expected).build_id, [0x55, 0x11]);
    folder.put("s.debug", "root/.build-id/.dwz/s.debug");
    assert_eq!(supplement(), (Some(expected.clone()), vec![]));
    folder.put("root/.build-id/.dwz/s.debug", "root/.build-id/55/11.debug");
    assert_eq!(supplement(), (Some(expected), vec![]));
}

#[test]
fn the_stamp_changes_with_what_would_be_found() {
    let folder = Folder::new("stamp");
    let places = with_folder(&folder.0);
    let image = Image {
        path: &folder.path("a"),
        build_id: &[0xab, 0x12],
        link: Some(("a.debug", 0)),
    };
    assert_eq!(places.stamp(image), 0);
    fs::write(folder.path("a.debug"), "1").unwrap();
    let first = places.stamp(image);
    fs::write(folder.path("a.debug"), "22").unwrap();
    let second = places.stamp(image);
    assert!(first != 0 && second != 0 && first != second);
}

/// Answers requests one after the other, and gives what was asked for.
fn serve(answers: Vec<Vec<u8>>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                request.push(byte[0]);
            }
            let text = String::from_utf8(request).unwrap();
            asked.push(text.split(' ').nth(1).unwrap().to_owned());
            let _ = stream.write_all(&answer);
        }
        asked
    });
    (url, served)
}

fn servers(folder: &Folder, url: &str) -> Servers {
    let cache = folder.path("cache").display().to_string();
    let url = url.to_owned();
    let variable = move |name: &str| match name {
        "DEBUGINFOD_URLS" => Some(url.clone()),
        "DEBUGINFOD_CACHE_PATH" => Some(cache.clone()),
        "DEBUGINFOD_TIMEOUT" => Some("5".to_owned()),
        _ => None,
    };
    Servers::of_variables(&variable).unwrap()
}

#[test]
fn a_server_is_asked_once_and_its_answer_kept() {
    let folder = Folder::new("server");
    folder.build(WITH_ID);
    let debug = fs::read(folder.path("a.debug")).unwrap();
    fs::remove_file(folder.path("a.debug")).unwrap();
    let (half, rest) = debug.split_at(debug.len() / 2);
    let mut chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for part in [half, rest] {
        chunks.extend(format!("{:x}\r\n", part.len()).into_bytes());
        chunks.extend(part);
        chunks.extend(b"\r\n");
    }
    chunks.extend(b"0\r\n\r\n");
    let moved = b"HTTP/1.1 302 Found\r\nLocation: /moved\r\nContent-Length: 0\r\n\r\n".to_vec();
    let (url, served) = serve(vec![moved, chunks]);
    let places = Places {
        folders: Vec::new(),
        servers: Some(servers(&folder, &url)),
    };
    let kept = folder.path("cache/ab12345678/debuginfo");
    assert_eq!(folder.found(&places), (Some(kept.clone()), vec![]));
    assert_eq!(
        served.join().unwrap(),
        ["/buildid/ab12345678/debuginfo", "/moved"]
    );
    assert_eq!(fs::read(&kept).unwrap(), debug);
    // Nobody listens any more.
    assert_eq!(folder.found(&places), (Some(kept), vec![]));
}

#[test]
fn what_servers_do_not_have_or_break_off_is_told() {
    let folder = Folder::new("broken");
    folder.build(WITH_ID);
    fs::remove_file(folder.path("a.debug")).unwrap();
    let odd: [(&[u8], &str); 6] = [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
            "cut off",
        ),
        (b"HTTP/1.1 500 No\r\n\r\n", "status 500"),
        (b"SSH-2.0-x\r\n", "does not speak HTTP"),
        (b"", "cut off"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
            "too large",
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: gopher://x\r\n\r\n",
            "no http:// or https://",
        ),
    ];
    for (answer, why) in odd {
        let (url, served) = serve(vec![answer.to_vec()]);
        let places = Places {
            folders: Vec::new(),
            servers: Some(servers(&folder, &url)),
        };
        let (found, refused) = folder.found(&places);
        assert_eq!(found, None);
        assert!(
            refused.len() == 1 && refused[0].contains(why),
            "{refused:?}"
        );
        served.join().unwrap();
    }
    let absent = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
    let (url, served) = serve(vec![absent]);
    let places = Places {
        folders: Vec::new(),
        servers: Some(servers(&folder, &url)),
    };
    // The second time nobody is asked: nobody would answer.
    assert_eq!(folder.found(&places), (None, vec![]));
    served.join().unwrap();
    assert_eq!(folder.found(&places), (None, vec![]));
}
