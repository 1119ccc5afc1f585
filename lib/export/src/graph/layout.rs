//! Places for the nodes and arrows of a graph: in layers, callers above what they call.
//!
//! Given the nodes' widths and who points to whom; gives a place for each node, and for each arrow
//! the points that it passes. Sugiyama's way: arrows that close a circle are turned, each node
//! stands below all that point to it, long arrows get places in the layers between, layers are put
//! in an order with few crossings, and each place is drawn towards those that it is joined to.
//! Knows nothing of what is drawn.

/// Between two nodes of a layer.
const GAP_PX: f64 = 24.0;
/// Width of an arrow where it passes a layer.
const PASSING_PX: f64 = 10.0;
/// Times that the layers are put in order, down and up.
const SWEEPS: usize = 12;
/// Times that places are drawn towards each other.
const PULLS: usize = 24;

/// A picture's places.
pub struct Layout {
    /// By node: its layer, and the middle of its box.
    pub places: Vec<(usize, f64)>,
    /// By arrow: layer and middle of each point, from the caller to the callee.
    pub paths: Vec<Vec<(usize, f64)>>,
    /// The width of all.
    pub width_px: f64,
    /// How many layers there are.
    pub layers: usize,
}

/// A place in a layer: a node's or a passing arrow's.
struct Spot {
    width_px: f64,
    x: f64,
    layer: usize,
    above: Vec<usize>,
    below: Vec<usize>,
}

/// Lays a graph out. An arrow to itself has an empty path.
pub fn lay_out(widths_px: &[f64], arrows: &[(usize, usize)]) -> Layout {
    let turned = turned(widths_px.len(), arrows);
    let downward = arrows.iter().zip(&turned);
    let downward: Vec<(usize, usize)> = downward
        .map(|(&(from, to), &is_turned)| if is_turned { (to, from) } else { (from, to) })
        .collect();
    let layer_of = layers(widths_px.len(), &downward);
    let mut spots: Vec<Spot> = widths_px
        .iter()
        .zip(&layer_of)
        .map(|(&width_px, &layer)| spot(width_px, layer))
        .collect();
    let chains: Vec<Vec<usize>> = downward
        .iter()
        .map(|&(from, to)| chain(&mut spots, from, to))
        .collect();
    let mut rows = rows_of(&spots);
    order(&mut spots, &mut rows);
    pull(&mut spots, &rows);
    let left = |spot: &Spot| spot.x - spot.width_px / 2.0;
    let least = spots.iter().map(left).fold(f64::INFINITY, f64::min);
    let least = if least.is_finite() { least } else { 0.0 };
    spots.iter_mut().for_each(|spot| spot.x -= least);
    let right = |spot: &Spot| spot.x + spot.width_px / 2.0;
    let paths = chains.iter().zip(&turned).map(|(chain, &is_turned)| {
        let points = chain.iter().map(|&at| (spots[at].layer, spots[at].x));
        let mut points: Vec<_> = points.collect();
        if is_turned {
            points.reverse();
        }
        points
    });
    Layout {
        places: spots[..widths_px.len()]
            .iter()
            .map(|spot| (spot.layer, spot.x))
            .collect(),
        paths: paths.collect(),
        width_px: spots.iter().map(right).fold(0.0, f64::max),
        layers: rows.len(),
    }
}

fn spot(width_px: f64, layer: usize) -> Spot {
    Spot {
        width_px,
        x: 0.0,
        layer,
        above: Vec::new(),
        below: Vec::new(),
    }
}

/// Which arrows point back to a node that the search came through.
fn turned(nodes: usize, arrows: &[(usize, usize)]) -> Vec<bool> {
    let mut out = vec![Vec::new(); nodes];
    let mut is_called = vec![false; nodes];
    for (arrow, &(from, to)) in arrows.iter().enumerate() {
        out[from].push(arrow);
        is_called[to] |= from != to;
    }
    let mut turned = vec![false; arrows.len()];
    // 0: not seen, 1: on the way, 2: done.
    let mut state = vec![0_u8; nodes];
    let mut starts: Vec<usize> = (0..nodes).collect();
    starts.sort_by_key(|&node| is_called[node]);
    for start in starts {
        if state[start] != 0 {
            continue;
        }
        state[start] = 1;
        let mut way = vec![(start, 0)];
        while let Some((node, next)) = way.last_mut() {
            let Some(&arrow) = out[*node].get(*next) else {
                state[*node] = 2;
                way.pop();
                continue;
            };
            *next += 1;
            let to = arrows[arrow].1;
            match state[to] {
                0 => {
                    state[to] = 1;
                    way.push((to, 0));
                }
                1 => turned[arrow] = to != *node,
                _ => {}
            }
        }
    }
    turned
}

/// The longest way from a node that nothing points to.
fn layers(nodes: usize, arrows: &[(usize, usize)]) -> Vec<usize> {
    let mut waits_for = vec![0; nodes];
    let mut out = vec![Vec::new(); nodes];
    for &(from, to) in arrows.iter().filter(|(from, to)| from != to) {
        waits_for[to] += 1;
        out[from].push(to);
    }
    let mut layer = vec![0; nodes];
    let mut ready: Vec<usize> = (0..nodes).filter(|&n| waits_for[n] == 0).collect();
    while let Some(node) = ready.pop() {
        for &to in &out[node] {
            layer[to] = layer[to].max(layer[node] + 1);
            waits_for[to] -= 1;
            if waits_for[to] == 0 {
                ready.push(to);
            }
        }
    }
    layer
}

