//! Payloads: closures of a script, read as what `sptrace-payload` makes native code of.
//!
//! Given the syntax tree of a closure and the values that it has captured; gives its [`Acts`], or
//! what in it cannot be compiled, where, and what to write instead. Nothing of it is executed.
//! Numbers and texts that the closure has captured are constants, since the script has been
//! evaluated when payloads are read. Must not know how a payload comes to a function's calls.

use std::collections::HashMap;

use rhai::{
    AST, ASTNode, BinaryExpr, Dynamic, Expr, FnCallExpr, FnPtr, ImmutableString, Position, Stmt,
};
use sptrace_payload::acts::{Acts, ActsError, MOST_LOCALS, Moment, RESULT, Step, check};
use sptrace_payload::program::{Binary, Expression, Source};
use sptrace_types::calls::Selection;

use crate::error::ScriptError;
use crate::policy::{Bid, Functions, Names, Payload, PayloadTable};
use crate::sheets::Printable;

mod active;
pub(crate) mod bids;
mod keys;
mod lines;
mod operators;
mod sheets;
mod variables;

use operators::{binary, factor_of, width_of};

/// Names of arguments that a payload may use.
const MOST_NAMES: usize = 16;
/// Tables of a script that payloads add to.
pub const MOST_TABLES: usize = 16;

/// What stands around a closure.
pub struct Surroundings<'a> {
    /// The script's name and text, for errors.
    pub name: &'a str,
    /// See there.
    pub source: &'a str,
    /// All of it.
    pub ast: &'a AST,
    /// Its sheets.
    pub sheets: &'a [Printable],
    /// Those that payloads add to, in the order of their tables.
    pub tables: &'a mut Vec<PayloadTable>,
    /// Counters of a process that payloads have so far.
    pub counters: u8,
    /// What payloads ask of the recording so far.
    pub bids: &'a mut Vec<Bid>,
}

/// What a payload was asked for: `at(...).on_enter(...)`.
#[derive(Clone)]
pub struct Asked {
    /// At which calls of functions.
    pub functions: Functions,
    /// Calls of the kernel, in place of functions.
    pub calls: Option<Selection>,
    /// When it runs.
    pub moment: Moment,
    /// The closure.
    pub closure: FnPtr,
    /// Where it stands.
    pub at: Position,
}

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Number,
    Truth,
    /// The place that makes the call: a key.
    Caller,
    /// A stack of such places: a key.
    Stack,
    /// A text: a key.
    Text,
}

type Value = (Expression, Type);
type Read<T> = Result<T, ScriptError>;

/// Reads a payload.
///
/// # Errors
/// What cannot be compiled.
pub fn payload(asked: &Asked, around: &mut Surroundings<'_>) -> Read<Payload> {
    let refuse = |reason: &str, hint: &str| {
        ScriptError::at(around.name, around.source, asked.at, reason, hint)
    };
    let closure = &asked.closure;
    let all = closure.curry().len() + 1;
    let library = around.ast.shared_lib();
    let Some(function) = library.get_script_fn(closure.fn_name(), all).cloned() else {
        return Err(refuse(
            "a closure of one parameter is wanted here",
            asked.form(),
        ));
    };
    let captured = function
        .params
        .iter()
        .cloned()
        .zip(closure.curry().iter().cloned());
    let Some(call) = function.params.last().cloned() else {
        return Err(refuse("the closure has no parameter", asked.form()));
    };
    let mut reader = Reader {
        call,
        moment: asked.moment,
        captured: captured.collect(),
        locals: Vec::new(),
        names: Vec::new(),
        is_of_kernel: asked.calls.is_some(),
        caller: asked.functions.caller.clone(),
        changes_at: None,
        around,
    };
    let body = body_of(reader.around.ast, &function.name);
    let acts = Acts {
        steps: reader.all(&body)?,
        records: false,
    };
    let (names, changes_at) = (reader.names, reader.changes_at);
    let keys: Vec<u8> = around.tables.iter().map(|table| table.keys).collect();
    if let Err(error) = check(&acts, &keys).and_then(|()| can_be_kept(asked.moment, &acts)) {
        let (name, source) = (around.name, around.source);
        let hint = "write less in it, or write later(|e| ...)";
        return Err(ScriptError::at(
            name,
            source,
            asked.at,
            &error.to_string(),
            hint,
        ));
    }
    Ok(Payload {
        functions: asked.functions.clone(),
        moment: asked.moment,
        acts,
        names,
        calls: asked.calls.clone(),
        line: asked.at.line().unwrap_or(0),
        changes_at,
    })
}

