//! What payloads ask of the recording itself: that it begins, ends, has its ring written out, or
//! that functions have another level.
//!
//! Part of the reader of payloads. Each place in the script where one is asked for has a number, by
//! which the code bids it. Must not know who does it.

use rhai::{FnCallExpr, Position};
use sptrace_payload::acts::{MOST_BIDS, Step};

use super::{Read, Reader};
use crate::policy::{Bid, Deed, Level};

/// Of a level that there is not, and which there are.
pub const NO_SUCH_LEVEL: &str = "there is no such level";
/// See there.
pub const LEVELS: &str = "write \"values\", \"record\", \"count\" or \"off\"";

/// How they are written.
const FORMS: &str = "write c.start(), c.stop(), c.dump() or c.level(GLOB, LEVEL)";

/// Is it one of them?
pub(super) fn is_bid(name: &str) -> bool {
    matches!(name, "start" | "stop" | "dump" | "level")
}

impl Reader<'_, '_> {
    /// `c.stop()` and so on.
    pub(super) fn bid(
        &mut self,
        method: &FnCallExpr,
        at: Position,
        steps: &mut Vec<Step>,
    ) -> Read<()> {
        let (deed, text) = match (method.name.as_str(), &method.args[..]) {
            ("start", []) => (Deed::Start, "c.start()".to_owned()),
            ("stop", []) => (Deed::Stop, "c.stop()".to_owned()),
            ("dump", []) => (Deed::Dump, "c.dump()".to_owned()),
            ("start" | "stop" | "dump", _) => {
                let name = &method.name;
                let hint = format!(
                    "write c.{name}() under a condition; {name}(EVENT) stands at the script's top level"
                );
                return self.refuse(at, "it happens here, and waits for no event", &hint);
            }
            ("level", [glob, level]) => {
                let Some(glob) = self.text(glob).filter(|glob| !glob.is_empty()) else {
                    let reason = "the name of functions is wanted here, as a text";
                    return self.refuse(
                        glob.position(),
                        reason,
                        "as c.level(\"parse_*\", \"count\")",
                    );
                };
                let level = self.level(level)?;
                let text = format!("c.level(\"{glob}\", \"{}\")", level.name());
                (Deed::Level(glob, level), text)
            }
            _ => return self.refuse(at, "something else is wanted here", FORMS),
        };
        let line = at.line().unwrap_or(0);
        let bids = &mut self.around.bids;
        let number = bids.len() as u8;
        if number >= MOST_BIDS {
            let reason =
                format!("the recording is asked for something in more than {MOST_BIDS} places");
            return self.refuse(at, &reason, "use conditions that are joined by ||");
        }
        bids.push(Bid {
            deed,
            text: format!("{text} in line {line}"),
            line,
            column: at.position().unwrap_or(0),
        });
        steps.push(Step::Bid(number));
        Ok(())
    }

    fn level(&self, expression: &rhai::Expr) -> Read<Level> {
        let at = expression.position();
        match self.text(expression).as_deref().and_then(Level::named) {
            Some(level) => Ok(level),
            None => self.refuse(at, NO_SUCH_LEVEL, LEVELS),
        }
    }
}
