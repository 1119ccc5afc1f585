//! What `--top` shows: the functions that have run, the hottest first, and who calls them.
//!
//! Given sums of a recording and keys; draws a list and gives what a key asks for. Rates are those
//! of the last second or so. Must not know where the sums come from, nor what a terminal is.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use sptrace_render::units;
use sptrace_trace::{Clock, FunctionId, FunctionStats, Graph, Names, Stats};

use super::screen::Key;

const HELP: &str = "s self  t total  c calls  r rate  m mean  x max  p p99   / filter   arrows, \
                    Enter callers   space still   o record   l level   q leave";
/// Callers that are shown of a function.
const CALLERS: usize = 8;
/// Rates are of so long at least.
const RATE_OVER: Duration = Duration::from_millis(900);

/// What a key asks for beyond the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Nothing.
    Nothing,
    /// Callers shall be counted.
    Callers,
    /// The recording shall pause, or go on.
    Switch,
    /// A function shall be recorded no more, or again.
    Turn(FunctionId),
    /// The view shall end.
    Leave,
}

/// What is known at the moment of drawing.
pub struct Facts<'a> {
    /// Names of functions.
    pub names: &'a Names<'a>,
    /// Makes ticks nanoseconds.
    pub clock: Clock,
    /// The functions that have ended calls.
    pub stats: &'a Stats,
    /// Who called whom, if that is counted.
    pub callers: Option<&'a Graph>,
    /// Calls that have begun.
    pub calls: u64,
    /// The latest moment of the recording that is in the sums.
    pub told_ns: u64,
    /// Since the view began.
    pub elapsed: Duration,
    /// More is written already than was read.
    pub is_behind: bool,
    /// Functions that are left out, by name; none: nothing can be.
    pub left_out: Option<BTreeSet<String>>,
    /// Nothing is recorded at the moment.
    pub is_off: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    SelfTime,
    Total,
    Calls,
    Rate,
    Mean,
    Max,
    P99,
}

/// A function as it is shown.
#[derive(Clone, Debug)]
struct Shown {
    function: FunctionId,
    name: String,
    module: String,
    calls: u64,
    /// Calls a second.
    rate: u64,
    /// Its own in each second of the last one.
    busy: Time,
    own: Option<Time>,
    total: Option<Time>,
    mean: Option<Time>,
    p99: Option<u64>,
    max: Option<u64>,
    /// It is recorded no more.
    is_left_out: bool,
    callers: Vec<String>,
}

/// A time that was measured, or is an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Time {
    ns: u64,
    is_estimate: bool,
}

/// As views of a trace show it.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_estimate { "~" } else { "" };
        write!(f, "{mark}{}", units::Duration(self.ns))
    }
}

/// Calls, and own nanoseconds.
type Past = HashMap<FunctionId, (u64, u64)>;

/// The view and what has been chosen in it.
pub struct View {
    command: String,
    order: Order,
    filter: String,
    /// Keys are letters of the filter.
    is_typing: bool,
    is_paused: bool,
    selected: usize,
    expanded: Option<FunctionId>,
    shown: Vec<Shown>,
    /// When the sums were these (by the recording, by the clock), and how many calls had begun.
    past: (u64, Duration, u64, Past),
    /// Calls a second, and of each function the same with its own time.
    rates: (u64, Past),
    head: String,
    /// What is said of the recording beside the order.
    state: &'static str,
}

impl View {
    /// A view of this command.
    pub fn new(command: &[String]) -> Self {
        Self {
            command: units::clean(&command.join(" ")),
            order: Order::SelfTime,
            filter: String::new(),
            is_typing: false,
            is_paused: false,
            selected: 0,
            expanded: None,
            shown: Vec::new(),
            past: (0, Duration::ZERO, 0, Past::new()),
            rates: (0, Past::new()),
            head: String::new(),
            state: "",
        }
    }

