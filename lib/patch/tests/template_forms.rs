//! Bytes in, bytes out: what a template holds for each form of a site, one test a form.
//!
//! A site is made by hand in a small image; the expected code is stated as bytes, with each rel32
//! that the agent fills in as `<svma>` (the module) or `<ROUTINE>` (common code).

mod slot;

use slot::{CODE, ReadTemplate, elf, hex};
use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function, FunctionFlags, Site, SiteFlags, SiteKind};
use sptrace_image::Object;
use sptrace_patch::template::Builder;
use sptrace_patch::{Refusal, Tactic, build_plan, build_plan_with_acts, special};
use sptrace_wire::plan::*;

const CALLEE: Svma = Svma(0x40_1080);
const GOT_SLOT: Svma = Svma(0x40_4018);

/// A site at `offset` in the code, `length` bytes, with nothing movable before it.
fn site(kind: SiteKind, offset: u64, length: u8) -> Site {
    Site {
        address: Svma(CODE + offset),
        length,
        kind,
        target: Svma(0),
        got_slot: Svma(0),
        window_start: Svma(CODE + offset),
        way_in: Svma(0),
        room: Svma(0),
        room_bytes: 0,
        leaders_behind: 0,
        flags: SiteFlags::default(),
    }
}

/// The plan of one function that holds one site.
fn plan_of(code: &str, site: Site, flags: FunctionFlags) -> (PlanSite, Vec<u8>) {
    plan_in_runtime(code, site, flags, false)
}

/// The same in an image whose return addresses must stay what they are, or not.
fn plan_in_runtime(
    code: &str,
    site: Site,
    flags: FunctionFlags,
    keeps_stack_maps: bool,
) -> (PlanSite, Vec<u8>) {
    plan_by(&build_plan, code, site, (flags, keeps_stack_maps))
}

/// The same by one of the makers of plans.
fn plan_by(
    build: &dyn Fn(&Object<'_>, &Analysis) -> Vec<u8>,
    code: &str,
    site: Site,
    (flags, keeps_stack_maps): (FunctionFlags, bool),
) -> (PlanSite, Vec<u8>) {
    let mut bytes = hex(code);
    bytes.resize(0x100, 0xcc);
    let file = elf(&bytes);
    let mut object = Object::parse(&file).unwrap();
    object.keeps_stack_maps = keeps_stack_maps;
    // The start-up code is no part of a runtime.
    object.entry = Svma(0);
    let function = Function {
        entry: Svma(CODE),
        end: Svma(CODE + 0x80),
        first_site: 0,
        site_count: 1,
        first_link: 0,
        link_count: 0,
        flags,
    };
    let analysis = Analysis {
        functions: vec![function],
        sites: [site].into_iter().collect(),
        ..Analysis::default()
    };
    let plan = build(&object, &analysis);
    let site = PlanView::new(&plan).unwrap().site(0).unwrap();
    (site, plan)
}

/// What a form's test states: tactic, flags, first byte covered, span, code.
type Expected<'a> = (Tactic, u16, u64, u8, &'a str);

fn check(code: &str, site: Site, expected: Expected<'_>) {
    check_in(code, site, false, expected);
}

fn check_in(code: &str, site: Site, keeps_stack_maps: bool, expected: Expected<'_>) {
    let (tactic, flags, start, span, slot) = expected;
    let function = FunctionFlags::HAS_UNWIND;
    let address = site.address;
    let (planned, plan) = plan_in_runtime(code, site, function, keeps_stack_maps);
    assert_eq!(planned.form, SiteForm::Template);
    let view = PlanView::new(&plan).unwrap();
    let base = Svma(view.header().base_svma);
    let t = ReadTemplate::of_plan(view, planned.argument);
    assert_eq!(t.show(base), slot);
    let form = planned.flags & !SITE_REPEATABLE; // tested by itself
    assert_eq!((planned.verdict, form), (tactic as u8, flags));
    assert_eq!((u64::from(planned.start), planned.span), (start, span));
    let covered = &hex(code)[start as usize..start as usize + usize::from(span)];
    assert_eq!(
        t.original, covered,
        "the bytes that must be found in the text"
    );
    let before = tactic == Tactic::WayIn || base.0 + start < address.0;
    assert_eq!(t.moved > 0, before, "instructions moved before the call");
}

