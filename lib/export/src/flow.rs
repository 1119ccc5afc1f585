//! A control-flow graph to be drawn: blocks of code, and how control passes between them.
//!
//! Given what stands in the boxes, and arrows; gives a picture by graphviz's language (`dot.rs`)
//! or as SVG (`svg.rs`). Where something has counted, numbers stand at arrows, and what was
//! executed more often is darker. Knows nothing of code and traces.

mod dot;
mod svg;

use crate::output::Output;
use std::io::{self, Write};

/// Shades from light to dark.
const SHADES: usize = 5;

/// What is drawn.
#[derive(Debug, Clone, Default)]
pub struct Flow {
    /// Its title.
    pub title: String,
    /// What is said below the title.
    pub said: String,
    /// The blocks.
    pub blocks: Vec<FlowBlock>,
    /// How control passes between them.
    pub arrows: Vec<FlowArrow>,
}

/// A block as it is drawn.
#[derive(Debug, Clone, Default)]
pub struct FlowBlock {
    /// What it is called.
    pub name: String,
    /// What stands below that, line by line.
    pub lines: Vec<String>,
    /// How often it was executed, if that is known.
    pub count: Option<u64>,
    /// Control enters the function here.
    pub is_entered: bool,
    /// Control leaves the function here.
    pub is_left: bool,
}

/// An arrow as it is drawn.
#[derive(Debug, Clone, Default)]
pub struct FlowArrow {
    /// Index of the block that it leaves.
    pub from: usize,
    /// Index of the block that it leads to.
    pub to: usize,
    /// How it is taken, in a word.
    pub word: &'static str,
    /// It stands for something that is not the usual way.
    pub is_dashed: bool,
    /// How often it was taken, if that is known.
    pub count: Option<u64>,
}

impl Flow {
    fn most(&self) -> u64 {
        let counts = self.blocks.iter().filter_map(|block| block.count);
        counts.max().unwrap_or(0).max(1)
    }

    /// How dark a block is, below [`SHADES`]: each shade stands for some times more.
    fn shade(&self, block: &FlowBlock) -> usize {
        let log = |count: u64| (count as f64 + 1.0).ln();
        let share = block.count.map_or(0.0, |c| log(c) / log(self.most()));
        ((share * SHADES as f64) as usize).min(SHADES - 1)
    }

    /// Of an arrow, from 1 to 5 pixels.
    fn width_px(&self, arrow: &FlowArrow) -> f64 {
        let share = arrow.count.unwrap_or(0) as f64 / self.most() as f64;
        1.0 + 4.0 * share.min(1.0)
    }
}

impl FlowArrow {
    fn label(&self) -> String {
        match self.count {
            Some(count) => format!("{} {count}", self.word).trim().to_owned(),
            None => self.word.to_owned(),
        }
    }
}

/// Writes it for graphviz.
///
/// # Errors
/// Those of `out`.
pub fn write_flow_dot(flow: &Flow, out: impl Write) -> io::Result<()> {
    let mut out = Output::new(out);
    dot::write(flow, &mut out);
    out.finish()
}

/// Writes it as a picture for browsers.
///
/// # Errors
/// Those of `out`.
pub fn write_flow_svg(flow: &Flow, out: impl Write) -> io::Result<()> {
    let mut out = Output::new(out);
    svg::write(flow, &mut out);
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        let block = |name: &str, count| FlowBlock {
            name: name.to_owned(),
            lines: vec!["call \"a\" <b>".to_owned()],
            count,
            ..FlowBlock::default()
        };
        let arrow = |from, to, count| FlowArrow {
            from,
            to,
            word: "taken",
            count,
            ..FlowArrow::default()
        };
        Flow {
            title: "f & g".to_owned(),
            blocks: vec![
                block("+0x0", Some(1)),
                block("+0x10", Some(900)),
                block("x", None),
            ],
            arrows: vec![
                arrow(0, 1, Some(1)),
                arrow(1, 1, Some(899)),
                arrow(1, 2, None),
            ],
            ..Flow::default()
        }
    }

    #[test]
    fn a_picture_has_all_blocks_arrows_and_counts_and_its_texts_are_escaped() {
        let mut svg = Vec::new();
        write_flow_svg(&flow(), &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        assert_eq!(svg.matches("<rect class=\"block").count(), 3);
        assert_eq!(svg.matches("marker-end").count(), 3);
        assert!(svg.contains("f &amp; g") && svg.contains("taken 899") && !svg.contains("<b>"));
        let mut dot = Vec::new();
        write_flow_dot(&flow(), &mut dot).unwrap();
        let dot = String::from_utf8(dot).unwrap();
        assert_eq!(dot.matches(" -> ").count(), 3);
        assert!(dot.contains(r#"call \"a\" <b>"#) && dot.contains("taken 899"));
    }

    #[test]
    fn what_is_executed_more_often_is_darker() {
        let flow = flow();
        let shades: Vec<usize> = flow.blocks.iter().map(|b| flow.shade(b)).collect();
        assert!(
            shades[1] == SHADES - 1 && shades[0] < shades[1] && shades[2] == 0,
            "{shades:?}"
        );
    }
}
