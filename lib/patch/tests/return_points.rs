//! Bytes in, bytes out: what is put behind a call so that its end can be seen, one test a form; and
//! no byte is covered twice in libraries as they are installed.

mod slot;

use slot::{CODE, ReadTemplate, elf, hex};
use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function, FunctionFlags, Site, SiteFlags, SiteKind, analyze};
use sptrace_image::Object;
use sptrace_patch::build_plan_in_order;
use sptrace_patch::return_points::{Obstacle, Patch, ReturnPoint, Seen, return_points};
use sptrace_wire::plan::{PlanView, SiteForm};

/// Where the function ends that the code is.
const END: u64 = 0x80;
const CALLEE: Svma = Svma(CODE + END);

/// `call CALLEE` at an offset in the code.
fn call(offset: u64) -> Site {
    Site {
        target: CALLEE,
        ..Site::new(Svma(CODE + offset), 5, SiteKind::CallDirect)
    }
}

/// The return points of a function that consists of this code and ends with it or at `END`.
fn points(code: &str, sites: &[Site], end: Option<u64>) -> Vec<ReturnPoint> {
    points_with_runs(code, sites, end, &[])
}

/// The same, where room may be made in these runs of instructions, as offsets in the code.
fn points_with_runs(
    code: &str,
    sites: &[Site],
    end: Option<u64>,
    runs: &[(u64, u64)],
) -> Vec<ReturnPoint> {
    let mut bytes = hex(code);
    bytes.resize(0x100, 0xcc);
    let file = elf(&bytes);
    let mut object = Object::parse(&file).unwrap();
    object.entry = Svma(0);
    let function = |entry, end, site_count| Function {
        entry: Svma(CODE + entry),
        end: Svma(CODE + end),
        first_site: 0,
        site_count,
        first_link: 0,
        link_count: 0,
        flags: FunctionFlags::HAS_UNWIND,
    };
    let analysis = Analysis {
        functions: vec![
            function(0, end.unwrap_or(END), sites.len() as u32),
            function(END, END + 1, 0),
        ],
        sites: sites.iter().copied().collect(),
        plain_runs: (runs.iter())
            .map(|(from, to)| (Svma(CODE + from), Svma(CODE + to)))
            .collect(),
        ..Analysis::default()
    };
    let plan = build_plan_in_order(&object, &analysis);
    return_points(&object, &analysis, &plan)
}