impl Asked {
    /// How a payload of its kind is written.
    fn form(&self) -> &'static str {
        match self.moment {
            Moment::Call => "write on_enter(|c| ...)",
            Moment::Return => "write on_exit(|c| ...)",
        }
    }
}

/// Of a payload of a return: what it needs of the call is kept meanwhile, and there is room for a
/// little.
fn can_be_kept(moment: Moment, acts: &Acts) -> Result<(), ActsError> {
    if moment == Moment::Call {
        return Ok(());
    }
    let mut acts = acts.clone();
    let number = |number: u8| match number {
        RESULT => Some(Source::Result.into()),
        // Names that are not known yet, each another argument.
        number => Some(Source::Argument(u8::MAX - number).into()),
    };
    let _ = acts.resolve(&number);
    acts.keep()?;
    match acts.locals() > acts.most_locals() {
        true => Err(ActsError::Locals),
        false => Ok(()),
    }
}

/// The statements of a function, which the engine shows only while all of a script is walked over.
pub fn body_of(ast: &AST, name: &str) -> Vec<Stmt> {
    let mut alone = ast.clone_functions_only();
    alone.retain_functions(|_, _, known, _| known == name);
    let mut body = Vec::new();
    alone.walk(&mut |path| {
        if let [ASTNode::Stmt(statement)] = path {
            body.push((*statement).clone());
        }
        true
    });
    body
}

struct Reader<'a, 'b> {
    /// What the parameter is called.
    call: ImmutableString,
    moment: Moment,
    captured: HashMap<ImmutableString, Dynamic>,
    locals: Vec<(ImmutableString, Type)>,
    /// Of arguments.
    names: Vec<String>,
    /// The call is one of the kernel.
    is_of_kernel: bool,
    /// Only what these functions call counts.
    caller: Option<Names>,
    /// The first word that changes what the program does.
    changes_at: Option<(usize, usize)>,
    around: &'a mut Surroundings<'b>,
}

const RUN_LATER: &str = "or write later(|e| ...), which runs after the recording";

impl Reader<'_, '_> {
    fn refuse<T>(&self, at: Position, reason: &str, hint: &str) -> Read<T> {
        let (name, source) = (self.around.name, self.around.source);
        Err(ScriptError::at(name, source, at, reason, hint))
    }

    /// Is it the closure's parameter?
    fn is_call(&self, expression: &Expr) -> bool {
        matches!(expression, Expr::Variable(name, ..) if name.1 == self.call)
    }

    fn block(&mut self, block: &[Stmt]) -> Read<Vec<Step>> {
        let known = self.locals.len();
        let mut steps = Vec::new();
        for statement in block {
            self.statement(statement, &mut steps)?;
        }
        self.locals.truncate(known);
        Ok(steps)
    }

