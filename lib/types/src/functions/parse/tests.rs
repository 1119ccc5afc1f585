//! Lines that are understood, and such as are not.

use super::*;

fn read(text: &str) -> Prototype {
    prototype(text, &Defined::new()).unwrap()
}

fn wrong(text: &str) -> (usize, String) {
    let error = prototype(text, &Defined::new()).unwrap_err();
    (error.at, error.why)
}

#[test]
fn registers_go_by_the_class_of_a_parameter() {
    let one = read("double f(int, double, string, float, long)");
    let [a, b, c, d, e] = one.sources[..] else {
        panic!("{:?}", one.sources);
    };
    assert_eq!(
        (a, c, e),
        (
            Source::Register(0),
            Source::Register(1),
            Source::Register(2)
        )
    );
    assert_eq!((b, d), (Source::Vector(0), Source::Vector(1)));
    assert_eq!(one.result.unwrap().place, ResultIn::Vector);
    let many = read("void f(int, int, int, int, int, int, int, int)");
    assert_eq!(many.sources[6..], [Source::Stack(0), Source::Stack(1)]);
    assert!(many.result.is_none());
}

#[test]
fn what_a_pair_points_to_is_as_long_as_its_second_word() {
    let one = read("void f(int, slice, int)");
    assert_eq!(one.sources, [0, 1, 3, 2].map(Source::Register));
    assert!(matches!(
        one.call.parameters[1],
        Type::At(Phase::Entry, Type::Bytes(Len::Arg(3)))
    ));
}

#[test]
fn lengths_come_from_other_parameters_and_the_result() {
    let one = read("long! read(fd, +string[retval], ulong)");
    assert!(matches!(
        one.call.parameters[1],
        Type::At(Phase::Exit, Type::Bytes(Len::Result))
    ));
    assert_eq!(one.failure, Failure::MinusOne);
    let other = read("void f(array(int, arg2)*, int)");
    assert!(matches!(
        other.call.parameters[0],
        Type::At(Phase::Entry, Type::Array(Type::Signed(4), Len::Arg(1)))
    ));
}

#[test]
fn structures_and_constants_are_laid_out_as_in_c() {
    let one = read("int f(struct(a: char, b: int, c: double, d@24: string)*, enum(A, B=5, C))");
    let Type::At(_, Type::Struct(layout)) = one.call.parameters[0] else {
        panic!("{:?}", one.call.parameters[0]);
    };
    let offsets: Vec<_> = layout.fields.iter().map(|field| field.offset).collect();
    assert_eq!((offsets, layout.size), (vec![0, 4, 8, 24], 32));
    let Type::Named(names, 4) = one.call.parameters[1] else {
        panic!("{:?}", one.call.parameters[1]);
    };
    assert_eq!(names.values, [(0, "A"), (5, "B"), (6, "C")]);
}

#[test]
fn a_file_has_comments_and_types_of_its_own() {
    let text =
        "; comment\ntypedef size = ulong;\nsize strlen(string); ; of a string\nint f(no_such);\n";
    let (found, wrong) = file(text);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, "strlen");
    // What a trace keeps of it says all.
    assert_eq!(found[0].text, "ulong strlen(string)");
    assert!(prototype(&found[0].text, &Defined::new()).is_ok());
    assert_eq!((wrong.len(), wrong[0].0, wrong[0].1.at), (1, 4, 6));
}

#[test]
fn strings_may_be_as_long_as_another_argument_or_the_result_says() {
    let one = read("addr strncpy(addr, string3, ulong)");
    let expected = Type::At(Phase::Entry, &Type::Limited(Len::Arg(2)));
    assert_eq!(
        format!("{:?}", one.call.parameters[1]),
        format!("{expected:?}")
    );
    let one = read("long mq_receive(int, +string0, ulong)");
    let expected = Type::At(Phase::Exit, &Type::Limited(Len::Result));
    assert_eq!(
        format!("{:?}", one.call.parameters[1]),
        format!("{expected:?}")
    );
    assert!(wrong("int f(string99)").1.contains("no type"));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    assert_eq!(wrong("int f(int").0, 9);
    assert_eq!(
        wrong("int f(itn)"),
        (
            6,
            "there is no type \"itn\" (see man sptrace-values)".to_owned()
        )
    );
    assert_eq!(wrong("int f(int) x").0, 11);
    assert_eq!(wrong("sys opne as open").0, 4);
    assert_eq!(wrong("int f(string[arg17])").0, 13);
    let deep = format!("int f({}int{})", "hex(".repeat(40), ")".repeat(40));
    assert!(wrong(&deep).1.contains("too deeply"));
    let error = Wrong {
        at: 4,
        why: "why".to_owned(),
    };
    assert_eq!(error.shown("int x"), "'int x' at column 5 ('x'): why");
}

#[test]
fn no_text_makes_it_panic() {
    let seeds = [
        "int f(struct(a: int, b: string[arg1])*, enum(A=1))",
        "+*@!^()[],;: zero",
    ];
    for seed in seeds {
        for (cut, _) in seed.char_indices() {
            drop(prototype(&seed[..cut], &Defined::new()));
            drop(prototype(&seed[cut..], &Defined::new()));
        }
    }
}
