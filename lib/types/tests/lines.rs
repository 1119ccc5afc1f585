//! Bytes in, text out: what calls look like, structure by structure. Expected texts are what strace
//! prints of the same bytes.

use sptrace_types::calls;
use sptrace_types::decode::call::{Hex, Made, Options};
use sptrace_types::decode::capture::{Extent, From, all_captures, captures, run};
use sptrace_types::decode::memory::Captured;
use sptrace_types::decode::print::line;
use sptrace_types::decode::{events, fields};
use sptrace_types::names::Style;
use sptrace_types::syscalls;

/// Memory as it is before and after a call.
#[derive(Default)]
struct World {
    before: Vec<(u64, Vec<u8>)>,
    after: Vec<(u64, Vec<u8>)>,
}

impl World {
    fn at(mut self, address: u64, bytes: &[u8]) -> Self {
        self.before.push((address, bytes.to_vec()));
        self
    }

    fn then(mut self, address: u64, bytes: &[u8]) -> Self {
        self.after.push((address, bytes.to_vec()));
        self
    }

    fn read(&self, exit: bool, address: u64, buffer: &mut [u8]) -> usize {
        let later = if exit { self.after.as_slice() } else { &[] };
        for (from, bytes) in later.iter().chain(&self.before) {
            let Some(start) = address.checked_sub(*from).map(|start| start as usize) else {
                continue;
            };
            if let Some(rest) = bytes.get(start..).filter(|rest| !rest.is_empty()) {
                let amount = rest.len().min(buffer.len());
                buffer[..amount].copy_from_slice(&rest[..amount]);
                return amount;
            }
        }
        0
    }

    fn show_with(&self, name: &str, args: &[u64], result: i64, options: &Options<'_>) -> String {
        let number = syscalls::by_name(name).unwrap().number;
        let call = calls::by_number(number).unwrap();
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        let extent = Extent {
            string_bytes: options.string_limit as u32,
            verbose: options.verbose,
        };
        let loads = captures(call, &all, extent);
        let mut captured = Captured::default();
        let mut entry = |address: u64, buffer: &mut [u8]| self.read(false, address, buffer);
        run(&loads, &all, None, &mut captured, &mut entry);
        let mut exit = |address: u64, buffer: &mut [u8]| self.read(true, address, buffer);
        run(&loads, &all, Some(result), &mut captured, &mut exit);
        let made = Made {
            number,
            args: &all,
            result: Some(result),
            memory: &captured,
        };
        let line = line(&made, options);
        format!("{} {}", line.call, line.result)
    }

    fn show(&self, name: &str, args: &[u64], result: i64) -> String {
        self.show_with(name, args, result, &Options::default())
    }
}