    fn statement(&mut self, statement: &Stmt, steps: &mut Vec<Step>) -> Read<()> {
        let at = statement.position();
        match statement {
            Stmt::Noop(_) | Stmt::Share(_) => Ok(()),
            Stmt::Block(block) => {
                let inner = self.block(block.statements())?;
                steps.extend(inner);
                Ok(())
            }
            Stmt::If(flow, _) => {
                let condition = self.truth(&flow.expr)?;
                let (then, or) = (
                    self.block(flow.body.statements())?,
                    self.block(flow.branch.statements())?,
                );
                steps.push(Step::If(condition, then, or));
                Ok(())
            }
            Stmt::Var(parts, ..) => {
                let (value, ty) = self.value(&parts.1)?;
                match ty {
                    Type::Stack => return self.refuse_stack(at),
                    Type::Text => return self.refuse_text(at),
                    Type::Number | Type::Truth | Type::Caller => {}
                }
                let local = self.new_local(parts.0.name.clone(), ty, at)?;
                steps.push(Step::Set(local, value));
                Ok(())
            }
            Stmt::Assignment(parts) => self.assign(&parts.0, &parts.1, steps),
            Stmt::Expr(expression) => self.action(expression, steps),
            Stmt::FnCall(call, at) => self.refuse(
                *at,
                &format!("{}() is not compiled", call.name),
                &format!("write what it does in the closure, {RUN_LATER}"),
            ),
            Stmt::While(..) | Stmt::Do(..) | Stmt::For(..) | Stmt::BreakLoop(..) => self.refuse(
                at,
                "loops are not compiled: a payload runs inside of the program, and has an end",
                &format!("leave it out, {RUN_LATER}"),
            ),
            Stmt::Return(..) => self.refuse(
                at,
                "return and throw are not compiled",
                "write if CONDITION { ... } around what follows",
            ),
            _ => self.refuse(at, "this statement is not compiled", RUN_LATER),
        }
    }

    fn new_local(&mut self, name: ImmutableString, ty: Type, at: Position) -> Read<u8> {
        if self.locals.len() >= usize::from(MOST_LOCALS) {
            let reason = format!("more than {MOST_LOCALS} variables");
            return self.refuse(at, &reason, "write the value where it is used");
        }
        self.locals.push((name, ty));
        Ok(self.locals.len() as u8 - 1)
    }

    fn assign(
        &mut self,
        how: &rhai::OpAssignment,
        parts: &BinaryExpr,
        steps: &mut Vec<Step>,
    ) -> Read<()> {
        let at = parts.lhs.position();
        let local = match &parts.lhs {
            Expr::Variable(name, ..) => self.local(&name.1),
            _ => None,
        };
        let Some((local, ty)) = local else {
            if matches!(&parts.lhs, Expr::Dot(of, ..) if self.is_call(&of.lhs)) {
                return self.refuse(at, active::NOT_SO, active::FORMS);
            }
            return self.refuse(
                at,
                "only a variable of the closure itself can be assigned to",
                "keep sums and counts in a sheet: let n = count(\"calls\", []);",
            );
        };
        if how.is_op_assignment() {
            return self.refuse(at, "this assignment is not compiled", "write x = x + 1");
        }
        let (value, given) = self.value(&parts.rhs)?;
        if given != ty {
            return self.refuse(
                at,
                "the variable is of another type",
                "use another variable",
            );
        }
        steps.push(Step::Set(local, value));
        Ok(())
    }

    fn local(&self, name: &str) -> Option<(u8, Type)> {
        let at = self.locals.iter().rposition(|(known, _)| known == name)?;
        Some((at as u8, self.locals.get(at)?.1))
    }

    /// A statement that does something: `sheet.add(...)`, `c.record()`.
    fn action(&mut self, expression: &Expr, steps: &mut Vec<Step>) -> Read<()> {
        let at = expression.position();
        match expression {
            Expr::Unit(_) => return Ok(()),
            Expr::Stmt(block) => {
                let inner = self.block(block.statements())?;
                steps.extend(inner);
                return Ok(());
            }
            Expr::Dot(parts, ..) => {
                if let (Expr::Variable(name, ..), Expr::MethodCall(method, _)) =
                    (&parts.lhs, &parts.rhs)
                {
                    self.is_for_all_callers(&name.1, at)?;
                    if name.1 == self.call && method.name == "record" && method.args.is_empty() {
                        self.may_record(at)?;
                        steps.push(Step::Record);
                        return Ok(());
                    }
                    if name.1 == self.call && method.name == "print" {
                        steps.push(self.print(method, parts.rhs.position())?);
                        return Ok(());
                    }
                    if name.1 == self.call && bids::is_bid(&method.name) {
                        return self.bid(method, parts.rhs.position(), steps);
                    }
                    if name.1 == self.call && active::is_other(&method.name) {
                        return self.refuse(at, "there is no such word", active::FORMS);
                    }
                    if name.1 == self.call && active::is_active(&method.name) {
                        return self.active(method, parts.rhs.position(), steps);
                    }
                    if let Some(number) = self.thread_variable(&name.1) {
                        steps.push(self.change_variable(number, method, at)?);
                        return Ok(());
                    }
                    if let Some(captured) = self.captured.get(&name.1).cloned()
                        && let Some(sheet) = captured.read_lock::<Printable>()
                    {
                        let step = self.add(&sheet, method, at)?;
                        steps.push(step);
                        return Ok(());
                    }
                }
            }
            _ => {}
        }
        self.refuse(
            at,
            "this does nothing that a payload can do",
            &format!("a payload does SHEET.add(...), c.print(...) and c.record(), {RUN_LATER}"),
        )
    }