/// How a slot goes on that keeps a callee with acts, behind what was moved: how its operand is
/// loaded and pushed, with the filling of both, and the filling before the words.
fn kept_acts(load: &str, push: &str, filling: usize) -> String {
    let named = |end: i64, word: u32| {
        let rel = (29 - end) as u32 + filling as u32 + 8 * word;
        let bytes = rel.to_le_bytes().map(|byte| format!("{byte:02x}"));
        bytes.join(" ")
    };
    let (minus, callee) = (named(-30, 0), named(29, 1));
    let (code, back) = (named(23, 2), named(15, 3));
    let (nops, words) = (" 90".repeat(filling), " 00".repeat(40));
    format!(
        "51 52 {load} 48 8b 15 {minus} 48 8d 0c 11 5a e3 27 59 {push} e8 <ACTS_FIRST> 8f 04 24 \
         e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> ff 35 {back} c3 59 ff 15 {code} ff 25 \
         {callee}{nops}{words}"
    )
}

fn check_keeps_acts(code: &str, site: Site, expected: Expected<'_>) -> (PlanSite, Vec<u8>) {
    let (tactic, flags, start, span, slot) = expected;
    let function = (FunctionFlags::HAS_UNWIND, false);
    let (planned, plan) = plan_by(&build_plan_with_acts, code, site, function);
    let view = PlanView::new(&plan).unwrap();
    let base = Svma(view.header().base_svma);
    let t = ReadTemplate::of_plan(view, planned.argument);
    assert_eq!(t.show(base), slot);
    let form = planned.flags & !SITE_REPEATABLE;
    assert_eq!((planned.verdict, form), (tactic as u8, flags));
    assert_eq!((u64::from(planned.start), planned.span), (start, span));
    (planned, plan)
}

#[test]
fn a_call_through_a_pointer_that_keeps_a_callee_with_acts() {
    const KEPT: u16 = SITE_INDIRECT | SITE_KEEP_CALL | SITE_KEEPS_ACTS;
    let by_slot = Site {
        target: CALLEE,
        got_slot: GOT_SLOT,
        ..site(SiteKind::CallDirect, 0, 5)
    };
    let slot = kept_acts("48 8b 0d <404018> 66 90", "0f 1f 00 ff 35 <404018>", 3);
    let expected = (Tactic::CallInstruction, KEPT, 0, 5, &*slot);
    let (planned, plan) = check_keeps_acts("e8 7b 00 00 00", by_slot, expected);
    let view = PlanView::new(&plan).unwrap();
    assert_eq!(view.got_slot(&planned), Some(GOT_SLOT.0));

    // mov rdi, rbx ; call r11: what is moved needs no stack pointer.
    let by_register = Site {
        window_start: Svma(CODE),
        ..site(SiteKind::CallIndirect, 3, 3)
    };
    let slot = format!(
        "48 89 df 90 90 {}",
        kept_acts(
            "49 8b cb 66 0f 1f 44 00 00",
            "66 0f 1f 44 00 00 41 ff f3",
            6
        )
    );
    let expected = (Tactic::CallBlock, KEPT, 0, 6, &*slot);
    check_keeps_acts("48 89 df 41 ff d3", by_register, expected);

    // call [rsp+16] has a return address and two registers between the stack pointer and the word.
    let on_stack = Site {
        window_start: Svma(CODE),
        ..site(SiteKind::CallIndirect, 3, 4)
    };
    let slot = format!(
        "48 89 df 90 90 {}",
        kept_acts(
            "48 8b 8c 24 28 00 00 00 90",
            "66 90 ff b4 24 18 00 00 00",
            6
        )
    );
    let expected = (Tactic::CallBlock, KEPT, 0, 7, &*slot);
    check_keeps_acts("48 89 df ff 54 24 10", on_stack, expected);
}

#[test]
fn where_what_is_moved_needs_the_stack_no_callee_is_kept() {
    // mov [rsp], rdi ; call rax
    let pushed = Site {
        window_start: Svma(CODE),
        ..site(SiteKind::CallIndirect, 4, 2)
    };
    let slot = "48 89 3c 24 ff f0 e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <401006>";
    let expected = (Tactic::CallBlock, SITE_INDIRECT, 0, 6, slot);
    check_keeps_acts("48 89 3c 24 ff d0", pushed, expected);
}

