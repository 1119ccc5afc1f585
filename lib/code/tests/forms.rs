//! Each form of site, window, table and link, on hand-assembled code.

mod elf;

use elf::{CODE, DATA, image};
use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function, FunctionFlags, Site, SiteFlags, SiteKind, analyze};
use sptrace_image::Object;

fn analyzed(code: &[u8], data: &[u8]) -> Analysis {
    let file = image(code, data);
    analyze(&Object::parse(&file).unwrap())
}

fn site_at(analysis: &Analysis, offset: u64) -> Option<Site> {
    analysis
        .sites
        .iter()
        .find(|s| s.address == Svma(CODE + offset))
}

fn only_site(code: &[u8]) -> Site {
    let analysis = analyzed(code, &[0; 16]);
    assert_eq!(analysis.sites.len(), 1, "{:x?}", analysis.sites);
    analysis.sites.get(0).unwrap()
}

#[test]
fn call_rel32_gives_its_target_and_a_function_there() {
    // call +1; ret; ret
    let analysis = analyzed(&[0xe8, 1, 0, 0, 0, 0xc3, 0xc3], &[]);
    let site = site_at(&analysis, 0).unwrap();
    assert_eq!((site.kind, site.length), (SiteKind::CallDirect, 5));
    assert_eq!(site.target, Svma(CODE + 6));
    assert_eq!(analysis.functions.len(), 2);
    assert_eq!(analysis.functions[1].entry, Svma(CODE + 6));
}

#[test]
fn what_leads_close_behind_a_call_is_known() {
    // test edi,edi; je 9; call 0x20; inc rax (9); dec eax (12); jne 12; ret
    let mut code = vec![0x85, 0xff, 0x74, 5, 0xe8, 0x17, 0, 0, 0];
    code.extend([0x48, 0xff, 0xc0, 0xff, 0xc8, 0x75, 0xfc, 0xc3]);
    code.resize(0x20, 0xcc);
    code.push(0xc3);
    let site = site_at(&analyzed(&code, &[]), 4).unwrap();
    assert_eq!(site.leaders_behind, 0b1001);
    // Without the jumps nothing does.
    code[2..4].fill(0x90);
    code[14..16].fill(0x90);
    let site = site_at(&analyzed(&code, &[]), 4).unwrap();
    assert_eq!(site.leaders_behind, 0);
}

#[test]
fn runs_where_room_may_be_made_are_kept_near_a_call_without_room_behind_it() {
    // mov eax,1; mov ecx,1; call 0x13; pop rbx; ret; nop; nop; (0x13) mov edx,1; mov ebx,1; ret
    let mut code = vec![0xb8, 1, 0, 0, 0, 0xb9, 1, 0, 0, 0, 0xe8, 4, 0, 0, 0];
    code.extend([0x5b, 0xc3, 0x90, 0x90]);
    code.extend([0xba, 1, 0, 0, 0, 0xbb, 1, 0, 0, 0, 0xc3]);
    let runs = |code: &[u8]| analyzed(code, &[]).plain_runs;
    let run = |from, to| (Svma(CODE + from), Svma(CODE + to));
    assert_eq!(runs(&code), [run(0, 10), run(0x13, 0x1d)]);
    // mov edx,1; jmp into the run: it is none.
    code[0x1d..].copy_from_slice(&[0xc3]);
    code[0xf..0x11].copy_from_slice(&[0xeb, 0xf4]);
    assert_eq!(runs(&code), [run(0x13, 0x1d)]);
    // With filling between the two the function behind has no part in it.
    code[0xf..0x13].copy_from_slice(&[0xc3, 0x90, 0x90, 0x90]);
    code[0x1d..].copy_from_slice(&[0x90]);
    assert_eq!(runs(&code), [run(0, 10)]);
    // add rsp,8; ret: there is room behind the call.
    code.splice(0xf..0x10, [0x48, 0x83, 0xc4, 8, 0xc3]);
    code[0xb] += 4;
    assert_eq!(runs(&code), []);
}

#[test]
fn a_function_that_takes_arguments_off_the_stack_is_marked() {
    // call +1; ret; ret 16
    let analysis = analyzed(&[0xe8, 1, 0, 0, 0, 0xc3, 0xc2, 16, 0], &[]);
    let pops = |i: usize| analysis.functions[i].flags.contains(FunctionFlags::POPS);
    assert_eq!((pops(0), pops(1)), (false, true));
}