fn only(code: &str, site: Site) -> ReturnPoint {
    let mut found = points(code, &[site], None);
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn shown(patch: &Patch) -> (u8, String) {
    let template = ReadTemplate::read(&patch.template);
    assert_eq!(template.original.len(), usize::from(patch.span));
    assert_eq!(template.code.len() as u32, patch.slot_bytes);
    (patch.span, template.show(Svma(CODE & !4095)))
}

fn by_jump(point: &ReturnPoint) -> (u8, String) {
    match &point.seen {
        Seen::Jump(patch) => shown(patch),
        seen => panic!("{seen:x?}"),
    }
}

#[test]
fn whole_instructions_are_moved_and_their_operands_mended() {
    // call; mov rbx,rax; lea rdi,[rip+16]; nop; ret
    let point = only("e8 7b000000 4889c3 488d3d10000000 90 c3", call(0));
    let slot = "00 00 00 00 e8 <RETURN> 48 89 c3 48 8d 3d <40101f> e9 <40100f>";
    assert_eq!(by_jump(&point), (10, slot.to_owned()));
    assert_eq!((point.at, point.is_target), (Svma(CODE + 5), false));
}

/// The slot of the next call would have looked for the frame of the first where it does not lie.
#[test]
fn where_arguments_are_taken_off_the_stack_first_the_next_site_sees_no_return() {
    // call; add rsp,16 (or add rbx,16); call; ret
    for (code, is_merged) in [
        ("e8 7b000000 4883c410 e8 72000000 c3", false),
        ("e8 7b000000 4883c310 e8 72000000 c3", true),
    ] {
        let found = points(code, &[call(0), call(9)], None);
        assert_eq!(found[0].seen == Seen::Merged, is_merged, "{found:x?}");
    }
}

#[test]
fn a_return_or_a_jump_ends_what_is_moved() {
    // call; add rsp,8; ret
    let point = only("e8 7b000000 4883c408 c3", call(0));
    let slot = "00 00 00 00 e8 <RETURN> 48 83 c4 08 c3".to_owned();
    assert_eq!(by_jump(&point), (5, slot));
    // call; pop rbx; jmp 0x401010, and filling; a conditional jump is moved as any other.
    let point = only("e8 7b000000 5b eb08 cccccccccc cccccc 31c0 c3", call(0));
    assert_eq!(
        by_jump(&point),
        (5, "00 00 00 00 e8 <RETURN> 5b e9 <401010>".to_owned())
    );
    let point = only("e8 7b000000 85c0 7407 31c0 c3", call(0));
    let slot = "00 00 00 00 e8 <RETURN> 85 c0 0f 84 <401010> 31 c0 e9 <40100b>";
    assert_eq!(by_jump(&point), (6, slot.to_owned()));
}

#[test]
fn filling_gives_room_where_control_does_not_come_but_no_more_than_that() {
    // call; ret; four int3, and the function has ended.
    let found = points("e8 7b000000 c3", &[call(0)], Some(6));
    assert_eq!(
        by_jump(&found[0]),
        (5, "00 00 00 00 e8 <RETURN> c3".to_owned())
    );
    // call; ret; something that is executed.
    let point = only("e8 7b000000 c3 31c0 c3", call(0));
    assert_eq!(point.seen, Seen::Refused(Obstacle::Target));
    // call; nop; int3 is no filling where control comes.
    let found = points("e8 7b000000 90", &[call(0)], Some(6));
    assert_eq!(found[0].seen, Seen::Refused(Obstacle::End));
}

#[test]
fn a_target_behind_the_first_byte_is_in_the_way_and_one_there_is_told() {
    let led_to = |n: u32| Site {
        leaders_behind: 1 << n,
        ..call(0)
    };
    let code = "e8 7b000000 4889c3 4889d9 90 c3";
    for n in 1..6 {
        let point = only(code, led_to(n));
        let is_short = matches!(&point.seen, Seen::Springboard(p) if p.span == 3 && n > 2);
        let is_refused = point.seen == Seen::Refused(Obstacle::Target) && n <= 2;
        assert!(is_short || is_refused, "{n}: {point:x?}");
    }
    assert_eq!(by_jump(&only(code, led_to(6))).0, 6);
    let point = only(code, led_to(0));
    assert!(point.is_target);
    assert_eq!(by_jump(&point).0, 6);
}

#[test]
fn in_a_function_with_unresolved_jumps_one_instruction_is_covered_at_most() {
    let suspect = Site {
        flags: SiteFlags::LEADER_SUSPECT,
        ..call(0)
    };
    // mov eax,1; and mov rbx,rax; inc eax
    let point = only("e8 7b000000 b801000000 c3", suspect);
    assert_eq!(by_jump(&point).0, 5);
    let code = "e8 7b000000 4889c3 ffc0 c3";
    let found = points(code, &[suspect], Some(0xb));
    assert_eq!(found[0].seen, Seen::Refused(Obstacle::UnresolvedJumps));
    // With filling up to a place for a label, a two-byte jump covers the first of them.
    match only(code, suspect).seen {
        Seen::Springboard(patch) => assert_eq!(patch.span, 3),
        seen => panic!("{seen:x?}"),
    }
}

#[test]
fn what_cannot_be_executed_elsewhere_is_left_alone() {
    // syscall; ret: a system call that is begun again must be found where it was.
    let point = only("e8 7b000000 0f05 c3", call(0));
    assert_eq!(point.seen, Seen::Refused(Obstacle::Unmovable));
    let never = Site {
        flags: SiteFlags::NO_RETURN_CALLEE,
        ..call(0)
    };
    assert_eq!(points("e8 7b000000 0f0b", &[never], None), []);
}

#[test]
fn a_call_that_follows_at_once_sees_the_return() {
    // call; mov rdi,rax; call; add rsp,8; ret
    let code = "e8 7b000000 4889c7 e8 73000000 4883c408 c3";
    let found = points(code, &[call(0), call(8)], None);
    assert_eq!((&found[0].seen, found[0].is_target), (&Seen::Merged, false));
    assert_eq!(by_jump(&found[1]).0, 5);
    // With what leads to the second call it is told.
    let first = Site {
        leaders_behind: 1 << 3,
        ..call(0)
    };
    let found = points(code, &[first, call(8)], None);
    assert_eq!((&found[0].seen, found[0].is_target), (&Seen::Merged, true));
    // Farther away there is room.
    let code = "e8 7b000000 4889c7 31f6 e8 71000000 4883c408 c3";
    let found = points(code, &[call(0), call(10)], None);
    assert_eq!(by_jump(&found[0]).0, 5);
}

#[test]
fn a_neighbour_lends_its_room_as_long_as_it_has_some() {
    // call; mov rax,rbx; call; mov eax,1; mov ecx,1; ret -- and targets behind the first move.
    let code = "e8 7b000000 4889d8 90 e8 72000000 b801000000 b901000000 c3";
    let narrow = |offset| Site {
        leaders_behind: 1 << 3,
        ..call(offset)
    };
    let found = points(code, &[narrow(0), call(9)], Some(0x19));
    let Seen::Neighbour(patch) = &found[0].seen else {
        panic!("{found:x?}");
    };
    assert_eq!(
        shown(patch),
        (3, "00 00 00 00 e8 <RETURN> 48 89 d8 e9 <401008>".to_owned())
    );
    // From behind the short jump, at 7, to behind the long one, at 19.
    assert_eq!(ReadTemplate::read(&patch.template).springboard, 12);
    let slot = "00 00 00 00 e8 <RETURN> b8 01 00 00 00 b9 01 00 00 00 e9 <401018>";
    assert_eq!(by_jump(&found[1]), (10, slot.to_owned()));
    // Of two of them both find room, or one where something leads behind the tenth byte.
    let code = "e8 7b000000 4889d8 90 e8 72000000 4889d8 90 e8 69000000 b801000000 b901000000
                ba01000000 c3";
    for (leaders_behind, lent, distances) in [(0, 2, vec![21, 17]), (1 << 10, 1, vec![21])] {
        let lender = Site {
            leaders_behind,
            ..call(18)
        };
        let found = points(code, &[narrow(0), narrow(9), lender], Some(0x27));
        let short = found.iter().filter_map(|p| match &p.seen {
            Seen::Neighbour(patch) => Some(ReadTemplate::read(&patch.template).springboard),
            _ => None,
        });
        assert_eq!(short.collect::<Vec<_>>(), distances);
        let is_refused = |p: &&ReturnPoint| p.seen == Seen::Refused(Obstacle::Target);
        assert_eq!(found.iter().filter(is_refused).count(), 2 - lent);
        assert_eq!(usize::from(by_jump(&found[2]).0), 5 * (1 + lent));
    }
}

#[test]
fn room_is_made_behind_a_hook_where_nothing_leads() {
    // push rbx; sub rsp,16; mov eax,1; mov ecx,1; mov edx,[rip+..]; call; pop rbx; ret; other code
    let code = "53 4883ec10 b801000000 b901000000 8b15 00000000 e8 66000000 5b c3 4889d8";
    let seen = |runs: &[(u64, u64)], pointer: Option<u64>| {
        let site = Site {
            leaders_behind: pointer.map_or(0, |at| 1 << at),
            ..call(21)
        };
        points_with_runs(code, &[site], Some(0x1c), runs)
            .remove(0)
            .seen
    };
    let Seen::MadeRoom(patch) = seen(&[(0, 21)], None) else {
        panic!("no room");
    };
    let t = ReadTemplate::read(&patch.template);
    // The last ten bytes or more before the call: the jump to the slot stands five behind 10.
    assert_eq!((patch.span, patch.moved, patch.of_several), (2, 2, true));
    assert_eq!((t.springboard, t.room_back), (15 - 28, 5));
    assert_eq!(t.room, hex("b901000000 8b15 00000000"));
    let slot = "00 00 00 00 e8 <RETURN> 5b c3 b9 01 00 00 00 8b 15 <401015> e9 <401015>";
    assert_eq!(t.show(Svma(CODE & !4095)), slot);
    // A hook at the entry covers up to ten bytes of these; a run that ends there has no room.
    assert_eq!(seen(&[(0, 15)], None), Seen::Refused(Obstacle::Target));
    // Where something leads to the second byte behind the call, no short jump fits either.
    assert_eq!(seen(&[(0, 21)], Some(1)), Seen::Refused(Obstacle::Target));
    assert_eq!(seen(&[], None), Seen::Refused(Obstacle::Target));
}

/// Where the text is changed at return points: the jumps, and the long ones of short ones, with
/// the room that was made for them.
fn covered(points: &[ReturnPoint]) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for point in points {
        let (patch, is_short) = match &point.seen {
            Seen::Jump(patch) => (patch, false),
            Seen::Springboard(patch) | Seen::Neighbour(patch) | Seen::MadeRoom(patch) => {
                (patch, true)
            }
            Seen::Merged | Seen::Refused(_) => continue,
        };
        all.push((point.at.0, point.at.0 + u64::from(patch.span)));
        if is_short && matches!(point.seen, Seen::Springboard(_)) {
            let distance = ReadTemplate::read(&patch.template).springboard;
            let at = (point.at.0 + 2).wrapping_add_signed(i64::from(distance));
            all.push((at, at + 5));
        }
        if matches!(point.seen, Seen::MadeRoom(_)) {
            let template = ReadTemplate::read(&patch.template);
            let jump = (point.at.0 + 2).wrapping_add_signed(i64::from(template.springboard));
            let start = jump - u64::from(template.room_back);
            all.push((start, start + template.room.len() as u64));
        }
    }
    all
}