    /// A key was pressed.
    pub fn key(&mut self, key: Key) -> Wish {
        if self.is_typing {
            match key {
                Key::Char(c) => self.filter.push(c),
                Key::Backspace => drop(self.filter.pop()),
                Key::Enter => self.is_typing = false,
                Key::Escape => {
                    self.is_typing = false;
                    self.filter.clear();
                }
                Key::Up | Key::Down => {}
            }
            return Wish::Nothing;
        }
        match key {
            Key::Char('q') => return Wish::Leave,
            Key::Char('s') => self.order = Order::SelfTime,
            Key::Char('t') => self.order = Order::Total,
            Key::Char('c') => self.order = Order::Calls,
            Key::Char('r') => self.order = Order::Rate,
            Key::Char('m') => self.order = Order::Mean,
            Key::Char('x') => self.order = Order::Max,
            Key::Char('p') => self.order = Order::P99,
            Key::Char('o') => return Wish::Switch,
            Key::Char('l') => {
                let selected = self.shown.get(self.selected);
                return selected.map_or(Wish::Nothing, |row| Wish::Turn(row.function));
            }
            Key::Char('/') => self.is_typing = true,
            Key::Char(' ') => self.is_paused = !self.is_paused,
            Key::Up | Key::Char('k') => self.selected = self.selected.saturating_sub(1),
            Key::Down | Key::Char('j') => self.selected += 1,
            Key::Escape => {
                self.filter.clear();
                self.expanded = None;
            }
            Key::Enter => return self.expand(),
            Key::Char(_) | Key::Backspace => {}
        }
        Wish::Nothing
    }

    /// Shows who calls the selected function, or no more.
    fn expand(&mut self) -> Wish {
        let selected = self.shown.get(self.selected).map(|row| row.function);
        self.expanded = match self.expanded == selected {
            true => None,
            false => selected,
        };
        Wish::Callers
    }