#[test]
fn call_to_next_instruction_is_marked_and_makes_no_function() {
    // call +0; pop rax; ret
    let analysis = analyzed(&[0xe8, 0, 0, 0, 0, 0x58, 0xc3], &[]);
    let site = analysis.sites.get(0).unwrap();
    assert!(site.flags.contains(SiteFlags::CALL_NEXT_POP));
    assert_eq!(analysis.functions.len(), 1);
}

#[test]
fn call_to_a_thunk_that_loads_its_return_address_is_marked() {
    // call +1; ret; mov rax,[rsp]; ret
    let site = only_site(&[0xe8, 1, 0, 0, 0, 0xc3, 0x48, 0x8b, 0x04, 0x24, 0xc3]);
    assert!(site.flags.contains(SiteFlags::CALL_NEXT_POP));
}

#[test]
fn call_register_of_two_bytes_has_the_window_before_it() {
    // mov rdi,rax; mov esi,5; call rdx; ret
    let site = only_site(&[0x48, 0x89, 0xc7, 0xbe, 5, 0, 0, 0, 0xff, 0xd2, 0xc3]);
    assert_eq!((site.kind, site.length), (SiteKind::CallIndirect, 2));
    assert_eq!(
        (site.address, site.window_start),
        (Svma(CODE + 8), Svma(CODE))
    );
}

#[test]
fn window_is_at_most_15_bytes_of_whole_instructions() {
    // 3 x movabs (10 bytes each); call rax; ret
    let mut code = [0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8].repeat(3);
    code.extend([0xff, 0xd0, 0xc3]);
    let site = only_site(&code);
    assert_eq!(site.window_start, Svma(CODE + 20));
}

#[test]
fn window_stops_at_a_branch_target() {
    // L0: nop; L1: mov rdi,rax; call rax; dec eax; jne L1; ret
    let code = [
        0x90, 0x48, 0x89, 0xc7, 0xff, 0xd0, 0xff, 0xc8, 0x75, 0xf7, 0xc3,
    ];
    let site = only_site(&code);
    assert_eq!(
        (site.address, site.window_start),
        (Svma(CODE + 4), Svma(CODE + 1))
    );
}

#[test]
fn window_is_empty_when_the_site_is_a_branch_target() {
    // mov rdi,rax; L: call rax; dec eax; jne L; ret
    let code = [0x48, 0x89, 0xc7, 0xff, 0xd0, 0xff, 0xc8, 0x75, 0xfa, 0xc3];
    let site = only_site(&code);
    assert_eq!(site.window_start, site.address);
}

#[test]
fn window_stops_after_a_call_a_syscall_and_endbr() {
    // endbr64; call rax; syscall; call rax; ret
    let code = [
        0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0xd0, 0x0f, 0x05, 0xff, 0xd0, 0xc3,
    ];
    let analysis = analyzed(&code, &[]);
    for offset in [4, 8] {
        let site = site_at(&analysis, offset).unwrap();
        assert_eq!(site.window_start, site.address, "at {offset}");
    }
}

#[test]
fn call_through_rip_gives_the_slot() {
    // call [rip+0x10]; ret
    let site = only_site(&[0xff, 0x15, 0x10, 0, 0, 0, 0xc3]);
    assert_eq!((site.length, site.got_slot), (6, Svma(CODE + 0x16)));
}

#[test]
fn call_through_the_stack_is_marked() {
    // call [rsp+8]; ret
    let site = only_site(&[0xff, 0x54, 0x24, 0x08, 0xc3]);
    assert!(site.flags.contains(SiteFlags::RSP_OPERAND));
}

#[test]
fn jmp_to_a_called_function_is_a_sure_tail_call() {
    // call f; jmp f; int3; f: ret
    let code = [0xe8, 3, 0, 0, 0, 0xeb, 1, 0xcc, 0xc3];
    let analysis = analyzed(&code, &[]);
    let site = site_at(&analysis, 5).unwrap();
    assert_eq!((site.kind, site.length), (SiteKind::TailDirect, 2));
    assert_eq!(site.target, Svma(CODE + 8));
    assert!(site.flags.contains(SiteFlags::SURE_ENTRY));
}