fn check_refused(code: &str, site: Site, refusal: Refusal) {
    let (planned, _) = plan_of(code, site, FunctionFlags::HAS_UNWIND);
    assert_eq!(
        (planned.form, planned.verdict),
        (SiteForm::Refused, refusal as u8)
    );
}

#[test]
fn plain_direct_call_has_no_template() {
    let site = Site {
        target: CALLEE,
        ..site(SiteKind::CallDirect, 0, 5)
    };
    let (planned, plan) = plan_of("e8 7b 00 00 00", site, FunctionFlags::HAS_UNWIND);
    assert_eq!(
        (planned.form, planned.span, planned.argument),
        (SiteForm::Direct, 5, 0x80)
    );
    let view = PlanView::new(&plan).unwrap();
    assert_eq!(view.ids(&planned), Some((8, 18)));
    assert_eq!(view.callee(&planned), Some(CALLEE.0));
}

#[test]
fn direct_call_with_a_prefix() {
    let site = Site {
        target: CALLEE,
        ..site(SiteKind::CallDirect, 0, 6)
    };
    let slot = "e8 <FIRST> e8 <401080> e8 <EXIT> e9 <401006>";
    check(
        "67 e8 7a 00 00 00",
        site,
        (Tactic::CallInstruction, 0, 0, 6, slot),
    );
}

#[test]
fn direct_call_of_a_plt_stub_goes_through_its_slot() {
    let site = Site {
        target: CALLEE,
        got_slot: GOT_SLOT,
        ..site(SiteKind::CallDirect, 0, 5)
    };
    let slot = "ff 35 <404018> e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <401005>";
    check(
        "e8 7b 00 00 00",
        site,
        (Tactic::CallInstruction, SITE_INDIRECT, 0, 5, slot),
    );
}

#[test]
fn call_through_a_rip_relative_slot() {
    let site = Site {
        got_slot: GOT_SLOT,
        ..site(SiteKind::CallIndirect, 0, 6)
    };
    let slot = "ff 35 <404018> e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <401006>";
    check(
        "ff 15 12 30 00 00",
        site,
        (Tactic::CallInstruction, SITE_INDIRECT, 0, 6, slot),
    );
}

#[test]
fn call_through_a_register_with_moved_instructions_before() {
    // lea rdi,[rip+0xff9] ; mov rsi,rbx ; call rax: the latest boundary with room is the mov.
    let site = Site {
        window_start: Svma(CODE),
        ..site(SiteKind::CallIndirect, 10, 2)
    };
    let slot = "48 89 de ff f0 e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <40100c>";
    let code = "48 8d 3d f9 0f 00 00 48 89 de ff d0";
    check(code, site, (Tactic::CallBlock, SITE_INDIRECT, 7, 5, slot));
}

#[test]
fn moved_instruction_keeps_what_its_rip_relative_operand_points_at() {
    // lea rdi,[rip+0xff9] (402000) ; call r12
    let site = Site {
        window_start: Svma(CODE),
        ..site(SiteKind::CallIndirect, 7, 3)
    };
    let slot = "48 8d 3d <402000> 41 ff f4 e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <40100a>";
    let code = "48 8d 3d f9 0f 00 00 41 ff d4";
    check(code, site, (Tactic::CallBlock, SITE_INDIRECT, 0, 10, slot));
}

#[test]
fn moved_rip_relative_operand_before_an_immediate() {
    // cmp dword [rip+0x1000],7 (402007) ; call rdx: an immediate follows the displacement.
    let site = Site {
        window_start: Svma(CODE),
        ..site(SiteKind::CallIndirect, 7, 2)
    };
    let slot = "83 3d <402007> 07 ff f2 e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <401009>";
    let code = "83 3d 00 10 00 00 07 ff d2";
    check(code, site, (Tactic::CallBlock, SITE_INDIRECT, 0, 9, slot));
}

#[test]
fn short_call_without_instructions_before_is_refused() {
    check_refused("ff d0", site(SiteKind::CallIndirect, 0, 2), Refusal::NoRoom);
}