#[test]
fn nearly_all_of_the_c_library_and_bash_can_be_seen_and_no_byte_is_covered_twice() {
    for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/bin/bash"] {
        let Ok(bytes) = std::fs::read(path) else {
            continue;
        };
        let object = Object::parse(&bytes).unwrap();
        let analysis = analyze(&object);
        let plan = build_plan_in_order(&object, &analysis);
        let found = return_points(&object, &analysis, &plan);
        let refused = found.iter().filter(|p| matches!(p.seen, Seen::Refused(_)));
        let refused = refused.count();
        assert!(
            found.len() > 5000 && refused * 200 < found.len(),
            "{path}: {refused}"
        );
        let view = PlanView::new(&plan).unwrap();
        let base = view.header().base_svma;
        let sites = view.sites().filter(|s| s.form != SiteForm::Refused);
        let sites = sites.map(|s| (s.start, u32::from(s.span)));
        let specials = view.specials().map(|s| (s.start, u32::from(s.span)));
        let plans: Vec<(u64, u64)> = sites
            .chain(specials)
            .map(|(start, span)| (base + u64::from(start), base + u64::from(start + span)))
            .collect();
        let mut ours = covered(&found);
        ours.sort_unstable();
        let is_ours = |range: &(u64, u64)| ours.binary_search(range).is_ok();
        let twice = ours.windows(2).filter(|w| w[0].1 > w[1].0);
        assert_eq!(
            twice.collect::<Vec<_>>(),
            Vec::<&[(u64, u64)]>::new(),
            "{path}"
        );
        let mut all: Vec<_> = ours.iter().chain(&plans).copied().collect();
        all.sort_unstable();
        let twice = all.windows(2).filter(|w| w[0].1 > w[1].0);
        let twice: Vec<_> = twice.filter(|w| is_ours(&w[0]) || is_ours(&w[1])).collect();
        assert!(twice.is_empty(), "{path}: {twice:x?}");
    }
}
