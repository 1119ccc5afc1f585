//! A call graph as one SVG file: callers above what they call, wide arrows take most time, dark
//! boxes have most time of their own. A click shows what belongs to a box; it can be searched and
//! zoomed.
//!
//! Without scripts it is a picture with tooltips. The script and the style beside this file know
//! the attributes written here.

use super::Picture;
use super::layout::{Layout, lay_out};
use crate::output::{Output, xml};
use std::io::Write;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
const BOX_PX: f64 = 52.0;
const LAYER_PX: f64 = 132.0;
const HEAD_PX: f64 = 92.0;
const MARGIN_PX: f64 = 30.0;
/// Names longer than this are cut; the tooltip has them whole.
const MAX_NAME: usize = 40;
/// Beside a box that calls itself.
const LOOP_PX: f64 = 8.0;
const LETTER_PX: f64 = 7.3;
const SMALL_LETTER_PX: f64 = 6.1;

/// Writes the picture.
pub fn write<W: Write>(picture: &Picture<'_>, out: &mut Output<W>) {
    let labels: Vec<[String; 3]> = picture.nodes.iter().map(label).collect();
    let widths: Vec<f64> = labels.iter().map(width_px).collect();
    let ends: Vec<_> = picture.arrows.iter().map(|a| (a.from, a.to)).collect();
    let mut spaces = widths.clone();
    for arrow in picture.arrows.iter().filter(|a| a.from == a.to) {
        // The box stays in the middle of its space.
        let digits = arrow.calls.to_string().len() as f64;
        spaces[arrow.from] += 2.0 * (LOOP_PX + digits * SMALL_LETTER_PX);
    }
    let layout = lay_out(&spaces, &ends);
    let width = (layout.width_px + 2.0 * MARGIN_PX).max(640.0);
    let height = HEAD_PX + layout.layers as f64 * LAYER_PX;
    out.text(&format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" \
         width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n\
         <style>\n{STYLE}</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n"
    ));
    out.text(
        "<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"9\" \
         markerHeight=\"9\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
         <path d=\"M0 1 L10 5 L0 9 z\"/></marker></defs>\n<g id=\"graph\">\n",
    );
    write_arrows(picture, &layout, &widths, out);
    for (at, node) in picture.nodes.iter().enumerate() {
        let (x, y) = place(&layout, at);
        write_box(at, node, &labels[at], (x, y, widths[at]), out);
        out.pass();
    }
    out.text("</g>\n");
    write_head(picture, out);
    out.text("<script><![CDATA[\n");
    out.text(SCRIPT);
    out.text("]]></script>\n</svg>\n");
}

/// What the picture is, and where one searches: upon the graph, as it stays when that is moved.
fn write_head<W: Write>(picture: &Picture<'_>, out: &mut Output<W>) {
    let [title, said] = picture.title.each_ref().map(|text| xml(text));
    out.text(&format!(
        "<title>{title}</title>\n<g id=\"head\"><rect class=\"back\" width=\"100%\" height=\"{HEAD_PX}\"/>\
         <text class=\"title\" x=\"16\" y=\"24\">{title}</text>\n\
         <text class=\"small\" x=\"16\" y=\"44\">{said}; darker: more time of its own; \
         click a box for what it calls and what calls it, Esc for all; zoom: + - 0, Ctrl and wheel\
         </text>\n"
    ));
    out.text(
        "<foreignObject x=\"16\" y=\"50\" width=\"224\" height=\"26\"><input \
         xmlns=\"http://www.w3.org/1999/xhtml\" id=\"search\" type=\"search\" \
         placeholder=\"Search: text or regex ( / )\" aria-label=\"Search\"/></foreignObject>\n\
         <text class=\"small\" id=\"found\" x=\"248\" y=\"67\"></text></g>\n",
    );
}

/// The middle of a box.
fn place(layout: &Layout, at: usize) -> (f64, f64) {
    let (layer, x) = layout.places[at];
    (x + MARGIN_PX, middle_px(layer))
}

fn middle_px(layer: usize) -> f64 {
    HEAD_PX + BOX_PX / 2.0 + layer as f64 * LAYER_PX
}

fn label(node: &super::Node<'_>) -> [String; 3] {
    let mut name: String = node.name.chars().take(MAX_NAME).collect();
    if name.len() < node.name.len() {
        name.push('\u{2026}');
    }
    // A module is its own name's second line.
    let module = if node.module == node.name {
        ""
    } else {
        node.module
    };
    let times = format!("{} / {}", time_text(node.total_ns), time_text(node.own_ns));
    let calls = format!("{} \u{d7}", node.calls);
    [
        name,
        module.chars().take(MAX_NAME).collect(),
        format!("{calls}  {times}"),
    ]
}