#[test]
fn short_call_after_an_instruction_that_cannot_be_moved_is_refused() {
    // syscall ; nop ; call rax
    let site = Site {
        window_start: Svma(CODE),
        ..site(SiteKind::CallIndirect, 3, 2)
    };
    check_refused("0f 05 90 ff d0", site, Refusal::Unmovable);
}

#[test]
fn call_through_memory_at_the_stack_pointer() {
    // call [rsp+0x108]: push reads its operand before it moves rsp.
    let slot = "ff b4 24 08 01 00 00 e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <401007>";
    let site = site(SiteKind::CallIndirect, 0, 7);
    check(
        "ff 94 24 08 01 00 00",
        site,
        (Tactic::CallInstruction, SITE_INDIRECT, 0, 7, slot),
    );
}

#[test]
fn call_through_the_fs_segment() {
    // call fs:[rax+0x300]
    let slot = "64 ff b0 00 03 00 00 e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <401007>";
    let site = site(SiteKind::CallIndirect, 0, 7);
    check(
        "64 ff 90 00 03 00 00",
        site,
        (Tactic::CallInstruction, SITE_INDIRECT, 0, 7, slot),
    );
}

#[test]
fn notrack_call() {
    // notrack call r11, after xor edi,edi
    let site = Site {
        window_start: Svma(CODE),
        ..site(SiteKind::CallIndirect, 2, 4)
    };
    let slot = "31 ff 3e 41 ff f3 e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <401006>";
    check(
        "31 ff 3e 41 ff d3",
        site,
        (Tactic::CallBlock, SITE_INDIRECT, 0, 6, slot),
    );
}

#[test]
fn bnd_call_is_pushed_without_its_prefix() {
    // bnd call [rip+0x2011] (403018)
    let slot = "3e ff 35 <403018> e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <401007>";
    let site = site(SiteKind::CallIndirect, 0, 7);
    check(
        "f2 ff 15 11 20 00 00",
        site,
        (Tactic::CallInstruction, SITE_INDIRECT, 0, 7, slot),
    );
}

#[test]
fn call_with_an_unknown_prefix_is_refused() {
    // A 32-bit address size: the operand would be another one after wrapping.
    let site = site(SiteKind::CallIndirect, 0, 7);
    check_refused("67 ff 90 00 03 00 00", site, Refusal::Unmovable);
}

#[test]
fn tail_jump_direct() {
    let site = Site {
        target: CALLEE,
        ..site(SiteKind::TailDirect, 0, 5)
    };
    let slot = "e8 <TAIL_FIRST> e9 <401080>";
    check(
        "e9 7b 00 00 00",
        site,
        (Tactic::TailInstruction, SITE_TAIL, 0, 5, slot),
    );
}

#[test]
fn tail_jump_short_with_moved_instructions_before() {
    // pop rbx ; pop rbp ; pop r12 ; jmp short: its rel32 stays in one aligned word.
    let site = Site {
        target: CALLEE,
        window_start: Svma(CODE),
        ..site(SiteKind::TailDirect, 4, 2)
    };
    let slot = "5d 41 5c e8 <TAIL_FIRST> e9 <401080>";
    check(
        "5b 5d 41 5c eb 7a",
        site,
        (Tactic::TailBlock, SITE_TAIL, 1, 5, slot),
    );
}

#[test]
fn tail_jump_indirect() {
    let slot = "ff 35 <404018> e8 <TAIL_INDIRECT> ff 64 24 f8";
    let site = Site {
        got_slot: GOT_SLOT,
        ..site(SiteKind::TailIndirect, 0, 6)
    };
    let flags = SITE_INDIRECT | SITE_TAIL;
    check(
        "ff 25 12 30 00 00",
        site,
        (Tactic::TailInstruction, flags, 0, 6, slot),
    );
}

#[test]
fn tail_jump_through_a_register_with_moved_instructions_before() {
    // add rsp,8 ; jmp rax
    let site = Site {
        window_start: Svma(CODE),
        ..site(SiteKind::TailIndirect, 4, 2)
    };
    let slot = "48 83 c4 08 ff f0 e8 <TAIL_INDIRECT> ff 64 24 f8";
    let flags = SITE_INDIRECT | SITE_TAIL;
    check(
        "48 83 c4 08 ff e0",
        site,
        (Tactic::TailBlock, flags, 0, 6, slot),
    );
}