    /// Who has called is known when the recording has ended, so nothing but sheets heeds it.
    fn is_for_all_callers(&self, name: &str, at: Position) -> Read<()> {
        let is_sheet = self
            .captured
            .get(name)
            .is_some_and(|captured| captured.read_lock::<Printable>().is_some());
        match self.caller.is_some() && !is_sheet {
            true => self.refuse(
                at,
                "at calls by some functions a payload does SHEET.add(...) alone",
                "leave called_by(GLOB) out, or write later(|e| ...)",
            ),
            false => Ok(()),
        }
    }

    /// A call is recorded when it begins, or not at all.
    fn may_record(&self, at: Position) -> Read<()> {
        match self.moment {
            Moment::Call => Ok(()),
            Moment::Return => self.refuse(
                at,
                "c.record() comes too late when a call returns: its beginning has passed",
                "write it in on_enter, or add what matters to a sheet here",
            ),
        }
    }

    fn number(&mut self, expression: &Expr) -> Read<Expression> {
        match self.value(expression)? {
            (_, Type::Caller) => self.refuse_caller(expression.position()),
            (_, Type::Stack) => self.refuse_stack(expression.position()),
            (_, Type::Text) => self.refuse_text(expression.position()),
            (value, _) => Ok(value),
        }
    }

    fn truth(&mut self, expression: &Expr) -> Read<Expression> {
        match self.value(expression)? {
            (value, Type::Truth) => Ok(value),
            (_, Type::Caller) => self.refuse_caller(expression.position()),
            (_, Type::Stack) => self.refuse_stack(expression.position()),
            (_, Type::Text) => self.refuse_text(expression.position()),
            (_, Type::Number) => self.refuse(
                expression.position(),
                "a condition is wanted here, and this is a number",
                "compare it, as in c.arg1 != 0",
            ),
        }
    }

    fn value(&mut self, expression: &Expr) -> Read<Value> {
        let at = expression.position();
        match expression {
            Expr::IntegerConstant(n, _) => Ok((constant(*n), Type::Number)),
            Expr::BoolConstant(is, _) => Ok((constant(i64::from(*is)), Type::Truth)),
            Expr::CharConstant(c, _) => Ok((constant(i64::from(u32::from(*c))), Type::Number)),
            Expr::Variable(name, ..) => self.variable(&name.1, at),
            Expr::And(parts, _) => self.joined(parts, Expression::Both),
            Expr::Or(parts, _) => self.joined(parts, Expression::Either),
            Expr::FnCall(call, _) => self.operation(call, at),
            Expr::Dot(parts, ..) => self.member(parts, at),
            Expr::FloatConstant(..) => self.refuse(
                at,
                "numbers with a point are not compiled",
                "write whole numbers",
            ),
            Expr::StringConstant(..) | Expr::InterpolatedString(..) => self.refuse(
                at,
                "texts are not compiled: a payload adds up numbers",
                &format!("use a number as key, {RUN_LATER}"),
            ),
            _ => self.refuse(at, "this expression is not compiled", RUN_LATER),
        }
    }