/// Joins two nodes, by a place in each layer between; none for an arrow to itself.
fn chain(spots: &mut Vec<Spot>, from: usize, to: usize) -> Vec<usize> {
    if from == to {
        return Vec::new();
    }
    let mut points = vec![from];
    for layer in spots[from].layer + 1..spots[to].layer {
        spots.push(spot(PASSING_PX, layer));
        points.push(spots.len() - 1);
    }
    points.push(to);
    for pair in points.windows(2) {
        spots[pair[0]].below.push(pair[1]);
        spots[pair[1]].above.push(pair[0]);
    }
    points
}

fn rows_of(spots: &[Spot]) -> Vec<Vec<usize>> {
    let layers = spots.iter().map(|spot| spot.layer + 1).max().unwrap_or(0);
    let mut rows = vec![Vec::new(); layers];
    for (at, spot) in spots.iter().enumerate() {
        rows[spot.layer].push(at);
    }
    rows
}

/// Puts each layer in the order of the middle of what it is joined to, down and up in turn, and
/// keeps the best.
fn order(spots: &mut [Spot], rows: &mut Vec<Vec<usize>>) {
    let number = |spots: &mut [Spot], row: &[usize]| {
        for (position, &at) in row.iter().enumerate() {
            spots[at].x = position as f64;
        }
    };
    rows.iter().for_each(|row| number(spots, row));
    let mut best = (crossings(spots, rows), rows.clone());
    for sweep in 0..SWEEPS {
        let is_down = sweep % 2 == 0;
        for step in 0..rows.len() {
            let layer = if is_down { step } else { rows.len() - 1 - step };
            let middle = |at: &usize| {
                let spot = &spots[*at];
                let joined = if is_down { &spot.above } else { &spot.below };
                mean(joined.iter().map(|&other| spots[other].x)).unwrap_or(spot.x)
            };
            let mut keyed: Vec<_> = rows[layer].iter().map(|at| (middle(at), *at)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            rows[layer] = keyed.into_iter().map(|(_, at)| at).collect();
            let row = rows[layer].clone();
            number(spots, &row);
        }
        let found = crossings(spots, rows);
        if found < best.0 {
            best = (found, rows.clone());
        }
    }
    *rows = best.1;
}

fn crossings(spots: &[Spot], rows: &[Vec<usize>]) -> usize {
    let mut sum = 0;
    for row in rows {
        let joins = row
            .iter()
            .flat_map(|&at| spots[at].below.iter().map(move |&to| (at, to)));
        let mut ends: Vec<(f64, f64)> = joins.map(|(a, b)| (spots[a].x, spots[b].x)).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for (i, a) in ends.iter().enumerate() {
            sum += ends[i + 1..].iter().filter(|b| b.1 < a.1).count();
        }
    }
    sum
}

/// Draws each place towards what it is joined to, as far as its neighbours let it.
fn pull(spots: &mut [Spot], rows: &[Vec<usize>]) {
    for row in rows {
        let mut x = 0.0;
        for &at in row {
            spots[at].x = x + spots[at].width_px / 2.0;
            x += spots[at].width_px + GAP_PX;
        }
    }
    for _ in 0..PULLS {
        for row in rows {
            let wish = |at: &usize| {
                let joined = spots[*at].above.iter().chain(&spots[*at].below);
                mean(joined.map(|&other| spots[other].x)).unwrap_or(spots[*at].x)
            };
            let wishes: Vec<f64> = row.iter().map(wish).collect();
            let between = |i: usize| {
                let half = |i: usize| spots[row[i]].width_px / 2.0;
                half(i - 1) + half(i) + GAP_PX
            };
            let (mut right, mut left) = (wishes.clone(), wishes.clone());
            for i in 1..row.len() {
                right[i] = right[i].max(right[i - 1] + between(i));
            }
            for i in (1..row.len()).rev() {
                left[i - 1] = left[i - 1].min(left[i] - between(i));
            }
            // Both keep the distances, so what lies in the middle does.
            for (i, &at) in row.iter().enumerate() {
                spots[at].x = f64::midpoint(left[i], right[i]);
            }
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), x| (sum + x, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_stand_above_what_they_call_and_boxes_do_not_meet() {
        let arrows = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (3, 1), (2, 2)];
        let widths = [100.0, 80.0, 60.0, 120.0];
        let layout = lay_out(&widths, &arrows);
        let layer = |node: usize| layout.places[node].0;
        assert!(layer(0) < layer(1) && layer(0) < layer(2));
        assert_eq!(layer(3).max(layer(1)) + 1, layout.layers);
        for a in 0..widths.len() {
            for b in 0..a {
                let gap = (layout.places[a].1 - layout.places[b].1).abs();
                let least = f64::midpoint(widths[a], widths[b]);
                assert!(layer(a) != layer(b) || gap >= least, "{a} {b}");
            }
            let (_, x) = layout.places[a];
            assert!(x - widths[a] / 2.0 >= 0.0 && x + widths[a] / 2.0 <= layout.width_px + 0.1);
        }
        for (path, (from, to)) in layout.paths.iter().zip(arrows) {
            assert_eq!(path.is_empty(), from == to);
            assert!(from == to || path.first() == Some(&layout.places[from]));
            assert!(from == to || path.last() == Some(&layout.places[to]));
        }
    }

    #[test]
    fn an_empty_graph_has_no_layers() {
        let layout = lay_out(&[], &[]);
        assert_eq!((layout.layers, layout.places.len()), (0, 0));
    }

    #[test]
    fn crossed_arrows_are_uncrossed() {
        let layout = lay_out(&[10.0; 4], &[(0, 3), (1, 2)]);
        let x = |node: usize| layout.places[node].1;
        assert_eq!(x(0) < x(1), x(3) < x(2));
    }
}