#[test]
fn tail_jump_in_a_function_with_a_red_zone_is_refused() {
    let site = Site {
        target: CALLEE,
        ..site(SiteKind::TailDirect, 0, 5)
    };
    let mut flags = FunctionFlags::HAS_UNWIND;
    flags.insert(FunctionFlags::RED_ZONE);
    let (planned, _) = plan_of("e9 7b 00 00 00", site, flags);
    assert_eq!(
        (planned.form, planned.verdict),
        (SiteForm::Refused, Refusal::RedZone as u8)
    );
}

#[test]
fn conditional_tail_keeps_its_opcode() {
    // je: the text keeps 0f 84 and gets another rel32.
    let site = Site {
        target: CALLEE,
        ..site(SiteKind::TailConditional, 0, 6)
    };
    let slot = "e8 <TAIL_FIRST> e9 <401080>";
    let flags = SITE_TAIL | SITE_KEEP_OPCODE;
    check(
        "0f 84 7a 00 00 00",
        site,
        (Tactic::ConditionalTail, flags, 1, 5, slot),
    );
}

#[test]
fn conditional_tail_to_a_plt_stub_goes_through_its_slot() {
    // Six bytes, however much filling is near: a two-byte jump would leave four bytes of it.
    let site = Site {
        target: CALLEE,
        got_slot: GOT_SLOT,
        ..site(SiteKind::TailConditional, 0, 6)
    };
    let slot = "ff 35 <404018> e8 <TAIL_INDIRECT> ff 64 24 f8";
    let flags = SITE_TAIL | SITE_KEEP_OPCODE | SITE_INDIRECT;
    check(
        "0f 84 7a 00 00 00 c3",
        site,
        (Tactic::ConditionalTail, flags, 1, 5, slot),
    );
}

#[test]
fn conditional_tail_of_two_bytes_is_refused() {
    let site = Site {
        target: CALLEE,
        ..site(SiteKind::TailConditional, 0, 2)
    };
    check_refused("74 7e", site, Refusal::ShortConditional);
}

#[test]
fn entry_only_call_keeps_the_native_return_address() {
    let site = Site {
        target: CALLEE,
        ..site(SiteKind::CallDirect, 0, 5)
    };
    let slot = "e8 <ENTRY_ONLY_FIRST> e9 <401080>";
    let flags = SITE_KEEP_CALL | SITE_ENTRY_ONLY;
    let expected = (Tactic::EntryOnly, flags, 0, 5, slot);
    check_in("e8 7b 00 00 00", site, true, expected);
}

#[test]
fn call_through_a_pointer_is_refused_where_return_addresses_must_stay() {
    let site = site(SiteKind::CallIndirect, 0, 7);
    let function = FunctionFlags::HAS_UNWIND;
    let (planned, _) = plan_in_runtime("ff 94 24 08 01 00 00", site, function, true);
    let expected = (SiteForm::Refused, Refusal::OwnStackMaps as u8);
    assert_eq!((planned.form, planned.verdict), expected);
}

#[test]
fn direct_call_in_a_function_without_unwind_information_is_like_others() {
    let site = Site {
        target: CALLEE,
        ..site(SiteKind::CallDirect, 0, 5)
    };
    let (planned, _) = plan_of("e8 7b 00 00 00", site, FunctionFlags::default());
    assert_eq!(planned.form, SiteForm::Direct);
}