#[test]
fn conditional_tail_call_is_a_site_and_a_link() {
    // call f; jne f; ret; f: ret
    let code = [0xe8, 3, 0, 0, 0, 0x75, 1, 0xc3, 0xc3];
    let analysis = analyzed(&code, &[]);
    let site = site_at(&analysis, 5).unwrap();
    assert_eq!(site.kind, SiteKind::TailConditional);
    assert_eq!(analysis.links_of(&analysis.functions[0]), [1]);
}

#[test]
fn jmp_register_without_a_table_is_an_indirect_tail_call() {
    let site = only_site(&[0xff, 0xe0]);
    assert_eq!(site.kind, SiteKind::TailIndirect);
}

#[test]
fn jmp_inside_a_function_is_no_site() {
    // jmp +0; ret
    assert!(analyzed(&[0xeb, 0, 0xc3], &[]).sites.is_empty());
}

#[test]
fn code_after_ret_and_after_ud2_is_not_reached() {
    // ret; call rax; and ud2; call rax
    assert!(analyzed(&[0xc3, 0xff, 0xd0, 0xc3], &[]).sites.is_empty());
    assert!(
        analyzed(&[0x0f, 0x0b, 0xff, 0xd0, 0xc3], &[])
            .sites
            .is_empty()
    );
}

#[test]
fn site_with_a_jump_into_it_is_left_out() {
    // je L+1; L: lock-like overlap: the jump leads into the call's bytes
    // je +1 (to offset 3); offset 2: call rel32 whose bytes from 3 on are nop nop nop nop; ret
    let code = [0x74, 0x01, 0xe8, 0x90, 0x90, 0x00, 0x00, 0xc3, 0xc3];
    let analysis = analyzed(&code, &[]);
    assert!(site_at(&analysis, 2).is_none());
    assert_eq!(analysis.summary.overlapped_sites, 1);
}

/// `cmp edi,N; ja out; lea rdx,[rip+DATA]; movsxd rax,[rdx+rdi*4]; add rax,rdx; jmp rax; out: ret`
/// and then two cases, each `call rsi; ret`.
fn pic_switch(entries: u8) -> Vec<u8> {
    let mut code = vec![0x83, 0xff, entries - 1, 0x77, 16];
    let after_lea = CODE + 12;
    code.extend([0x48, 0x8d, 0x15]);
    code.extend(((DATA - after_lea) as u32).to_le_bytes());
    code.extend([0x48, 0x63, 0x04, 0xba, 0x48, 0x01, 0xd0, 0xff, 0xe0, 0xc3]);
    code.extend([0xff, 0xd6, 0xc3, 0xff, 0xd6, 0xc3]);
    code
}

fn offset_entry(target: u64) -> [u8; 4] {
    ((CODE + target).wrapping_sub(DATA) as u32).to_le_bytes()
}

#[test]
fn bounded_table_of_offsets_is_followed_exactly() {
    // The third entry must not be read: the comparison allows two.
    let data: Vec<u8> = [22, 25, 23].into_iter().flat_map(offset_entry).collect();
    let analysis = analyzed(&pic_switch(2), &data);
    assert_eq!(
        (
            analysis.summary.jump_tables,
            analysis.summary.unresolved_jumps
        ),
        (1, 0)
    );
    assert_eq!(analysis.sites.len(), 2, "{:x?}", analysis.sites);
    for site in analysis.sites.iter() {
        assert_eq!(site.window_start, site.address);
        assert!(!site.flags.contains(SiteFlags::LEADER_SUSPECT));
    }
}

#[test]
fn table_with_a_wild_entry_is_not_believed() {
    let data: Vec<u8> = [22, 0x9999].into_iter().flat_map(offset_entry).collect();
    let analysis = analyzed(&pic_switch(2), &data);
    assert_eq!(analysis.summary.unresolved_jumps, 1);
    assert!(
        analysis.functions[0]
            .flags
            .contains(FunctionFlags::UNRESOLVED_JUMPS)
    );
}

#[test]
fn table_of_addresses_is_followed() {
    // cmp edi,1; ja out; mov edi,edi; jmp [DATA+rdi*8]; out: ret; two cases
    let mut code = vec![0x83, 0xff, 1, 0x77, 9, 0x89, 0xff, 0xff, 0x24, 0xfd];
    code.extend((DATA as u32).to_le_bytes());
    code.extend([0xc3, 0xff, 0xd6, 0xc3, 0xff, 0xd6, 0xc3]);
    let data: Vec<u8> = [15, 18]
        .iter()
        .flat_map(|o| (CODE + o).to_le_bytes())
        .collect();
    let analysis = analyzed(&code, &data);
    assert_eq!(analysis.summary.jump_tables, 1);
    assert_eq!(analysis.sites.len(), 2);
}

