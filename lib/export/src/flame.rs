//! A flame graph as one SVG file, to look at in a browser: click to zoom, search, tooltips.
//!
//! A frame's width is what its stack and those above it have of their own, as in folded stacks. The
//! colour tells the module. Of many stacks the largest are drawn, and the picture says how much is
//! not. Beside an older trace the colour tells what has become more or less, and the tooltip how
//! much; widths are those of the newer one. Without scripts it is a picture with tooltips. The
//! script and the style beside this file know the attributes written here.

use crate::output::{Output, xml};
use crate::paths::{Measure, Node, Paths, ROOT};
use crate::{Context, Written};
use std::collections::HashMap;
use std::io::Write;

const STYLE: &str = include_str!("flame/style.css");
const SCRIPT: &str = include_str!("flame/script.js");
/// Frames drawn: a browser is slow with many more.
const MAX_FRAMES: usize = 20_000;
/// Levels drawn: a recursion may have a hundred thousand.
const MAX_LEVELS: u32 = 500;
/// Narrower frames than this part of all could not be seen, even zoomed some steps.
const MIN_PART: u64 = 50_000;
const LEVEL_PX: u32 = 18;
const HEAD_PX: u32 = 92;
const FOOT_PX: u32 = 34;
/// Modules with a colour of their own; the others share the last one.
const COLOURS: usize = 6;

/// A stack as it is drawn.
#[derive(Clone, Default)]
struct Drawn {
    own: u64,
    total: u64,
    calls: u64,
    start: u64,
    level: u32,
    is_drawn: bool,
    /// What it had in the older trace.
    had: Option<u64>,
    children: Vec<u32>,
}

/// Writes the picture.
pub fn write<W: Write>(cx: &Context<'_>, paths: &Paths, out: &mut Output<W>) -> Written {
    let nodes = paths.nodes();
    let mut drawn = measure(cx, nodes);
    let older = cx.baseline.map(|older| older.of_stacks(nodes, cx.names));
    for (place, had) in drawn.iter_mut().zip(older.iter().flat_map(|(had, _)| had)) {
        place.had = *had;
    }
    choose(&mut drawn);
    lay_out(cx, nodes, &mut drawn);
    let colours = colours(cx, nodes, &drawn);
    let levels = drawn.iter().filter(|d| d.is_drawn).map(|d| d.level);
    let levels = levels.max().unwrap_or(0) + 1;
    let height = HEAD_PX + levels * LEVEL_PX + FOOT_PX;
    begin(cx, height, out);
    out.text("<g id=\"frames\">\n");
    for (index, place) in drawn.iter().enumerate().filter(|(_, place)| place.is_drawn) {
        let node = (index as u32 != ROOT).then(|| &nodes[index]);
        frame(cx, node, place, (&drawn[0], levels, &colours), out);
        out.pass();
    }
    out.text("</g>\n");
    // Above the frames, since it stays in the window where these are scrolled.
    head(cx, &drawn, older.map(|(_, gone)| gone), out);
    match cx.baseline {
        Some(_) => legend_of_change(out),
        None => legend(&colours, out),
    }
    out.text("</g>\n");
    foot(height, out);
    out.text("<script><![CDATA[\n");
    out.text(SCRIPT);
    out.text("]]></script>\n</svg>\n");
    Written {
        calls: drawn[0].calls,
        is_cut: false,
        ..Written::default()
    }
}

/// Sums from the leaves to the root: a node comes after its parent.
fn measure(cx: &Context<'_>, nodes: &[Node]) -> Vec<Drawn> {
    let mut drawn = vec![Drawn::default(); nodes.len()];
    for (index, node) in nodes.iter().enumerate().skip(1) {
        drawn[index].own = node.own(cx.measure, cx.clock);
        drawn[index].calls = node.calls;
        drawn[index].level = drawn[node.parent as usize].level.saturating_add(1);
    }
    for index in (0..nodes.len()).rev() {
        drawn[index].total = drawn[index].total.saturating_add(drawn[index].own);
        if index as u32 != ROOT {
            let (total, parent) = (drawn[index].total, nodes[index].parent as usize);
            drawn[parent].total = drawn[parent].total.saturating_add(total);
            drawn[parent].children.push(index as u32);
        }
    }
    drawn[0].calls = nodes.iter().map(|node| node.calls).sum();
    drawn
}

/// The largest ones; never one without what it stands on.
fn choose(drawn: &mut [Drawn]) {
    let all = drawn[0].total;
    let is_visible = |place: &Drawn| {
        place.level <= MAX_LEVELS && place.total > 0 && place.total >= all / MIN_PART
    };
    let mut largest: Vec<usize> = (1..drawn.len())
        .filter(|&i| is_visible(&drawn[i]))
        .collect();
    // A parent is as large at least and comes first of equals.
    largest.sort_by_key(|&index| std::cmp::Reverse(drawn[index].total));
    largest.truncate(MAX_FRAMES);
    drawn[0].is_drawn = true;
    largest
        .into_iter()
        .for_each(|index| drawn[index].is_drawn = true);
}