    /// Draws it.
    pub fn draw(&mut self, frame: &mut Frame<'_>, facts: &Facts<'_>) {
        if !self.is_paused {
            self.take_rates(facts);
            self.head = self.head(facts);
        }
        self.state = match (&facts.left_out, facts.is_off) {
            (None, _) => "   (other options say when it is recorded)",
            (Some(_), true) => "   NOT RECORDING: o goes on",
            (Some(_), false) => "",
        };
        // Also a list that stands still can be ordered and chosen from.
        if !self.is_paused || self.shown.is_empty() {
            self.shown = self.rows(facts);
        }
        self.order_rows();
        self.selected = self.selected.min(self.shown.len().saturating_sub(1));
        let parts = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ]);
        let [head, chosen, list, foot] = parts.areas(frame.area());
        frame.render_widget(Paragraph::new(self.head.as_str()), head);
        frame.render_widget(Paragraph::new(self.chosen()), chosen);
        frame.render_widget(self.table(list.height as usize), list);
        let dim = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Paragraph::new(Line::styled(HELP, dim)), foot);
    }

    fn head(&self, facts: &Facts<'_>) -> String {
        let behind = if facts.is_behind {
            "   catching up"
        } else {
            ""
        };
        format!(
            "sptrace  {:.0} s  {} calls  {} a second{behind}   {}",
            facts.elapsed.as_secs_f64(),
            units::Count(facts.calls),
            units::Count(self.rates.0),
            self.command,
        )
    }

    fn chosen(&self) -> String {
        let order = match self.order {
            Order::SelfTime => "self",
            Order::Total => "total",
            Order::Calls => "calls",
            Order::Rate => "calls a second",
            Order::Mean => "mean",
            Order::Max => "max",
            Order::P99 => "p99",
        };
        let filter = match (self.is_typing, self.filter.is_empty()) {
            (true, _) => format!("   filter: {}_", self.filter),
            (false, false) => format!("   filter: {}", self.filter),
            (false, true) => String::new(),
        };
        let paused = if self.is_paused { "   paused" } else { "" };
        format!("by {order}{filter}{paused}{}", self.state)
    }

    fn take_rates(&mut self, facts: &Facts<'_>) {
        let (told, at, calls, past) = &self.past;
        let mut passed = facts.elapsed.saturating_sub(*at);
        if passed < RATE_OVER {
            return;
        }
        if facts.is_behind {
            // What was read is not what was done meanwhile.
            passed = Duration::from_nanos(facts.told_ns.saturating_sub(*told).max(1));
        }
        let a_second = |count: u64| (count as f64 / passed.as_secs_f64()) as u64;
        let sums = |stats: &FunctionStats| {
            let own = stats.self_estimate().or(stats.self_ticks());
            (stats.calls, own.map_or(0, |ticks| facts.clock.ns(ticks)))
        };
        let now: Past = facts
            .stats
            .functions()
            .map(|(id, stats)| (id, sums(stats)))
            .collect();
        let rates = now.iter().map(|(id, (calls, own))| {
            let (calls_then, own_then) = past.get(id).copied().unwrap_or_default();
            let calls = a_second(calls.saturating_sub(calls_then));
            (*id, (calls, a_second(own.saturating_sub(own_then))))
        });
        self.rates = (
            a_second(facts.calls.saturating_sub(*calls)),
            rates.collect(),
        );
        self.past = (facts.told_ns, facts.elapsed, facts.calls, now);
    }

    fn rows(&self, facts: &Facts<'_>) -> Vec<Shown> {
        let ns = |ticks: Option<u64>| ticks.map(|ticks| facts.clock.ns(ticks));
        let time = |estimate: Option<u64>, measured| {
            let is_estimate = estimate.is_some();
            ns(estimate.or(measured)).map(|ns| Time { ns, is_estimate })
        };
        let rows = facts.stats.functions().map(|(function, stats)| {
            let (rate, busy) = self.rates.1.get(&function).copied().unwrap_or_default();
            Shown {
                function,
                name: units::clean(facts.names.name(function)),
                module: units::clean(facts.names.module(function)),
                calls: stats.calls,
                rate,
                busy: Time {
                    ns: busy,
                    is_estimate: busy > 0 && stats.self_estimate().is_some(),
                },
                own: time(stats.self_estimate(), stats.self_ticks()),
                total: time(stats.total_estimate(), stats.total_ticks()),
                mean: time(stats.mean_estimate(), stats.mean_ticks()),
                p99: ns(stats.p99_ticks()),
                max: ns(stats.max_ticks()),
                is_left_out: {
                    let left_out = facts.left_out.as_ref();
                    left_out.is_some_and(|all| all.contains(facts.names.name(function)))
                },
                callers: match self.expanded == Some(function) {
                    true => callers(function, facts),
                    false => Vec::new(),
                },
            }
        });
        rows.collect()
    }

    /// What is not known has no rank: it comes last.
    fn order_rows(&mut self) {
        let filter = self.filter.to_lowercase();
        self.shown.sort_by_cached_key(|row| {
            let value = match self.order {
                Order::SelfTime => row.own.map(|time| time.ns),
                Order::Total => row.total.map(|time| time.ns),
                Order::Calls => Some(row.calls),
                Order::Rate => Some(row.rate),
                Order::Mean => row.mean.map(|time| time.ns),
                Order::Max => row.max,
                Order::P99 => row.p99,
            };
            let fits = |text: &str| text.to_lowercase().contains(&filter);
            (
                !fits(&row.name) && !fits(&row.module),
                Reverse(value),
                row.function,
            )
        });
        if !self.is_paused {
            self.shown.retain(|row| {
                let fits = |text: &str| text.to_lowercase().contains(&filter);
                fits(&row.name) || fits(&row.module)
            });
        }
    }

    fn table(&self, height: usize) -> Table<'_> {
        let heads = [
            "calls", "calls/s", "self/s", "self", "total", "mean", "p99", "max", "module",
            "function",
        ];
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let right = |text: String| Cell::from(Line::from(text).right_aligned());
        let shown = |text: Option<String>| right(text.unwrap_or_else(|| "?".to_owned()));
        let time = |time: Option<Time>| shown(time.map(|time| time.to_string()));
        let measured = |ns: Option<u64>| shown(ns.map(|ns| units::Duration(ns).to_string()));
        let mut rows = Vec::new();
        let first = self.selected.saturating_sub(height.saturating_sub(2));
        for (at, row) in self.shown.iter().enumerate().skip(first).take(height) {
            let cells = [
                right(units::Count(row.calls).to_string()),
                right(units::Count(row.rate).to_string()),
                right(row.busy.to_string()),
                time(row.own),
                time(row.total),
                time(row.mean),
                measured(row.p99),
                measured(row.max),
                Cell::from(row.module.as_str()),
                match row.is_left_out {
                    true => Cell::from(format!("{} (left out)", row.name)),
                    false => Cell::from(row.name.as_str()),
                },
            ];
            let style = match at == self.selected {
                true => Style::new().add_modifier(Modifier::REVERSED),
                false => Style::new(),
            };
            rows.push(Row::new(cells).style(style));
            for caller in &row.callers {
                let mut cells = vec![Cell::from(""); heads.len() - 1];
                cells.push(Cell::from(caller.as_str()));
                rows.push(Row::new(cells));
            }
        }
        let heads = heads.iter().enumerate().map(|(at, head)| match at < 8 {
            true => Cell::from(Line::from(*head).right_aligned()),
            false => Cell::from(*head),
        });
        let widths = [
            Constraint::Length(13),
            Constraint::Length(11),
            Constraint::Length(11),
            Constraint::Length(11),
            Constraint::Length(11),
            Constraint::Length(11),
            Constraint::Length(10),
            Constraint::Length(10),
            Constraint::Max(20),
            Constraint::Min(20),
        ];
        Table::new(rows, widths).header(Row::new(heads).style(bold))
    }
}

