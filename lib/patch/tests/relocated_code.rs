//! The relocator over real code: each template of each site of libc, bash and python3, loaded at
//! addresses far from home, decodes to the same instructions with the same absolute targets, in
//! the order that the site's form prescribes, and never reaches beyond its slot.
//!
//! Files that are not installed are left out; libc must be there.

mod slot;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use slot::{ReadTemplate, routine};
use sptrace_addr::Svma;
use sptrace_code::{Analysis, Site, SiteKind};
use sptrace_image::Object;
use sptrace_patch::{build_plan, build_plan_with_returns};
use sptrace_wire::plan::*;

/// Far from where anything was linked; the area lies below the module.
const BIAS: u64 = 0x7f31_2000_0000;
const AREA: u64 = BIAS - 0x1200_0000;

fn decode(code: &[u8], address: u64) -> Vec<Instruction> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut out = Vec::new();
    while decoder.can_decode() {
        out.push(decoder.decode());
    }
    assert!(
        out.iter().all(|i| !i.is_invalid()),
        "bytes that are no instruction: {code:02x?}"
    );
    out
}

/// Takes the instructions of a slot one by one.
struct Slot {
    instructions: std::vec::IntoIter<Instruction>,
    address: u64,
}

impl Slot {
    fn next(&mut self) -> Instruction {
        self.instructions.next().expect("the slot goes on")
    }

    fn next_but_filling(&mut self) -> Instruction {
        loop {
            let i = self.next();
            if i.mnemonic() != Mnemonic::Nop {
                return i;
            }
        }
    }

    fn expect_branch(&mut self, mnemonic: Mnemonic, target: u64) -> u64 {
        let i = self.next_but_filling();
        assert_eq!((i.mnemonic(), i.near_branch_target()), (mnemonic, target));
        i.next_ip() - self.address
    }

    /// `call|jmp [rsp-8]`; gives its offset in the slot.
    fn expect_through_stack(&mut self, mnemonic: Mnemonic) -> u64 {
        let i = self.next();
        let operand = (
            i.memory_base(),
            i.memory_index(),
            i.memory_displacement64() as i64,
        );
        assert_eq!(
            (i.mnemonic(), operand),
            (mnemonic, (Register::RSP, Register::None, -8))
        );
        i.ip() - self.address
    }

    fn expect_end(mut self) {
        assert_eq!(self.instructions.next(), None, "the slot ends here");
    }
}

/// The operand that a push in the slot evaluates is the site's own.
fn assert_pushes_operand_of(push: &Instruction, original: &Instruction) {
    assert_eq!(
        (push.mnemonic(), push.op0_kind()),
        (Mnemonic::Push, original.op0_kind())
    );
    match push.op0_kind() {
        OpKind::Register => assert_eq!(push.op0_register(), original.op0_register()),
        OpKind::Memory => {
            let operand = |i: &Instruction| {
                let place = (i.memory_base(), i.memory_index(), i.memory_index_scale());
                (place, i.memory_displacement64(), i.memory_segment())
            };
            assert_eq!(operand(push), operand(original));
        }
        other => panic!("an operand of kind {other:?}"),
    }
}