/// Places children above their parent, in the order of their names.
fn lay_out(cx: &Context<'_>, nodes: &[Node], drawn: &mut [Drawn]) {
    for index in 0..drawn.len() {
        let mut start = drawn[index].start;
        let mut children = std::mem::take(&mut drawn[index].children);
        children.retain(|&child| drawn[child as usize].is_drawn);
        children.sort_by_key(|&child| cx.names.name(nodes[child as usize].function));
        for child in children {
            let child = &mut drawn[child as usize];
            child.start = start;
            start = start.saturating_add(child.total);
        }
    }
}

/// The modules that have most of their own, each with the number of its colour.
fn colours<'a>(cx: &Context<'a>, nodes: &[Node], drawn: &[Drawn]) -> Vec<&'a str> {
    let mut own: HashMap<&'a str, u64> = HashMap::new();
    for (node, place) in nodes.iter().zip(drawn).skip(1) {
        let sum = own.entry(cx.names.module(node.function)).or_default();
        *sum = sum.saturating_add(place.own);
    }
    let mut modules: Vec<_> = own.into_iter().collect();
    modules.sort_by_key(|(module, own)| (std::cmp::Reverse(*own), *module));
    modules.into_iter().map(|(module, _)| module).collect()
}

fn begin<W: Write>(cx: &Context<'_>, height: u32, out: &mut Output<W>) {
    let command = xml(&cx.header.command.join(" "));
    out.text("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    out.text(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100%\" height=\"{height}\">\n\
         <style>\n{STYLE}</style>\n<title>{command}</title>\n"
    ));
}

/// The group stays open: the legend belongs to it.
fn head<W: Write>(cx: &Context<'_>, drawn: &[Drawn], gone: Option<u64>, out: &mut Output<W>) {
    let (what, all) = (unit(cx), number(drawn[0].total));
    let shown = drawn.iter().filter(|place| place.is_drawn).count() - 1;
    let stacks = number(drawn.len() as u64 - 1);
    let missing = match drawn.len() - 1 - shown {
        0 => String::new(),
        missing => format!(
            ", {} too small or too deep to be drawn",
            number(missing as u64)
        ),
    };
    let before = gone.map_or_else(String::new, |gone| {
        let (had, gone) = (number(drawn[0].had.unwrap_or(0)), number(gone));
        format!("; before: {had} {what}, {gone} of them in stacks that are gone")
    });
    let command = xml(&cx.header.command.join(" "));
    out.text(&format!(
        "<g id=\"head\"><rect class=\"back\" width=\"100%\" height=\"{}\"/>\n\
         <text class=\"title\" x=\"10\" y=\"24\">{command}</text>\n",
        HEAD_PX - 6
    ));
    out.text(&format!(
        "<text class=\"small\" x=\"10\" y=\"44\">{all} {what} in {stacks} distinct stacks{missing}{before}</text>\n"
    ));
    out.text("<foreignObject x=\"10\" y=\"52\" width=\"224\" height=\"28\"><input ");
    out.text("xmlns=\"http://www.w3.org/1999/xhtml\" id=\"search\" type=\"search\" ");
    out.text(
        "placeholder=\"Search: text or regex (Ctrl-F)\" aria-label=\"Search\"/></foreignObject>\n",
    );
    out.text("<text class=\"small\" id=\"found\" x=\"244\" y=\"70\"></text>\n");
    out.text(
        "<text class=\"button off\" id=\"reset\" x=\"420\" y=\"70\">Reset zoom (Esc)</text>\n",
    );
}

/// Where the script says what is under the mouse.
fn foot<W: Write>(height: u32, out: &mut Output<W>) {
    let (top, text) = (height - FOOT_PX, FOOT_PX - 12);
    out.text(&format!(
        "<g id=\"foot\" data-y=\"{top}\" transform=\"translate(0 {top})\">\
         <rect class=\"back\" width=\"100%\" height=\"{FOOT_PX}\"/>\
         <text class=\"small\" id=\"details\" x=\"10\" y=\"{text}\"></text></g>\n"
    ));
}

