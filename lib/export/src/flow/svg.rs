//! A control-flow graph as one SVG file, without a script: the entry above, arrows downwards but
//! for those of loops.
//!
//! What stands in the boxes is `flow.rs`'s to say, and places are `graph/layout.rs`'s.

use super::{Flow, FlowBlock};
use crate::graph::layout::{Layout, lay_out};
use crate::output::{Output, xml};
use std::io::Write;

const STYLE: &str = include_str!("style.css");
const HEAD_PX: f64 = 64.0;
const MARGIN_PX: f64 = 30.0;
/// Between layers: arrows and their numbers.
const GAP_PX: f64 = 56.0;
const LINE_PX: f64 = 14.0;
const LETTER_PX: f64 = 6.7;
const PAD_PX: f64 = 8.0;
/// Beside a box that leads to itself.
const LOOP_PX: f64 = 60.0;

/// Where layers are: the middle of each, and half of its height.
struct Rows(Vec<(f64, f64)>);

impl Rows {
    fn of(flow: &Flow, layout: &Layout) -> (Self, f64) {
        let mut heights = vec![0.0_f64; layout.layers];
        for (block, (layer, _)) in flow.blocks.iter().zip(&layout.places) {
            heights[*layer] = heights[*layer].max(height_px(block));
        }
        let mut top = HEAD_PX;
        let mut rows = Vec::new();
        for height in heights {
            rows.push((top + height / 2.0, height / 2.0));
            top += height + GAP_PX;
        }
        (Self(rows), top)
    }
}

/// Writes the picture.
pub fn write<W: Write>(flow: &Flow, out: &mut Output<W>) {
    let widths: Vec<f64> = flow.blocks.iter().map(width_px).collect();
    let mut spaces = widths.clone();
    for arrow in flow.arrows.iter().filter(|a| a.from == a.to) {
        spaces[arrow.from] += 2.0 * LOOP_PX;
    }
    let ends: Vec<_> = flow.arrows.iter().map(|a| (a.from, a.to)).collect();
    let layout = lay_out(&spaces, &ends);
    let (rows, height) = Rows::of(flow, &layout);
    let width = (layout.width_px + 2.0 * MARGIN_PX).max(480.0);
    let (title, said) = (xml(&flow.title), xml(&flow.said));
    out.text(&format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" \
         width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n\
         <style>\n{STYLE}</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n\
         <title>{title}</title>\n<text class=\"title\" x=\"16\" y=\"24\">{title}</text>\n\
         <text x=\"16\" y=\"44\">{said}</text>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"9\" \
         markerHeight=\"9\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
         <path d=\"M0 1 L10 5 L0 9 z\"/></marker></defs>\n"
    ));
    for (at, arrow) in flow.arrows.iter().enumerate() {
        let (line, (x, y)) = match layout.paths[at].as_slice() {
            [] => own_loop(flow, &layout, &rows, (arrow.from, widths[arrow.from])),
            path => curve(flow, path, &rows, (arrow.from, arrow.to)),
        };
        out.text(&format!(
            "<g class=\"{}\"><path d=\"{line}\" stroke-width=\"{:.2}\" marker-end=\"url(#tip)\"/>\
             <text x=\"{x:.1}\" y=\"{y:.1}\">{}</text></g>\n",
            if arrow.is_dashed {
                "arrow dashed"
            } else {
                "arrow"
            },
            flow.width_px(arrow),
            xml(&arrow.label())
        ));
        out.pass();
    }
    for (at, block) in flow.blocks.iter().enumerate() {
        let (layer, x) = layout.places[at];
        let place = (x + MARGIN_PX, rows.0[layer].0, widths[at]);
        write_block(block, flow.shade(block), place, out);
        out.pass();
    }
    out.text("</svg>\n");
}

fn head(block: &FlowBlock) -> String {
    match block.count {
        Some(count) => format!("{}  {count} \u{d7}", block.name),
        None => block.name.clone(),
    }
}

fn width_px(block: &FlowBlock) -> f64 {
    let lines = block.lines.iter().map(|line| line.chars().count());
    let longest = lines.max().unwrap_or(0).max(head(block).chars().count());
    longest as f64 * LETTER_PX + 2.0 * PAD_PX
}

fn height_px(block: &FlowBlock) -> f64 {
    (block.lines.len() + 1) as f64 * LINE_PX + PAD_PX
}

/// Beside the box, and where its number stands.
fn own_loop(
    flow: &Flow,
    layout: &Layout,
    rows: &Rows,
    (at, width): (usize, f64),
) -> (String, (f64, f64)) {
    let (layer, x) = layout.places[at];
    let (right, y) = (x + MARGIN_PX + width / 2.0, rows.0[layer].0);
    let half = height_px(&flow.blocks[at]) / 2.0 - 4.0;
    let (out, top, bottom) = (right + 24.0, y - half, y + half);
    let line = format!(
        "M{right:.1} {bottom:.1} C{out:.1} {bottom:.1} {out:.1} {top:.1} {right:.1} {top:.1}"
    );
    (line, (right + 20.0, y + 4.0))
}

/// Through all points, upright at each, and where its number stands. The arrow passes a layer's
/// whole height straight.
fn curve(
    flow: &Flow,
    path: &[(usize, f64)],
    rows: &Rows,
    (from, to): (usize, usize),
) -> (String, (f64, f64)) {
    let last = path.len() - 1;
    let down = if path[0].0 < path[last].0 { 1.0 } else { -1.0 };
    let edge = |block: usize| height_px(&flow.blocks[block]) / 2.0;
    let mut line = String::new();
    let mut label = (0.0, 0.0);
    let mut before: Option<(f64, f64)> = None;
    for (at, (layer, x)) in path.iter().enumerate() {
        let (middle, half) = rows.0[*layer];
        let x = x + MARGIN_PX;
        let into = match at {
            _ if at == last => middle - down * edge(to),
            _ => middle - down * half,
        };
        let out = match at {
            0 => middle + down * edge(from),
            _ => middle + down * half,
        };
        match before {
            None => line.push_str(&format!("M{x:.1} {out:.1}")),
            Some((from_x, from_y)) => {
                let bend = (into - from_y) * 0.45;
                line.push_str(&format!(
                    " C{from_x:.1} {:.1} {x:.1} {:.1} {x:.1} {into:.1}",
                    from_y + bend,
                    into - bend
                ));
                label = (
                    from_x + (x - from_x) * 0.6 + 4.0,
                    from_y + (into - from_y) * 0.6,
                );
                if at != last {
                    line.push_str(&format!(" L{x:.1} {out:.1}"));
                }
            }
        }
        before = Some((x, out));
    }
    (line, label)
}

fn write_block<W: Write>(
    block: &FlowBlock,
    shade: usize,
    (x, y, width): (f64, f64, f64),
    out: &mut Output<W>,
) {
    let height = height_px(block);
    let (left, top) = (x - width / 2.0, y - height / 2.0);
    let edge = match block.is_entered || block.is_left {
        true => " strong",
        false => "",
    };
    out.text(&format!(
        "<g><rect class=\"block s{shade}{edge}\" x=\"{left:.1}\" y=\"{top:.1}\" \
         width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\"/>"
    ));
    for (at, line) in std::iter::once(&head(block))
        .chain(&block.lines)
        .enumerate()
    {
        out.text(&format!(
            "<text class=\"code\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left + PAD_PX,
            top + LINE_PX * (at as f64 + 1.0),
            xml(line)
        ));
    }
    out.text("</g>\n");
}