fn width_px([name, module, numbers]: &[String; 3]) -> f64 {
    let small = module.chars().count().max(numbers.chars().count()) as f64;
    let name = name.chars().count() as f64 * LETTER_PX;
    name.max(small * SMALL_LETTER_PX) + 18.0
}

/// Three or four digits and a unit.
fn time_text(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1e3, "\u{b5}s"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = ns as f64 / unit_ns;
    let digits = usize::from(value < 100.0);
    format!("{value:.digits$} {unit}")
}

fn write_arrows<W: Write>(
    picture: &Picture<'_>,
    layout: &Layout,
    widths: &[f64],
    out: &mut Output<W>,
) {
    for (arrow, path) in picture.arrows.iter().zip(&layout.paths) {
        let (from, to) = (&picture.nodes[arrow.from], &picture.nodes[arrow.to]);
        let (line, (x, y)) = match path.is_empty() {
            true => own_loop(place(layout, arrow.from), widths[arrow.from]),
            false => curve(path),
        };
        out.text(&format!(
            "<g class=\"arrow\" data-f=\"{}\" data-t=\"{}\"><title>{} calls {}\n{} calls, {} ns</title>\
             <path d=\"{line}\" stroke-width=\"{:.2}\" marker-end=\"url(#tip)\"/>\
             <text x=\"{x:.1}\" y=\"{y:.1}\">{}</text></g>\n",
            arrow.from,
            arrow.to,
            xml(from.name),
            xml(to.name),
            arrow.calls,
            arrow.ns,
            1.0 + 5.0 * arrow.share,
            arrow.calls
        ));
        out.pass();
    }
}

/// Beside the box, and where its number stands.
fn own_loop((x, y): (f64, f64), width: f64) -> (String, (f64, f64)) {
    let right = x + width / 2.0;
    let line = format!(
        "M{right:.1} {:.1} C{:.1} {:.1} {:.1} {:.1} {right:.1} {:.1}",
        y - 12.0,
        right + 22.0,
        y - 18.0,
        right + 22.0,
        y + 18.0,
        y + 12.0
    );
    (line, (right + 18.0, y + 4.0))
}

/// Through all points, upright at each, and where its number stands.
fn curve(path: &[(usize, f64)]) -> (String, (f64, f64)) {
    let half = BOX_PX / 2.0;
    let last = path.len() - 1;
    let points: Vec<(f64, f64)> = path
        .iter()
        .enumerate()
        .map(|(at, &(layer, x))| {
            let is_down = path[0].0 < path[last].0;
            let to_edge = if is_down { half } else { -half };
            let shift = match at {
                0 => to_edge,
                _ if at == last => -to_edge,
                _ => 0.0,
            };
            (x + MARGIN_PX, middle_px(layer) + shift)
        })
        .collect();
    let mut line = format!("M{:.1} {:.1}", points[0].0, points[0].1);
    for pair in points.windows(2) {
        let ((x, y), (to_x, to_y)) = (pair[0], pair[1]);
        let bend = (to_y - y) * 0.45;
        line.push_str(&format!(
            " C{x:.1} {:.1} {to_x:.1} {:.1} {to_x:.1} {to_y:.1}",
            y + bend,
            to_y - bend
        ));
    }
    let ((x, y), (to_x, to_y)) = (points[last - 1], points[last]);
    let label = (x + (to_x - x) * 0.72 + 4.0, y + (to_y - y) * 0.66);
    (line, label)
}

fn write_box<W: Write>(
    at: usize,
    node: &super::Node<'_>,
    label: &[String; 3],
    (x, y, width): (f64, f64, f64),
    out: &mut Output<W>,
) {
    let (left, top) = (x - width / 2.0, y - BOX_PX / 2.0);
    let [name, module, numbers] = label.each_ref().map(|text| xml(text));
    out.text(&format!(
        "<g class=\"node s{}\" data-i=\"{at}\" tabindex=\"0\"><title>{} [{}]\n{} calls ({})\ntotal {} ns\nself {} ns</title>\
         <rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BOX_PX}\" rx=\"4\"/>",
        node.shade,
        xml(node.name),
        xml(node.module),
        node.calls,
        node.linkage,
        node.total_ns,
        node.own_ns
    ));
    for (class, text, shift) in [
        ("name", name, 17.0),
        ("small", module, 31.0),
        ("small", numbers, 45.0),
    ] {
        out.text(&format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\">{text}</text>",
            top + shift
        ));
    }
    out.text("</g>\n");
}
