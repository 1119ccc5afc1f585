//! A function's prototype: what its parameters are, and in which registers they come.
//!
//! Given the types of parameters in order; gives each a word of the call by the rules of the System
//! V ABI for x86-64 (section 3.2.3). Descriptions live as long as the program: there are as many as
//! functions that a recording names.

use crate::decode::fields::parameter_names;
use crate::decode::types::{Call, Len, Phase, Returns, Type};

/// The most words of a call.
pub const MOST_WORDS: usize = 16;
const REGISTERS: u8 = 6;
const VECTORS: u8 = 8;

/// Where a word of a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An integer register, in the order of arguments.
    Register(u8),
    /// The lower half of a vector register.
    Vector(u8),
    /// A word of the stack, the first behind the return address.
    Stack(u8),
}

/// Where a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultIn {
    /// rax.
    Register,
    /// xmm0.
    Vector,
}

/// What a function gives.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// What it is.
    pub ty: Type,
    /// Where.
    pub place: ResultIn,
    /// Its length is the second word of the result.
    pub is_pair: bool,
}

/// Which result says that a call has failed and set errno.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failure {
    /// None.
    #[default]
    Never,
    /// -1.
    MinusOne,
    /// A null pointer.
    Null,
}

/// What a function takes and gives.
#[derive(Clone, Debug)]
pub struct Prototype {
    /// Its name, as the line has it.
    pub name: String,
    /// The line.
    pub text: String,
    /// Each parameter's part of the line, without a source: type and name.
    pub fragments: Vec<String>,
    /// The names of the parameters, as far as they have any.
    pub names: Vec<String>,
    /// The part of the line before the name.
    pub result_text: String,
    /// Its parameters, each a word, then types of other words; and the result behind them all.
    pub call: Call,
    /// Where the words come from.
    pub sources: Vec<Source>,
    /// How many parameters are shown; `None`: those that the call's arguments have.
    pub shown: Option<usize>,
    /// There are more that are not shown.
    pub is_cut: bool,
    /// What it gives; `None`: nothing, or see `is_kernels`.
    pub result: Option<Given>,
    /// Which result is a failure.
    pub failure: Failure,
    /// It takes and gives what the call of the kernel with its name does.
    pub is_kernels: bool,
}

/// What a parameter is that is not shown.
const HIDDEN: Type = Type::If(0, 0, &Type::Hex(8));

/// A parameter that was read.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub ty: Type,
    pub fragment: String,
    pub name: String,
    pub is_hidden: bool,
    /// The user says where it is.
    pub source: Option<Source>,
    /// It has a second word, the length of what the first points to.
    pub is_pair: bool,
}

/// Gives a value to the program for its life.
pub(super) fn keep<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// The same of a list.
pub(super) fn keep_all<T>(values: Vec<T>) -> &'static [T] {
    values.leak()
}

/// The text behind a pointer whose length is this word.
fn text_of(word: u8, phase: Phase) -> Type {
    Type::At(phase, keep(Type::Bytes(Len::Arg(word))))
}

/// Hands out registers.
#[derive(Default)]
struct Order {
    registers: u8,
    vectors: u8,
    stack: u8,
}

impl Order {
    fn register(&mut self) -> Source {
        if self.registers < REGISTERS {
            self.registers += 1;
            return Source::Register(self.registers - 1);
        }
        self.on_stack()
    }

    fn vector(&mut self) -> Source {
        if self.vectors < VECTORS {
            self.vectors += 1;
            return Source::Vector(self.vectors - 1);
        }
        self.on_stack()
    }

    fn on_stack(&mut self) -> Source {
        self.stack += 1;
        Source::Stack(self.stack - 1)
    }
}

