//! Ways over a gate for the functions of this program: the touch, perhaps for one of many only,
//! then the same instructions with the same targets, then back behind the jump.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use sptrace_addr::Avma;
use sptrace_code::analyze;
use sptrace_image::Object;
use sptrace_patch::gate::{Gate, JUMP_BYTES, WAY_BYTES, Way};
use sptrace_patch::roots::Hook;
use sptrace_wire::plan::{HookRules, SpecialKind};

const BIAS: u64 = 0x7f31_2000_0000;
const AT: Avma = Avma(BIAS - 0x1200_0000);
const GATE: Avma = Avma(0x1234_5678_9000);
const COUNT: Avma = Avma(GATE.0 + 0x1008);
const UNCOUNTED: Gate = Gate {
    at: GATE,
    count: None,
};

fn decode(code: &[u8], ip: u64) -> Vec<Instruction> {
    let decoder = Decoder::with_ip(64, code, ip, DecoderOptions::NONE);
    let all: Vec<_> = decoder.into_iter().collect();
    assert!(all.iter().all(|i| !i.is_invalid()), "{code:02x?}");
    all
}

/// What an instruction does, wherever it stands.
fn meaning(i: &Instruction) -> (Mnemonic, u64, u64, String) {
    let memory = match i.is_ip_rel_memory_operand() {
        true => i.ip_rel_memory_address(),
        false => i.memory_displacement64(),
    };
    let registers = (0..i.op_count()).map(|n| i.op_register(n));
    let registers: Vec<Register> = registers.collect();
    (
        i.mnemonic(),
        memory,
        i.near_branch_target(),
        format!("{registers:?}"),
    )
}

/// With a count it is the same behind the counting, up to what is relative to where it lies; both
/// branches go there.
fn follows_the_counting(way: &Way, behind_touch: &[u8]) {
    let gate = Gate {
        count: Some(COUNT),
        ..UNCOUNTED
    };
    let code = way.code(BIAS, AT, gate).unwrap();
    assert!(code.bytes.len() as u64 <= WAY_BYTES);
    let all = decode(&code.bytes, AT.0);
    let behind = code.bytes.len() - behind_touch.len();
    let (counting, moved) = all.split_at(
        all.iter()
            .position(|i| i.ip() == AT.0 + behind as u64)
            .unwrap(),
    );
    let mnemonics: Vec<_> = counting.iter().map(Instruction::mnemonic).collect();
    use Mnemonic::{Dec, Jmp, Jne, Lea, Mov, Pop, Popfq, Push, Pushfq};
    let saved = [Lea, Pushfq, Push, Mov, Dec, Pop, Jne];
    let expected = [&saved[..], &[Popfq, Lea, Mov, Jmp], &[Popfq, Lea]].concat();
    assert_eq!(mnemonics, expected);
    assert!(counting[4].has_lock_prefix() && counting[3].immediate64() == COUNT.0);
    let touch = &counting[9];
    assert_eq!(
        (touch.ip() - AT.0, touch.memory_displacement64()),
        (code.touch, GATE.0)
    );
    assert_eq!(counting[6].near_branch_target(), counting[11].ip());
    assert_eq!(counting[10].near_branch_target(), moved[0].ip());
    // Nothing is left on the stack, on either way.
    let pushed = |i: &Instruction| match i.mnemonic() {
        Lea => i.memory_displacement64() as i64,
        _ => i64::from(i.stack_pointer_increment()),
    };
    let sum = |part: &[Instruction]| part.iter().map(pushed).sum::<i64>();
    assert_eq!(sum(&counting[..9]), 0);
    assert_eq!(sum(&counting[..7]) + sum(&counting[11..]), 0);
    let plain = decode(behind_touch, AT.0 + 9);
    for (a, b) in plain.iter().zip(moved) {
        assert_eq!(meaning(a), meaning(b));
    }
    assert_eq!(plain.len(), moved.len());
}

#[test]
fn a_way_does_what_its_jump_covers() {
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let object = Object::parse(&bytes).unwrap();
    let analysis = analyze(&object);
    let (mut ways, mut returns, mut branches) = (0, 0, 0);
    for f in &analysis.functions {
        let hook = Hook {
            entry: f.entry,
            end: f.end,
            kind: SpecialKind::Root,
            rules: HookRules::ALWAYS,
            linked: Vec::new(),
        };
        let Some(way) = Way::of(&object, &hook) else {
            continue;
        };
        ways += 1;
        let start = way.start.0 + BIAS;
        let code = way.code(BIAS, AT, UNCOUNTED).unwrap();
        assert!(code.bytes.len() as u64 <= WAY_BYTES && code.touch == 0);
        let mut instructions = decode(&code.bytes, AT.0);
        let touch = instructions.remove(0);
        assert_eq!(
            (touch.mnemonic(), touch.op1_register()),
            (Mnemonic::Mov, Register::AL)
        );
        assert_eq!(touch.memory_displacement64(), GATE.0);
        let last = instructions.last().copied().unwrap();
        if last.mnemonic() == Mnemonic::Ret {
            returns += 1;
        } else {
            assert_eq!(last.flow_control(), FlowControl::UnconditionalBranch);
            assert!(last.near_branch_target() >= start + JUMP_BYTES as u64);
            instructions.pop();
        }
        follows_the_counting(&way, &code.bytes[9..]);
        let original = object.code_from(way.start).unwrap();
        let originals = Decoder::with_ip(64, original, start, DecoderOptions::NONE);
        let mut end = start;
        for (old, new) in originals.into_iter().zip(&instructions) {
            assert_eq!(meaning(&old), meaning(new));
            branches += u32::from(old.is_jcc_short_or_near());
            end = old.next_ip();
        }
        assert!(last.mnemonic() == Mnemonic::Ret || last.near_branch_target() == end);
        let jump = decode(&way.jump(BIAS, AT).unwrap(), start);
        assert_eq!((jump.len(), jump[0].near_branch_target()), (1, AT.0));
    }
    assert!(ways > analysis.functions.len() / 2, "{ways} ways");
    assert!(returns > 0 && branches > 0, "{returns} {branches}");
    // Too far for a jump of five bytes.
    let far = Avma(BIAS + (3 << 31));
    let f = &analysis.functions[analysis.functions.len() / 2..];
    let found = f.iter().find_map(|f| {
        let hook = Hook {
            entry: f.entry,
            end: f.end,
            kind: SpecialKind::Root,
            rules: HookRules::ALWAYS,
            linked: Vec::new(),
        };
        Way::of(&object, &hook)
    });
    let way = found.unwrap();
    assert!(way.jump(BIAS, far).is_none());
}