fn check_site(object: &Object<'_>, site: &Site, planned: &PlanSite, t: &ReadTemplate) {
    let header_base = object.lowest_svma().0 & !4095;
    let start = header_base + u64::from(planned.start);
    let end = site.address.0 + u64::from(site.length);
    let way_in = planned.verdict == sptrace_patch::Tactic::WayIn as u8;
    if way_in {
        assert_eq!(start, site.way_in.0 + 1, "the displacement of the way in");
    } else {
        assert_eq!(start + u64::from(planned.span), end);
    }
    let springboard = planned.is_any(SITE_SPRINGBOARD);
    assert!(planned.span >= 5 || springboard, "room for the jump");
    if springboard && planned.is_any(SITE_KEEP_OPCODE) {
        assert_eq!(site.length, 2, "a conditional jump that is written whole");
    }
    let text = object.code_from(Svma(start)).unwrap();
    assert_eq!(t.original, text[..usize::from(planned.span)]);

    let address = AREA + u64::from(planned.slot);
    let loaded = t.load(BIAS + header_base, address, AREA);
    let mut slot = Slot {
        instructions: decode(&loaded, address).into_iter(),
        address,
    };
    let springs = planned.is_any(SITE_SPRINGBOARD);
    if !planned.is_any(SITE_KEEP_OPCODE) && !springs || way_in {
        let from = if way_in {
            site.window_start
        } else {
            Svma(start)
        };
        let moved = &object.code_from(from).unwrap()[..(site.address.0 - from.0) as usize];
        for original in decode(moved, BIAS + from.0) {
            let next = slot.next();
            if original.is_jcc_short_or_near() {
                // Long in the slot, whatever it was.
                assert_eq!(next.condition_code(), original.condition_code());
                assert_eq!(next.near_branch_target(), original.near_branch_target());
            } else {
                assert_eq!(next, original, "moved with the same absolute operands");
            }
        }
    }
    let is_indirect = planned.is_any(SITE_INDIRECT);
    if is_indirect {
        let push = slot.next();
        if site.target.0 == 0 {
            let code = object.code_from(site.address).unwrap();
            let code = &code[..usize::from(site.length)];
            assert_pushes_operand_of(&push, &decode(code, BIAS + site.address.0)[0]);
        } else {
            let through = (
                push.mnemonic(),
                push.memory_base(),
                push.memory_displacement64(),
            );
            assert_eq!(
                through,
                (Mnemonic::Push, Register::RIP, BIAS + site.got_slot.0)
            );
        }
    }
    let target = BIAS + site.target.0;
    let is_tail = planned.is_any(SITE_TAIL);
    let (before, jump) = match (is_tail, planned.is_any(SITE_ENTRY_ONLY)) {
        (true, _) if is_indirect => (common::TAIL_INDIRECT, Mnemonic::Jmp),
        (true, _) => (common::TAIL_FIRST, Mnemonic::Jmp),
        (false, true) => (common::ENTRY_ONLY_FIRST, Mnemonic::Jmp),
        (false, false) if is_indirect => (common::INDIRECT, Mnemonic::Call),
        (false, false) => (common::FIRST, Mnemonic::Call),
    };
    let entry = slot.expect_branch(Mnemonic::Call, routine(AREA, before));
    assert_eq!(
        entry, t.entry_id as u64,
        "the entry's id is its return address"
    );
    if is_indirect {
        slot.expect_through_stack(jump);
    } else {
        let rel32 = t.entry_id - 4;
        assert_eq!(
            rel32 / 8,
            (rel32 + 3) / 8,
            "the wired rel32 lies in one aligned word"
        );
        slot.expect_branch(jump, target);
    }
    if jump == Mnemonic::Call {
        let exit = slot.expect_branch(Mnemonic::Call, routine(AREA, common::EXIT));
        assert_eq!(exit, t.exit_id as u64);
        slot.expect_branch(Mnemonic::Jmp, BIAS + end);
    } else {
        assert_eq!(t.exit_id, 0);
    }
    if t.room_to != 0 {
        let (from, end) = (site.room.0, site.room.0 + u64::from(site.room_bytes));
        let moved = &object.code_from(site.room).unwrap()[..(end - from) as usize];
        assert_eq!(t.room, moved);
        for original in decode(moved, BIAS + from) {
            let next = slot.next();
            if original.ip() == BIAS + from {
                assert_eq!(next.ip() - slot.address, t.room_to as u64);
            }
            assert_eq!(next, original, "moved with the same absolute operands");
        }
        slot.expect_branch(Mnemonic::Jmp, BIAS + end);
    }
    slot.expect_end();
}

fn check_specials(object: &Object<'_>, view: PlanView<'_>) -> usize {
    let header = view.header();
    for s in view.specials() {
        let t = ReadTemplate::of_plan(view, s.argument);
        let start = header.base_svma + u64::from(s.start);
        let text = &object.code_from(Svma(start)).unwrap()[..usize::from(s.span)];
        assert_eq!(t.original, text);
        let address = AREA + u64::from(s.slot);
        let loaded = t.load(BIAS + header.base_svma, address, AREA);
        let mut slot = Slot {
            instructions: decode(&loaded, address).into_iter(),
            address,
        };
        slot.expect_branch(Mnemonic::Call, routine(AREA, common::SPECIAL));
        for original in decode(text, BIAS + start) {
            assert_eq!(slot.next(), original);
        }
        slot.expect_branch(Mnemonic::Jmp, BIAS + start + u64::from(s.span));
        slot.expect_end();
    }
    view.specials().count()
}