/// The functions that call it most often, since that is counted.
fn callers(function: FunctionId, facts: &Facts<'_>) -> Vec<String> {
    let Some(graph) = facts.callers else {
        return vec!["  from: counted from now on".to_owned()];
    };
    let mut edges = graph.edges();
    edges.retain(|((_, callee), _)| *callee == function);
    edges.sort_by_key(|(_, edge)| Reverse(edge.calls));
    edges.truncate(CALLERS);
    let line = |(pair, edge): &((Option<FunctionId>, FunctionId), sptrace_trace::Edge)| {
        let name = pair
            .0
            .map_or("where the thread began", |id| facts.names.name(id));
        format!(
            "  from {}: {} calls",
            units::clean(name),
            units::Count(edge.calls)
        )
    };
    match edges.is_empty() {
        true => vec!["  from: nobody since Enter was pressed first".to_owned()],
        false => edges.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use sptrace_trace::{Dictionary, Entry, FrameFlags, Header, StreamId, Visitor};

    /// Function 0 calls function 1 twice: 30 ticks, of which 20 are its own.
    fn sums() -> (Stats, Graph) {
        let (mut stats, mut graph) = (Stats::new(), Graph::default());
        let mut tell = |function, [start, end]: [u64; 2], own: u64, is_end: bool| {
            let frame = sptrace_trace::Frame {
                function: FunctionId(function),
                entry: Entry::Call,
                depth: function,
                start_tsc: start,
                end_tsc: end,
                total_ticks: Some(end - start),
                self_ticks: Some(own),
                flags: FrameFlags::default(),
                estimate: None,
            };
            for visitor in [&mut stats as &mut dyn Visitor, &mut graph] {
                match is_end {
                    true => visitor.leave(StreamId(0), &frame),
                    false => visitor.enter(StreamId(0), &frame),
                }
            }
        };
        tell(0, [0, 30], 20, false);
        for start in [5, 12] {
            tell(1, [start, start + 5], 5, false);
            tell(1, [start, start + 5], 5, true);
        }
        tell(0, [0, 30], 20, true);
        (stats, graph)
    }

    fn screen(view: &mut View, callers: bool, elapsed: Duration) -> String {
        let (stats, graph) = sums();
        let dictionary = Dictionary::default();
        let names = Names::new(&dictionary);
        let facts = Facts {
            names: &names,
            clock: Clock::of(&Header::default()),
            stats: &stats,
            callers: callers.then_some(&graph),
            calls: 3,
            told_ns: 0,
            elapsed,
            is_behind: false,
            left_out: Some(BTreeSet::new()),
            is_off: false,
        };
        let mut terminal = Terminal::new(TestBackend::new(150, 12)).unwrap();
        terminal.draw(|frame| view.draw(frame, &facts)).unwrap();
        terminal.backend().to_string()
    }

    /// The numbers of calls, in the order of the list.
    fn calls(screen: &str) -> Vec<String> {
        let lines = screen.lines().skip(3);
        let first = lines.filter_map(|line| line.trim_matches('"').split_whitespace().next());
        let numbers = first.filter(|word| word.parse::<u64>().is_ok());
        numbers.map(str::to_owned).collect()
    }

    #[test]
    fn the_list_is_ordered_by_what_a_key_chooses() {
        let mut view = View::new(&["program".to_owned()]);
        assert_eq!(calls(&screen(&mut view, false, Duration::ZERO)), ["1", "2"]);
        view.key(Key::Char('c'));
        assert_eq!(calls(&screen(&mut view, false, Duration::ZERO)), ["2", "1"]);
        view.key(Key::Char('t'));
        assert_eq!(calls(&screen(&mut view, false, Duration::ZERO)), ["1", "2"]);
    }

    #[test]
    fn callers_are_asked_for_and_shown_below_the_selected_function() {
        let mut view = View::new(&[]);
        screen(&mut view, false, Duration::ZERO);
        view.key(Key::Down);
        assert_eq!(view.key(Key::Enter), Wish::Callers);
        assert!(screen(&mut view, true, Duration::ZERO).contains(": 2 calls"));
        view.key(Key::Enter);
        assert!(!screen(&mut view, true, Duration::ZERO).contains(": 2 calls"));
    }

    #[test]
    fn letters_are_a_filter_after_a_slash_until_return() {
        let mut view = View::new(&[]);
        for key in [Key::Char('/'), Key::Char('q'), Key::Char('z')] {
            assert_eq!(view.key(key), Wish::Nothing);
        }
        let shown = screen(&mut view, false, Duration::ZERO);
        assert!(shown.contains("filter: qz_") && calls(&shown).is_empty());
        view.key(Key::Escape);
        assert_eq!(calls(&screen(&mut view, false, Duration::ZERO)), ["1", "2"]);
        assert_eq!(view.key(Key::Char('q')), Wish::Leave);
    }

    #[test]
    fn rates_are_those_of_the_last_second() {
        let mut view = View::new(&[]);
        let shown = screen(&mut view, false, Duration::from_secs(2));
        assert!(shown.contains("3 calls  1 a second"), "{shown}");
    }

    #[test]
    fn a_list_that_is_paused_stays_though_it_can_be_ordered() {
        let mut view = View::new(&[]);
        screen(&mut view, false, Duration::from_secs(2));
        view.key(Key::Char(' '));
        view.key(Key::Char('c'));
        let shown = screen(&mut view, false, Duration::from_secs(9));
        assert!(
            shown.contains("paused") && shown.contains("  2 s  "),
            "{shown}"
        );
        assert_eq!(calls(&shown), ["2", "1"]);
    }
}