impl Prototype {
    /// Of what was read. `hides`: rdi holds where the result goes.
    pub(super) fn new(
        (name, text, result_text): (&str, &str, &str),
        mut parameters: Vec<Parameter>,
        mut result: Option<Given>,
        failure: Failure,
        (mut is_cut, hides): (bool, bool),
    ) -> Self {
        let format = parameters.iter().find_map(|p| match p.ty {
            Type::Format(..) => Some(()),
            _ => None,
        });
        if parameters.len() > MOST_WORDS {
            parameters.truncate(MOST_WORDS);
            is_cut = true;
        }
        let shown = parameters.len();
        let mut types: Vec<Type> = parameters.iter().map(|p| p.ty).collect();
        let sources = match format {
            Some(()) => with_format(),
            None => in_order(&parameters, &mut types, hides),
        };
        for (ty, _) in types
            .iter_mut()
            .zip(&parameters)
            .filter(|(_, parameter)| parameter.is_hidden)
        {
            *ty = HIDDEN;
        }
        types.resize(sources.len(), Type::Hex(8));
        if let Some(given) = result.as_mut().filter(|given| given.is_pair) {
            given.ty = text_of(sources.len() as u8 + 1, Phase::Exit);
        }
        types.extend(result.map(|given| given.ty));
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            fragments: parameters.iter().map(|p| p.fragment.clone()).collect(),
            names: parameters.iter().map(|p| p.name.clone()).collect(),
            result_text: result_text.to_owned(),
            call: Call {
                name: "",
                returns: Returns::Number,
                parameters: keep_all(types),
                variants: None,
            },
            sources,
            shown: Some(shown),
            is_cut: is_cut && format.is_none(),
            result,
            failure,
            is_kernels: false,
        }
    }

    /// Of a function that does what a call of the kernel does.
    pub(super) fn kernels(name: &str, text: &str, call: &'static Call) -> Self {
        let Call {
            returns,
            parameters,
            variants,
            ..
        } = *call;
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            fragments: (1..=parameters.len())
                .map(|i| format!("sysarg({}, {i})", call.name))
                .collect(),
            names: parameter_names(call)
                .into_iter()
                .map(str::to_owned)
                .collect(),
            result_text: match returns {
                Returns::Hex => "addr",
                Returns::Never => "void",
                _ => "int!",
            }
            .to_owned(),
            call: Call {
                name: "",
                returns,
                parameters,
                variants,
            },
            sources: (0..REGISTERS).map(Source::Register).collect(),
            shown: None,
            is_cut: false,
            result: None,
            failure: Failure::MinusOne,
            is_kernels: true,
        }
    }

    /// Bytes of a result that is a number with sign.
    pub fn result_bytes(&self) -> u8 {
        match &self.result {
            Some(given) => match given.ty {
                Type::At(..) | Type::Address => 8,
                ty => ty.size().unwrap_or(8).min(8) as u8,
            },
            // As the C library declares it.
            None if self.is_kernels && matches!(self.call.returns, Returns::Hex) => 8,
            None if self.is_kernels => 4,
            None => 8,
        }
    }

    /// True if the result, where there is one, is all in rax.
    pub fn result_is_integer(&self) -> bool {
        let is_integer = |given: &Given| given.place == ResultIn::Register && !given.is_pair;
        self.result.as_ref().is_none_or(is_integer)
    }

    /// The result as the kernel would have told it: what says whether memory was written, and how
    /// much.
    pub fn told(&self, rax: u64, errno: u32) -> i64 {
        if errno != 0 {
            return -i64::from(errno);
        }
        let result = match self.result_bytes() {
            1 => i64::from(rax as i8),
            2 => i64::from(rax as i16),
            4 => i64::from(rax as i32),
            _ => rax as i64,
        };
        match result {
            -4095..0 if !self.is_kernels => 0,
            result => result,
        }
    }
}

/// All registers, some words of the stack, and vector registers.
fn with_format() -> Vec<Source> {
    let registers = (0..REGISTERS).map(Source::Register);
    let stack = (0..4).map(Source::Stack);
    let vectors = (0..6).map(Source::Vector);
    registers.chain(stack).chain(vectors).collect()
}

/// A word for each parameter; second words of pairs behind them all.
fn in_order(parameters: &[Parameter], types: &mut [Type], hides: bool) -> Vec<Source> {
    let mut order = Order {
        registers: u8::from(hides),
        ..Order::default()
    };
    let mut sources = Vec::new();
    let mut seconds = Vec::new();
    for (parameter, ty) in parameters.iter().zip(types) {
        let source = match (parameter.source, parameter.ty) {
            (Some(source), _) => source,
            (None, Type::Float(_)) => order.vector(),
            (None, _) => order.register(),
        };
        sources.push(source);
        if parameter.is_pair && parameters.len() + seconds.len() < MOST_WORDS {
            let length = (parameters.len() + seconds.len()) as u8;
            seconds.push(order.register());
            *ty = text_of(length, Phase::Entry);
        }
    }
    sources.extend(seconds);
    sources
}