    fn joined(
        &mut self,
        parts: &[Expr],
        join: fn(Box<Expression>, Box<Expression>) -> Expression,
    ) -> Read<Value> {
        let mut all = Vec::new();
        for part in parts {
            all.push(self.truth(part)?);
        }
        let joined = all
            .into_iter()
            .rev()
            .reduce(|last, part| join(part.into(), last.into()));
        Ok((joined.unwrap_or_else(|| constant(0)), Type::Truth))
    }

    fn variable(&mut self, name: &str, at: Position) -> Read<Value> {
        if let Some((local, ty)) = self.local(name) {
            return Ok((Expression::Local(local), ty));
        }
        let captured = self.captured.get(name).map(Dynamic::flatten_clone);
        match captured {
            Some(value) if value.is_int() => {
                Ok((constant(value.as_int().unwrap_or(0)), Type::Number))
            }
            Some(value) if value.is_bool() => Ok((
                constant(value.as_bool().unwrap_or(false).into()),
                Type::Truth,
            )),
            Some(value) => self.refuse(
                at,
                &format!("'{name}' is a {}, which is not compiled", value.type_name()),
                "payloads use whole numbers, conditions, and sheets",
            ),
            None if *name == *self.call => {
                self.refuse(at, "a call is no number", "name an argument: c.arg1")
            }
            None => self.refuse(at, &format!("there is no '{name}'"), "define it before"),
        }
    }

    fn operation(&mut self, call: &FnCallExpr, at: Position) -> Read<Value> {
        let name = call.name.as_str();
        if let ([one], Some(width)) = (&call.args[..], width_of(name)) {
            return Ok((self.number(one)?.narrow(width), Type::Number));
        }
        if let Some(compared) = self.compared_text(name, &call.args, at)? {
            return Ok(compared);
        }
        match (name, &call.args[..]) {
            ("!", [one]) => {
                let value = self.truth(one)?;
                Ok((value.with(Binary::Equal, 0), Type::Truth))
            }
            ("-", [one]) => {
                let value = self.number(one)?;
                Ok((constant(0).with(Binary::Subtract, value), Type::Number))
            }
            (_, [first, second]) => {
                let Some((operation, is_turned, ty)) = binary(name) else {
                    return self.unknown(name, at);
                };
                let (a, b) = (self.value(first)?, self.value(second)?);
                for (given, of) in [(a.1, first), (b.1, second)] {
                    match given {
                        Type::Caller => return self.refuse_caller(of.position()),
                        Type::Stack => return self.refuse_stack(of.position()),
                        Type::Text => return self.refuse_text(of.position()),
                        Type::Number | Type::Truth => {}
                    }
                }
                if a.1 != b.1 || a.1 == Type::Truth && !matches!(name, "==" | "!=") {
                    return self.refuse(
                        at,
                        &format!("'{name}' does not take a condition and a number"),
                        "compare numbers with numbers; write (a & b) == c, for == binds tighter",
                    );
                }
                let (a, b) = if is_turned { (b.0, a.0) } else { (a.0, b.0) };
                Ok((a.with(operation, b), ty))
            }
            _ => self.unknown(name, at),
        }
    }

    fn unknown<T>(&self, name: &str, at: Position) -> Read<T> {
        let hint = match name {
            "/" | "%" | "**" => "write >> and & for powers of two, or later(|e| ...)".to_owned(),
            _ => format!("write what it does in the closure, {RUN_LATER}"),
        };
        self.refuse(at, &format!("{name} is not compiled"), &hint)
    }