#[test]
fn memory_below_rsp_is_a_red_zone() {
    // mov [rsp-8],rax; call rax; ret
    let analysis = analyzed(&[0x48, 0x89, 0x44, 0x24, 0xf8, 0xff, 0xd0, 0xc3], &[]);
    assert!(
        analysis.functions[0]
            .flags
            .contains(FunctionFlags::RED_ZONE)
    );
}

/// perl's `Perl_set_caret_X` looks at the last byte of a string in its frame.
#[test]
fn the_element_before_in_an_array_of_the_frame_is_no_red_zone() {
    // sub rsp,24; cmp byte [rsp+rbx-1],0; add rsp,24; ret -- and without the room, and farther off
    let framed = |displacement: i8| {
        let access = [0x80, 0x7c, 0x1c, displacement as u8, 0];
        [
            &[0x48, 0x83, 0xec, 24][..],
            &access,
            &[0x48, 0x83, 0xc4, 24, 0xc3],
        ]
        .concat()
    };
    let is_red = |code: &[u8]| {
        analyzed(code, &[]).functions[0]
            .flags
            .contains(FunctionFlags::RED_ZONE)
    };
    assert!(!is_red(&framed(-1)));
    assert!(is_red(&framed(-2)));
    assert!(is_red(&[0x80, 0x7c, 0x1c, 0xff, 0, 0xc3]));
}

#[test]
fn frame_on_rbp_without_room_is_a_red_zone() {
    // push rbp; mov rbp,rsp; mov [rbp-8],rax; pop rbp; ret -- and the same with sub rsp,16
    let leaf = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x45, 0xf8, 0x5d, 0xc3];
    let framed = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 16, 0x48, 0x89, 0x45, 0xf8, 0xc9, 0xc3,
    ];
    let is_red = |code: &[u8]| {
        analyzed(code, &[]).functions[0]
            .flags
            .contains(FunctionFlags::RED_ZONE)
    };
    assert!(is_red(&leaf));
    assert!(!is_red(&framed));
}

#[test]
fn callee_that_ends_in_ud2_never_returns() {
    // call f; ret; f: ud2
    let analysis = analyzed(&[0xe8, 1, 0, 0, 0, 0xc3, 0x0f, 0x0b], &[]);
    assert!(
        analysis.functions[1]
            .flags
            .contains(FunctionFlags::NO_RETURN)
    );
    assert!(
        !analysis.functions[0]
            .flags
            .contains(FunctionFlags::NO_RETURN)
    );
    assert!(
        analysis
            .sites
            .get(0)
            .unwrap()
            .flags
            .contains(SiteFlags::NO_RETURN_CALLEE)
    );
}

#[test]
fn function_jumped_to_from_one_place_is_a_part_and_a_link() {
    // call f; ret; f: jne over the end of f into code that nobody calls
    // f: jmp g (g lies behind h, which is called); h: ret; g: call rax; ret
    let code = [
        0xe8, 6, 0, 0, 0, 0xe8, 3, 0, 0, 0, 0xc3, // call f; call h; ret
        0xeb, 1,    // f: jmp g
        0xc3, // h: ret
        0xff, 0xd0, 0xc3, // g
    ];
    let analysis = analyzed(&code, &[]);
    let g = analysis.function_at(Svma(CODE + 14)).unwrap();
    let f = analysis.function_at(Svma(CODE + 11)).unwrap();
    assert!(site_at(&analysis, 14).is_some());
    assert!(
        analysis
            .links_of(&analysis.functions[f])
            .contains(&(g as u32))
    );
}

/// `mov eax,imm32` with the address of what stands at `offset`.
fn takes_address(offset: u64) -> Vec<u8> {
    let mut code = vec![0xb8];
    code.extend(((CODE + offset) as u32).to_le_bytes());
    code
}

#[test]
fn function_that_only_a_pointer_tells_is_found_without_unwind_information() {
    // mov eax,F; ret; padding; F: push rbx; call rsi; pop rbx; ret
    let mut code = takes_address(16);
    code.push(0xc3);
    code.resize(16, 0xcc);
    code.extend([0x53, 0xff, 0xd6, 0x5b, 0xc3]);
    let analysis = analyzed(&code, &[]);
    let entries: Vec<Svma> = analysis.functions.iter().map(|f| f.entry).collect();
    assert_eq!(entries, [Svma(CODE), Svma(CODE + 16)]);
    assert_eq!(site_at(&analysis, 17).unwrap().length, 2);
}

