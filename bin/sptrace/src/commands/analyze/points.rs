//! Return points: how the ends of calls could be seen that keep their return addresses.
//!
//! Given an image and its analysis; gives rows of the summary, or a list of all of them. They are
//! those of the plan by which calls are recorded in order. Knows nothing of forms of output.

use sptrace_code::{Analysis, Name, name_of};
use sptrace_image::Object;
use sptrace_patch::build_plan_in_order;
use sptrace_patch::return_points::{Obstacle, ReturnPoint, Seen, return_points};

use super::hex;
use super::list::List;

/// All of an image.
pub fn of(object: &Object<'_>, analysis: &Analysis) -> Vec<ReturnPoint> {
    return_points(object, analysis, &build_plan_in_order(object, analysis))
}

/// How many there are, and how many of them can be seen in which way.
pub fn rows(points: &[ReturnPoint]) -> Vec<(String, u64)> {
    let count = |wanted: &dyn Fn(&ReturnPoint) -> bool| {
        points.iter().filter(|point| wanted(point)).count() as u64
    };
    let mut rows = vec![
        ("return points".to_owned(), points.len() as u64),
        ("  jumped to as well".to_owned(), count(&|p| p.is_target)),
    ];
    let shown = [
        "jump",
        "springboard",
        "room of a neighbour",
        "made room",
        "merged with the next site",
    ];
    for name in shown {
        let found = count(&|p| p.seen.name() == name);
        rows.push((format!("  seen: {name}"), found));
    }
    for obstacle in Obstacle::ALL {
        let found = count(&|p| p.seen == Seen::Refused(obstacle));
        rows.push((format!("  refused: {}", obstacle.name()), found));
    }
    rows.retain(|(name, found)| *found > 0 || name == "return points");
    rows
}

/// Each, by address.
pub fn list(points: &[ReturnPoint], analysis: &Analysis, names: &[Name]) -> List {
    let row = |point: &ReturnPoint| {
        let verdict = match &point.seen {
            Seen::Refused(obstacle) => format!("refused: {}", obstacle.name()),
            seen => seen.name().to_owned(),
        };
        let span = match &point.seen {
            Seen::Jump(patch)
            | Seen::Springboard(patch)
            | Seen::Neighbour(patch)
            | Seen::MadeRoom(patch) => patch.span,
            Seen::Merged | Seen::Refused(_) => 0,
        };
        let function = analysis.function_at(point.call);
        let function = function.map(|i| analysis.functions[i].entry);
        vec![
            hex(point.at.0),
            hex(point.call.0),
            verdict.into(),
            u64::from(span).into(),
            if point.is_target { "target" } else { "" }.into(),
            function
                .map_or_else(String::new, |entry| name_of(names, entry))
                .into(),
        ]
    };
    List {
        title: "return_points",
        header: vec![
            "address",
            "call",
            "verdict",
            "covered_bytes",
            "flags",
            "function",
        ],
        rows: points.iter().map(row).collect(),
    }
}