    /// `c.arg1`, `c.arg(7)`, `c.NAME`, `5.us`.
    fn member(&mut self, parts: &BinaryExpr, at: Position) -> Read<Value> {
        let is_call = self.is_call(&parts.lhs);
        match (&parts.lhs, &parts.rhs) {
            (_, Expr::Property(property, at)) if is_call => self.property(&property.2, *at),
            (_, Expr::Dot(inner, ..)) if is_call => self.begins_with(inner, at),
            (_, Expr::MethodCall(method, at)) if is_call && method.name == "stack" => {
                self.stack(method, *at)
            }
            (_, Expr::MethodCall(method, at)) if is_call && method.name == "str" => {
                self.told_text(method, *at)
            }
            (_, Expr::MethodCall(method, at)) if is_call && method.name == "result_str" => {
                self.result_text(method, *at)
            }
            (_, Expr::MethodCall(method, at)) if is_call && method.name == "arg" => {
                match &method.args[..] {
                    [Expr::IntegerConstant(n, _)] => self.argument(*n, *at),
                    _ => self.refuse(*at, "which argument is not known here", "write c.arg(1)"),
                }
            }
            (Expr::Variable(name, ..), Expr::MethodCall(method, at)) => {
                self.variable_of_thread(&name.1, method, *at)
            }
            (Expr::IntegerConstant(n, _), Expr::Property(unit, at)) => match factor_of(&unit.2) {
                Some(factor) => Ok((constant(n.saturating_mul(factor)), Type::Number)),
                None => self.refuse(*at, "this is no unit", "write us, ms, s, kb, mb"),
            },
            _ => self.refuse(at, "this is not compiled", RUN_LATER),
        }
    }

    fn property(&mut self, name: &str, at: Position) -> Read<Value> {
        let number = name.strip_prefix("arg").and_then(|n| n.parse().ok());
        if let Some(number) = number {
            return self.argument(number, at);
        }
        match name {
            "tid" => return Ok((Source::Thread.into(), Type::Number)),
            "nth" => return self.variable(active::NTH, at),
            "depth" => return self.depth(at),
            "caller" => return Ok((Source::Caller.into(), Type::Caller)),
            "elapsed" | "result" | "errno" | "self_time" => return self.of_return(name, at),
            "stack" => {
                return self.refuse(at, "how many callers is wanted here", "write c.stack(8)");
            }
            "name" | "module" | "thread" => {
                let reason = format!("c.{name} is not compiled yet");
                return self.refuse(at, &reason, "write later(|e| ...), where e has it");
            }
            _ => {}
        }
        self.named(name.to_owned(), at)
    }

    /// What the function's prototype has by this name.
    fn named(&mut self, name: String, at: Position) -> Read<Value> {
        let names = &mut self.names;
        let number = names.iter().position(|known| *known == name);
        let number = number.unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        if number >= MOST_NAMES {
            return self.refuse(at, "too many names of arguments", "use fewer");
        }
        Ok((Source::Named(number as u8).into(), Type::Number))
    }

    /// How many calls are open around this one.
    fn depth(&self, at: Position) -> Read<Value> {
        match self.moment {
            Moment::Call => Ok((Source::Depth.into(), Type::Number)),
            Moment::Return => self.refuse(
                at,
                "c.depth is known when a call begins",
                "write it in on_enter, or later(|e| ...), where e has it",
            ),
        }
    }

    /// What is known of a call that returns.
    fn of_return(&self, name: &str, at: Position) -> Read<Value> {
        if self.moment == Moment::Call {
            let reason = format!("c.{name} is not known when a call begins");
            return self.refuse(at, &reason, "write on_exit(|c| ...), where c has it");
        }
        if name == "self_time" && self.is_of_kernel {
            let reason = "nothing that payloads time is inside of a system call";
            return self.refuse(at, reason, "write c.elapsed");
        }
        let source = match name {
            "elapsed" => Source::Elapsed,
            "self_time" => Source::SelfTime(0),
            "errno" => Source::Errno,
            _ => Source::Named(RESULT),
        };
        Ok((source.into(), Type::Number))
    }

    fn argument(&mut self, number: i64, at: Position) -> Read<Value> {
        let source = match number {
            1..=6 => Source::Argument(number as u8 - 1),
            7..=22 => Source::Stack(number as u8 - 7),
            _ => {
                let hint = "c.arg1 to c.arg6 are in registers, c.arg(7) to c.arg(22) on the stack";
                return self.refuse(at, &format!("there is no argument {number}"), hint);
            }
        };
        Ok((source.into(), Type::Number))
    }
}

fn constant(n: i64) -> Expression {
    Expression::Constant(n as u64)
}