#[test]
fn short_call_with_instructions_nearby_that_make_room() {
    // call rax ; dec ebx ; jne -6 ; mov eax,[rip+0x2ff4] (404000) ; add rsp,8 ; pop rbx ; ret: the
    // load and the addition move behind the call's code.
    let site = Site {
        room: Svma(CODE + 6),
        room_bytes: 10,
        ..site(SiteKind::CallIndirect, 0, 2)
    };
    let slot = "ff f0 e8 <INDIRECT> ff 54 24 f8 e8 <EXIT> e9 <401002> \
                8b 05 <404000> 48 83 c4 08 e9 <401010>";
    let code = "ff d0 ff cb 75 fa 8b 05 f4 2f 00 00 48 83 c4 08 5b c3";
    let flags = SITE_INDIRECT | SITE_SPRINGBOARD;
    check(code, site, (Tactic::MadeRoom, flags, 0, 2, slot));
    let (planned, plan) = plan_of(code, site, FunctionFlags::HAS_UNWIND);
    let view = PlanView::new(&plan).unwrap();
    let t = ReadTemplate::of_plan(view, planned.argument);
    assert_eq!(t.room, hex("8b 05 f4 2f 00 00 48 83 c4 08"));
    assert_eq!((t.room_to, t.springboard, t.room_back), (21, 9, 5));
}

#[test]
fn conditional_tail_of_two_bytes_keeps_its_condition() {
    let site = Site {
        target: CALLEE,
        room: Svma(CODE + 2),
        room_bytes: 10,
        ..site(SiteKind::TailConditional, 0, 2)
    };
    let slot = "e8 <TAIL_FIRST> e9 <401080> 8b 05 <404000> 48 83 c4 08 e9 <40100c>";
    let flags = SITE_TAIL | SITE_KEEP_OPCODE | SITE_SPRINGBOARD;
    let code = "74 7e 8b 05 f8 2f 00 00 48 83 c4 08 c3";
    check(code, site, (Tactic::MadeRoom, flags, 0, 2, slot));
}

#[test]
fn call_of_a_function_that_takes_its_return_address_is_refused() {
    let site = Site {
        target: CALLEE,
        flags: SiteFlags::CALL_NEXT_POP,
        ..site(SiteKind::CallDirect, 0, 5)
    };
    check_refused("e8 00 00 00 00", site, Refusal::TakesReturnAddress);
}

/// The covered range of a special function's prologue and its slot, None if it is left alone.
fn special_of(code: &str) -> Option<(u64, u64, String)> {
    let mut bytes = hex(code);
    let end = Svma(CODE + bytes.len() as u64);
    bytes.resize(0x100, 0xcc);
    let file = elf(&bytes);
    let object = Object::parse(&file).unwrap();
    let (start, covered) = special::prologue(&object, Svma(CODE), end)?;
    let base = Svma(CODE);
    let mut builder = Builder::new(base);
    assert!(builder.special(&object, start, covered));
    let original = object.code_from(start).unwrap()[..(covered.0 - start.0) as usize].to_vec();
    let t = ReadTemplate::read(&builder.finish(&original));
    Some((start.0 - CODE, covered.0 - CODE, t.show(base)))
}

#[test]
fn prologue_of_a_special_function() {
    // mov eax,59 ; syscall ; ret
    let slot = "e8 <SPECIAL> b8 3b 00 00 00 e9 <401005>";
    let expected = Some((0, 5, slot.to_owned()));
    assert_eq!(special_of("b8 3b 00 00 00 0f 05 c3"), expected);
}

#[test]
fn prologue_of_a_special_function_with_endbr64() {
    // endbr64 stays where it is: an indirect call must still find it.
    let slot = "e8 <SPECIAL> 55 48 89 e5 53 e9 <401009>";
    let expected = Some((4, 9, slot.to_owned()));
    assert_eq!(special_of("f3 0f 1e fa 55 48 89 e5 53 c3"), expected);
}

#[test]
fn prologue_with_a_rip_relative_operand() {
    // mov rax,[rip+0x2ff9] (404000)
    let slot = "e8 <SPECIAL> 48 8b 05 <404000> e9 <401007>";
    let expected = Some((0, 7, slot.to_owned()));
    assert_eq!(special_of("48 8b 05 f9 2f 00 00 c3"), expected);
}

#[test]
fn prologue_that_is_jumped_into_is_left_alone() {
    // push rbx ; mov rbx,rdi ; dec rbx ; jnz to the dec, which a jump over the first five bytes
    // covers
    assert_eq!(special_of("53 48 89 fb 48 ff cb 75 fb 5b c3"), None);
}

#[test]
fn prologue_that_ends_too_early_is_left_alone() {
    assert_eq!(special_of("31 c0 c3"), None);
}