/// Slots lie one after the other, each 8-aligned, inside the area and after the common routines.
fn check_places(mut slots: Vec<(u32, u32)>, header: &PlanHeader) {
    slots.sort_unstable();
    assert!(slots.first().is_none_or(|s| s.0 >= SLOTS_START));
    assert!(slots.iter().all(|s| s.0 % 8 == 0));
    assert!(
        slots.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0),
        "slots overlap"
    );
    assert!(slots.last().is_none_or(|s| s.0 + s.1 <= header.area_bytes));
}

/// Checks a whole file; gives how many templates it had.
fn check_file(path: &str) -> Option<usize> {
    let bytes = std::fs::read(path).ok()?;
    let object = Object::parse(&bytes).unwrap();
    let analysis: Analysis = sptrace_code::analyze(&object);
    let plan = build_plan(&object, &analysis);
    let view = PlanView::new(&plan).unwrap();
    let header = view.header();
    let sites: Vec<Site> = analysis
        .functions
        .iter()
        .flat_map(|f| analysis.sites_of(f))
        .collect();
    // PLT stubs follow.
    assert!(sites.len() <= header.sites as usize);
    let mut slots = Vec::new();
    let mut templates = 0;
    for (i, site) in sites.iter().enumerate() {
        let planned = view.site(i as u32).unwrap();
        let target = (site.target.0 != 0).then_some(site.target.0);
        match planned.form {
            SiteForm::Template => {
                let t = ReadTemplate::of_plan(view, planned.argument);
                check_site(&object, site, &planned, &t);
                let callee = if !planned.is_any(SITE_INDIRECT) {
                    target
                } else {
                    None
                };
                let ids = (t.entry_id as u16, t.exit_id as u16);
                assert_eq!(view.ids(&planned), Some(ids));
                assert_eq!(view.callee(&planned), callee);
                slots.push((planned.slot, t.code.len() as u32));
                templates += 1;
            }
            SiteForm::Direct => {
                assert_eq!((site.kind, site.length), (SiteKind::CallDirect, 5));
                assert_eq!(view.ids(&planned), Some((8, 18)));
                assert_eq!(view.callee(&planned), target);
                slots.push((planned.slot, DIRECT_SLOT_BYTES));
            }
            form => assert_eq!(form, SiteForm::Refused),
        }
    }
    for s in view.specials() {
        let t = ReadTemplate::of_plan(view, s.argument);
        slots.push((s.slot, t.code.len() as u32));
    }
    check_places(slots, header);
    Some(templates + check_specials(&object, view))
}

#[test]
fn libc() {
    let templates = check_file("/lib/x86_64-linux-gnu/libc.so.6").expect("libc is installed");
    assert!(templates > 1000, "{templates} templates");
}

#[test]
fn bash() {
    assert!(check_file("/bin/bash").is_none_or(|templates| templates > 1000));
}

#[test]
fn python3() {
    assert!(check_file("/usr/bin/python3").is_none_or(|templates| templates > 1000));
}

/// Where an instruction leads to, or what it reads or writes, if that counts from where it lies.
fn target(i: &Instruction) -> Option<u64> {
    match i.op0_kind() {
        OpKind::NearBranch64 => Some(i.near_branch_target()),
        _ => i
            .is_ip_rel_memory_operand()
            .then(|| i.ip_rel_memory_address()),
    }
}

#[test]
fn what_a_return_point_covers_does_the_same_in_its_slot() {
    let bytes = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    let object = Object::parse(&bytes).unwrap();
    let plan = build_plan_with_returns(&object, &sptrace_code::analyze(&object));
    let view = PlanView::new(&plan).unwrap();
    let (mut plain, mut moved) = (0, 0);
    for (row, point) in view
        .sites()
        .filter_map(|s| Some((s, view.return_point(&s)?)))
    {
        let svma = Svma(view.header().base_svma + u64::from(row.start));
        assert!(object.code_from(svma).unwrap().starts_with(point.covered));
        let (text, slot) = (
            BIAS + svma.0,
            AREA + u64::from(row.slot + u32::from(RETURN_ID)),
        );
        let mut code = point.covered.to_vec();
        assert!(point.move_by(slot.wrapping_sub(text), &mut code));
        let (before, after) = (decode(point.covered, text), decode(&code, slot));
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.code(), after.code(), "at {text:#x}");
            assert_eq!(target(before), target(after), "at {text:#x}");
        }
        assert_eq!(before.len(), after.len());
        match before.iter().any(|i| target(i).is_some()) {
            true => moved += 1,
            false => plain += 1,
        }
    }
    assert!(plain > 1000 && moved > 1000, "{plain} {moved}");
}