fn legend<W: Write>(modules: &[&str], out: &mut Output<W>) {
    let mut x = 560;
    for (at, module) in modules.iter().enumerate().take(COLOURS + 1) {
        let label = if at == COLOURS {
            "other modules"
        } else {
            module
        };
        let label: String = label.chars().take(24).collect();
        out.text(&format!(
            "<rect class=\"c{at}\" x=\"{x}\" y=\"60\" width=\"12\" height=\"12\"/><text class=\"small\" x=\"{}\" y=\"70\">{}</text>\n",
            x + 16,
            xml(&label)
        ));
        x += 34 + 7 * label.chars().count();
    }
}

/// Colours of a change: less by much, ..., the same, ..., more by much, new.
const CHANGES: [&str; 8] = ["less", "", "", "same", "", "", "more", "new"];
const SAME: usize = 3;
const NEW: usize = 7;

fn legend_of_change<W: Write>(out: &mut Output<W>) {
    let mut x = 560;
    for (at, label) in CHANGES.iter().enumerate() {
        out.text(&format!(
            "<rect class=\"q{at}\" x=\"{x}\" y=\"60\" width=\"12\" height=\"12\"/><text class=\"small\" x=\"{}\" y=\"70\">{label}</text>\n",
            x + 16
        ));
        x += 20 + 8 * label.chars().count();
    }
}

/// Which of [`CHANGES`] it is.
fn change(had: Option<u64>, has: u64) -> usize {
    let Some(had) = had else {
        return NEW;
    };
    let share = has.abs_diff(had) as f64 / has.max(had).max(1) as f64;
    let step = match share {
        ..0.05 => 0,
        ..0.2 => 1,
        ..0.5 => 2,
        _ => 3,
    };
    if has >= had { SAME + step } else { SAME - step }
}

/// What a stack had, and how much it has changed, for people.
fn change_text(cx: &Context<'_>, had: Option<u64>, has: u64) -> String {
    match had {
        None => "\nnot there before".to_owned(),
        Some(0) => "\nnothing before".to_owned(),
        Some(had) => {
            let percent = 100.0 * (has as f64 - had as f64) / had as f64;
            format!("\nbefore: {} {} ({percent:+.1} %)", number(had), unit(cx))
        }
    }
}

/// One frame; `whole` is the root, the number of levels, and the modules by colour.
fn frame<W: Write>(
    cx: &Context<'_>,
    node: Option<&Node>,
    place: &Drawn,
    whole: (&Drawn, u32, &[&str]),
    out: &mut Output<W>,
) {
    let (all, levels, modules) = whole;
    let name = node.map_or("all", |node| cx.names.name(node.function));
    let module = node.map_or("", |node| cx.names.module(node.function));
    let colour = modules.iter().position(|known| *known == module);
    let colour = match cx.baseline {
        Some(_) => format!("q{}", change(place.had, place.total)),
        None => format!("c{}", colour.unwrap_or(COLOURS).min(COLOURS)),
    };
    let row = if cx.is_icicle {
        place.level
    } else {
        levels - 1 - place.level
    };
    let y = HEAD_PX + row * LEVEL_PX;
    let part = |value: u64| 100.0 * value as f64 / all.total.max(1) as f64;
    let name = xml(name);
    out.text(&format!(
        "<g data-n=\"{name}\" data-d=\"{}\" data-s=\"{}\" data-v=\"{}\" data-o=\"{}\"><title>{name}",
        place.level, place.start, place.total, place.own
    ));
    let module = if module.is_empty() {
        String::new()
    } else {
        format!(" [{}]", xml(module))
    };
    let what = unit(cx);
    out.text(&format!(
        "{module}\n{} {what}, {:.2} %\nself {} {what}",
        number(place.total),
        part(place.total),
        number(place.own)
    ));
    if cx.measure == Measure::Time {
        out.text(&format!("\n{} calls", number(place.calls)));
    }
    if cx.baseline.is_some() {
        out.text(&change_text(cx, place.had, place.total));
    }
    out.text(&format!(
        "</title><rect class=\"{colour}\" x=\"{:.4}%\" y=\"{y}\" width=\"{:.4}%\" height=\"{}\"/><text y=\"{}\"></text></g>\n",
        part(place.start),
        part(place.total),
        LEVEL_PX - 1,
        y + 13
    ));
}

fn unit(cx: &Context<'_>) -> &'static str {
    match cx.measure {
        Measure::Time => "ns",
        Measure::Calls => "calls",
    }
}

/// With a comma between thousands.
fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{NEW, SAME, change};

    #[test]
    fn changes_have_a_direction_and_a_size() {
        assert_eq!(change(None, 5), NEW);
        assert_eq!(change(Some(100), 101), SAME);
        assert_eq!(change(Some(100), 115), SAME + 1);
        assert_eq!(change(Some(100), 400), SAME + 3);
        assert_eq!(change(Some(100), 70), SAME - 2);
        assert_eq!(change(Some(100), 0), SAME - 3);
    }
}