fn words(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn halves(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

const HERE: u64 = -100i64 as u64;

#[test]
fn files_are_opened() {
    let world = World::default().at(0x1000, b"/etc/passwd\0");
    assert_eq!(
        world.show("openat", &[HERE, 0x1000, 0o2_000_000], 3),
        r#"openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3"#
    );
    assert_eq!(
        world.show("openat", &[HERE, 0x1000, 0o101, 0o644], -2),
        r#"openat(AT_FDCWD, "/etc/passwd", O_WRONLY|O_CREAT, 0644) = -1 ENOENT (No such file or directory)"#
    );
    assert_eq!(
        world.show("openat", &[HERE, 0x9999, 0, 0], -14),
        "openat(AT_FDCWD, 0x9999, O_RDONLY) = -1 EFAULT (Bad address)"
    );
    assert_eq!(
        world.show("openat", &[HERE, 0, 0, 0], -14),
        "openat(AT_FDCWD, NULL, O_RDONLY) = -1 EFAULT (Bad address)"
    );
}

#[test]
fn buffers_are_cut_and_quoted() {
    let world = World::default().then(
        0x1000,
        b"a\"b\\\n\x008\x019\xff0123456789012345678901234567890",
    );
    assert_eq!(
        world.show("read", &[3, 0x1000, 100], 9),
        r#"read(3, "a\"b\\\n\08\19", 100) = 9"#
    );
    assert_eq!(
        world.show("read", &[3, 0x1000, 100], 40),
        r#"read(3, "a\"b\\\n\08\19\3770123456789012345678901"..., 100) = 40"#
    );
    assert_eq!(
        world.show("read", &[3, 0x1000, 100], -11),
        "read(3, 0x1000, 100) = -1 EAGAIN (Resource temporarily unavailable)"
    );
    let hex = Options {
        hex: Hex::NonAscii,
        string_limit: 4,
        ..Options::default()
    };
    let world = World::default().at(0x1000, b"ab\x01c");
    assert_eq!(
        world.show_with("write", &[1, 0x1000, 4], 4, &hex),
        r#"write(1, "\x61\x62\x01\x63", 4) = 4"#
    );
}

#[test]
fn restarted_calls_have_the_kernels_errors() {
    let world = World::default();
    assert_eq!(
        world.show("pause", &[], -514),
        "pause() = ? ERESTARTNOHAND (To be restarted if no handler)"
    );
    assert_eq!(
        world.show("read", &[0, 0x1000, 1], -512),
        "read(0, 0x1000, 1) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)"
    );
}

#[test]
fn a_descriptor_says_what_it_leads_to() {
    let path_of = |fd: i32| {
        Some(if fd == 3 {
            "/tmp/x".to_owned()
        } else {
            "/here".to_owned()
        })
    };
    let options = Options {
        path_of: Some(&path_of),
        ..Options::default()
    };
    let world = World::default().at(0x1000, b"x\0");
    assert_eq!(
        world.show_with("openat", &[HERE, 0x1000, 0], 3, &options),
        r#"openat(AT_FDCWD</here>, "x", O_RDONLY) = 3</tmp/x>"#
    );
}

#[test]
fn files_have_modes_and_sizes() {
    let mut stat = vec![0; 144];
    stat[24..28].copy_from_slice(&0o100_644u32.to_le_bytes());
    stat[48..56].copy_from_slice(&114u64.to_le_bytes());
    let world = World::default().then(0x2000, &stat);
    assert_eq!(
        world.show("fstat", &[3, 0x2000], 0),
        "fstat(3, {st_mode=S_IFREG|0644, st_size=114, ...}) = 0"
    );
    stat[24..28].copy_from_slice(&0o020_666u32.to_le_bytes());
    stat[40..48].copy_from_slice(&0x103u64.to_le_bytes());
    let world = World::default().then(0x2000, &stat);
    assert_eq!(
        world.show("fstat", &[3, 0x2000], 0),
        "fstat(3, {st_mode=S_IFCHR|0666, st_rdev=makedev(0x1, 0x3), ...}) = 0"
    );
}

#[test]
fn signals_have_handlers_and_masks() {
    let action = words(&[0x5555, 0x1400_0000, 0x7777, 1 << 1 | 1 << 16]);
    let world = World::default()
        .at(0x1000, &action)
        .then(0x2000, &words(&[0; 4]));
    assert_eq!(
        world.show("rt_sigaction", &[2, 0x1000, 0x2000, 8], 0),
        "rt_sigaction(SIGINT, {sa_handler=0x5555, sa_mask=[INT CHLD], sa_flags=SA_RESTORER|SA_RESTART, sa_restorer=0x7777}, {sa_handler=SIG_DFL, sa_mask=[], sa_flags=0}, 8) = 0"
    );
    let world = World::default().at(0x1000, &words(&[!(1 << 31)]));
    assert_eq!(
        world.show("rt_sigprocmask", &[0, 0x1000, 0, 8], 0),
        "rt_sigprocmask(SIG_BLOCK, ~[RTMIN], NULL, 8) = 0"
    );
}

#[test]
fn sockets_have_addresses_and_options() {
    let world = World::default().at(0x1000, &[2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        world.show("connect", &[3, 0x1000, 16], 0),
        r#"connect(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}, 16) = 0"#
    );
    let world = World::default().at(0x1000, b"\x01\0/run/x\0");
    assert_eq!(
        world.show("bind", &[3, 0x1000, 9], 0),
        r#"bind(3, {sa_family=AF_UNIX, sun_path="/run/x"}, 9) = 0"#
    );
    let world = World::default().at(0x1000, &halves(&[1]));
    assert_eq!(
        world.show("setsockopt", &[3, 1, 2, 0x1000, 4], 0),
        "setsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0"
    );
    let world = World::default()
        .at(0x2000, &halves(&[128]))
        .then(0x2000, &halves(&[2]))
        .then(0x1000, &[1, 0]);
    assert_eq!(
        world.show("accept", &[3, 0x1000, 0x2000], 4),
        "accept(3, {sa_family=AF_UNIX}, [128 => 2]) = 4"
    );
}

#[test]
fn messages_lead_to_buffers() {
    let header = words(&[0, 0, 0x2000, 2, 0, 0, 0]);
    let parts = words(&[0x3000, 3, 0x4000, 5]);
    let world = World::default()
        .at(0x1000, &header)
        .at(0x2000, &parts)
        .at(0x3000, b"one")
        .at(0x4000, b"three");
    assert_eq!(
        world.show("sendmsg", &[5, 0x1000, 0x4000], 8),
        r#"sendmsg(5, {msg_name=NULL, msg_namelen=0, msg_iov=[{iov_base="one", iov_len=3}, {iov_base="three", iov_len=5}], msg_iovlen=2, msg_controllen=0, msg_flags=0}, MSG_NOSIGNAL) = 8"#
    );
    // Only as far as the result goes.
    assert_eq!(
        world.show("readv", &[5, 0x2000, 2], 4),
        r#"readv(5, [{iov_base="one", iov_len=3}, {iov_base="t", iov_len=5}], 2) = 4"#
    );
}

#[test]
fn waiting_says_what_was_found() {
    let before = [3, 0, 0, 0, 1, 0, 0, 0];
    let after = [3, 0, 0, 0, 1, 0, 0x11, 0];
    let world = World::default().at(0x1000, &before).then(0x1000, &after);
    assert_eq!(
        world.show("poll", &[0x1000, 1, 100], 1),
        "poll([{fd=3, events=POLLIN}], 1, 100) = 1 ([{fd=3, revents=POLLIN|POLLHUP}])"
    );
    assert_eq!(
        world.show("poll", &[0x1000, 1, 100], 0),
        "poll([{fd=3, events=POLLIN}], 1, 100) = 0 (Timeout)"
    );
    let event = [1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    let world = World::default().then(0x1000, &event);
    assert_eq!(
        world.show("epoll_wait", &[4, 0x1000, 10, u64::MAX], 1),
        "epoll_wait(4, [{events=EPOLLIN, data={u32=7, u64=7}}], 10, -1) = 1"
    );
    let world = World::default().then(0x1000, &halves(&[0x300]));
    assert_eq!(
        world.show("wait4", &[u64::MAX, 0x1000, 0, 0], 77),
        "wait4(-1, [{WIFEXITED(s) && WEXITSTATUS(s) == 3}], 0, NULL) = 77"
    );
}

#[test]
fn operations_choose_the_arguments() {
    let world = World::default();
    assert_eq!(
        world.show("fcntl", &[3, 1], 1),
        "fcntl(3, F_GETFD) = 0x1 (flags FD_CLOEXEC)"
    );
    assert_eq!(
        world.show("fcntl", &[3, 1030, 10], 11),
        "fcntl(3, F_DUPFD_CLOEXEC, 10) = 11"
    );
    assert_eq!(
        world.show("fcntl", &[3, 3], 0),
        "fcntl(3, F_GETFL) = 0 (flags O_RDONLY)"
    );
    assert_eq!(
        world.show("ioctl", &[3, 0x5451], 0),
        "ioctl(3, FIOCLEX) = 0"
    );
    assert_eq!(
        world.show("futex", &[0x1000, 129, 1], 0),
        "futex(0x1000, FUTEX_WAKE_PRIVATE, 1) = 0"
    );
    assert_eq!(
        world.show("prctl", &[0xffff_ffff, 1, 2, 3, 4], -22),
        "prctl(0xffffffff /* PR_??? */, 0x1, 0x2, 0x3, 0x4) = -1 EINVAL (Invalid argument)"
    );
}

#[test]
fn capabilities_have_names() {
    let header = halves(&[0x2008_0522, 0]);
    let world = World::default()
        .at(0x1000, &header)
        .then(0x2000, &halves(&[3, 0, 0, 1, 0, 0]));
    assert_eq!(
        world.show("capget", &[0x1000, 0x2000], 0),
        "capget({version=_LINUX_CAPABILITY_VERSION_3, pid=0}, {effective=1<<CAP_CHOWN|1<<CAP_DAC_OVERRIDE|1<<CAP_MAC_OVERRIDE, permitted=0, inheritable=0}) = 0"
    );
}

#[test]
fn programs_have_arguments_and_environments() {
    let world = World::default()
        .at(0x1000, b"/bin/ls\0")
        .at(0x2000, &words(&[0x1000, 0x5000, 0]))
        .at(0x3000, &words(&[0x1000, 0]))
        .at(0x5000, b"-l\0");
    assert_eq!(
        world.show("execve", &[0x1000, 0x2000, 0x3000], 0),
        r#"execve("/bin/ls", ["/bin/ls", "-l"], 0x3000 /* 1 var */) = 0"#
    );
}

#[test]
fn limits_and_times_have_units() {
    let world = World::default().then(0x1000, &words(&[8 << 20, u64::MAX]));
    assert_eq!(
        world.show("prlimit64", &[0, 3, 0, 0x1000], 0),
        "prlimit64(0, RLIMIT_STACK, NULL, {rlim_cur=8192*1024, rlim_max=RLIM64_INFINITY}) = 0"
    );
    let world = World::default().at(0x1000, &words(&[0, 0x3fff_fffe, 1_577_836_800, 0]));
    assert_eq!(
        world.show("utimensat", &[3, 0, 0x1000, 0], 0),
        "utimensat(3, NULL, [UTIME_OMIT, {tv_sec=1577836800, tv_nsec=0} /* 2020-01-01T00:00:00+0000 */], 0) = 0"
    );
}

#[test]
fn signals_and_ends_are_lines() {
    let mut info = vec![0; 128];
    info[0] = 17;
    info[8] = 1;
    info[16] = 9;
    assert_eq!(
        events::signal_line(info[0].into(), &info, Style::Abbrev),
        "--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=9, si_uid=0, si_status=0, si_utime=0, si_stime=0} ---"
    );
    info[0] = 11;
    assert_eq!(
        events::signal_line(info[0].into(), &info, Style::Abbrev),
        "--- SIGSEGV {si_signo=SIGSEGV, si_code=SEGV_MAPERR, si_addr=0x9} ---"
    );
    assert_eq!(
        events::signal_line(10, &[], Style::Abbrev),
        "--- SIGUSR1 {si_signo=SIGUSR1, ...} ---"
    );
    assert_eq!(
        events::signal_line(11, &info, Style::Verbose),
        "--- SIGSEGV {si_signo=11 /* SIGSEGV */, si_code=0x1 /* SEGV_MAPERR */, si_addr=0x9} ---"
    );
    assert_eq!(events::end_line(0x300), "+++ exited with 3 +++");
    assert_eq!(
        events::end_line(0x8b),
        "+++ killed by SIGSEGV (core dumped) +++"
    );
}

#[test]
fn values_are_found_by_name() {
    let call = calls::by_name("fstat").unwrap();
    let place = fields::place(call, &[0; 6], "statbuf.st_size").unwrap();
    assert_eq!((place.argument, place.offsets), (1, vec![48]));
    let call = calls::by_name("openat").unwrap();
    assert!(
        fields::place(call, &[0; 6], "flags")
            .unwrap()
            .offsets
            .is_empty()
    );
    let error = fields::place(call, &[0; 6], "flag").unwrap_err();
    assert!(error.contains("filename, flags"), "{error}");
}

#[test]
fn wild_arguments_neither_crash_nor_hang() {
    let world = World::default().at(0x1000, &[0xff; 4096]);
    let values = [0, 1, 0x1000, 0x1ff8, u64::MAX, 1 << 63, 0xffff_ffff];
    for call in syscalls::all() {
        for shift in 0..values.len() {
            let args: Vec<u64> = (0..6).map(|i| values[(i + shift) % values.len()]).collect();
            for result in [0, 1, -14, i64::MAX] {
                let verbose = Options {
                    verbose: true,
                    ..Options::default()
                };
                world.show_with(call.name, &args, result, &verbose);
                world.show(call.name, &args, result);
            }
        }
    }
}

#[test]
fn captures_can_be_compiled() {
    // Each load begins at an argument or at what an earlier load brings, in the same phase.
    let extent = Extent {
        string_bytes: 32,
        verbose: true,
    };
    let mut most = 0;
    for known in syscalls::all() {
        let call = calls::by_number(known.number).unwrap();
        for (_, loads) in all_captures(call, extent) {
            most = most.max(loads.len());
            for (index, load) in loads.iter().enumerate() {
                match load.from {
                    From::Argument(argument) => assert!(argument < 6, "{}", known.name),
                    From::Pointers {
                        load: parent,
                        stride,
                        offset,
                    } => {
                        assert!(usize::from(parent) < index, "{}", known.name);
                        assert_eq!(
                            loads[usize::from(parent)].phase,
                            load.phase,
                            "{}",
                            known.name
                        );
                        assert!(offset + 8 <= stride, "{}", known.name);
                    }
                }
            }
        }
    }
    assert!(most <= 12, "{most}");
}