#[test]
fn call_of_a_symbol_that_nobody_defines_breaks_no_path() {
    // test eax,eax; je 9; call 0; ret
    let is_in_doubt = |target: u64| {
        let mut code = vec![0x85, 0xc0, 0x74, 5, 0xe8];
        code.extend((target.wrapping_sub(CODE + 9) as u32).to_le_bytes());
        code.push(0xc3);
        let analysis = analyzed(&code, &[]);
        analysis.functions[0]
            .flags
            .contains(FunctionFlags::UNRESOLVED_JUMPS)
    };
    assert!(!is_in_doubt(0));
    assert!(is_in_doubt(1));
}

#[test]
fn function_behind_a_trap_is_found_by_its_address() {
    // mov eax,F; call rax; ud1 eax,[eax+1] or inc eax; F: ret
    let analysis_with = |before: &[u8]| {
        let mut code = takes_address(7 + before.len() as u64);
        code.extend([0xff, 0xd0]);
        code.extend(before);
        code.push(0xc3);
        analyzed(&code, &[])
    };
    let behind_trap = analysis_with(&[0x67, 0x0f, 0xb9, 0x40, 0x01]);
    assert_eq!(behind_trap.functions.len(), 2);
    // What is fallen into is a label.
    assert_eq!(analysis_with(&[0xff, 0xc0]).functions.len(), 1);
}

#[test]
fn a_fence_below_rsp_is_no_red_zone() {
    // lock or dword [rsp-64],N; ret
    let uses_red_zone = |lock: &[u8], or: u8| {
        let code = [lock, &[0x83, 0x4c, 0x24, 0xc0, or, 0xc3]].concat();
        let analysis = analyzed(&code, &[]);
        analysis.functions[0]
            .flags
            .contains(FunctionFlags::RED_ZONE)
    };
    assert!(!uses_red_zone(&[0xf0], 0));
    assert!(uses_red_zone(&[0xf0], 1));
    assert!(uses_red_zone(&[], 0));
}

#[test]
fn a_long_chain_of_calls_without_unwind_information_is_followed_to_its_end() {
    // Each calls the one behind it, which nothing else tells of: call 0x10; inc rax; ret
    const LINKS: usize = 300;
    let mut code = Vec::new();
    for link in 1..=LINKS {
        code.extend([0xe8, 11, 0, 0, 0, 0x48, 0xff, 0xc0, 0xc3]);
        code.resize(0x10 * link, 0xcc);
    }
    code.push(0xc3);
    let analysis = analyzed(&code, &[]);
    assert_eq!(analysis.functions.len(), LINKS + 1);
    assert_eq!(analysis.sites.len(), LINKS);
    let in_doubt = |f: &Function| f.flags.contains(FunctionFlags::UNRESOLVED_JUMPS);
    assert!(!analysis.functions.iter().any(in_doubt));
}

#[test]
fn call_inside_another_instruction_is_left_out_like_that_one() {
    // je L+1; L: mov rax,imm64 in whose bytes a call rel32 stands; ret
    let mut code = vec![0x74, 2];
    code.extend([0x48, 0xb8, 0xe8, 0x06, 0, 0, 0, 0x90, 0x90, 0x90, 0xc3]);
    code.resize(20, 0xc3);
    let analysis = analyzed(&code, &[]);
    assert!(analysis.sites.is_empty(), "{:x?}", analysis.sites);
    assert_eq!(analysis.summary.overlapped_sites, 1);
}

#[test]
fn path_to_a_call_out_of_the_image_is_not_believed() {
    // je L; ret; L: call to nowhere; call rax; ret
    let code = [0x74, 1, 0xc3, 0xe8, 0, 0, 0, 0x40, 0xff, 0xd0, 0xc3];
    let analysis = analyzed(&code, &[]);
    assert!(site_at(&analysis, 8).is_none(), "{:x?}", analysis.sites);
    assert_eq!(analysis.summary.broken_paths, 1);
    let flags = analysis.functions[0].flags;
    assert!(flags.contains(FunctionFlags::UNRESOLVED_JUMPS));
}
