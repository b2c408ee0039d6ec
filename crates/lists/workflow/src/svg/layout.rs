//! Where the parts of a drawing stand: stages in layers, and the ways of edges between them.

use super::{GAP_X, LAYER_GAP, LINE_H, MARGIN, SWEEPS};
use crate::stages::Stages;

/// A place in a layer: a stage, or an edge on its way to a deeper layer.
pub(super) struct LayerPlace {
    pub stage: Option<usize>,
    pub width: f64,
    pub height: f64,
    /// Its middle.
    pub x: f64,
}

/// Stages and edges have their places.
pub(super) struct Layout {
    /// The stages in their order, then what edges pass.
    pub places: Vec<LayerPlace>,
    /// By edge: the places that it goes through, from its first stage to its last.
    pub ways: Vec<Vec<usize>>,
    /// By place.
    layer_of: Vec<usize>,
    /// By layer: its upper end, and the height of its tallest place.
    tops: Vec<f64>,
    tallest: Vec<f64>,
    pub width: f64,
    pub height: f64,
}

impl Layout {
    /// * `sizes`: width and height of each stage's box.
    pub fn new(stages: &Stages, sizes: &[(f64, f64)]) -> Layout {
        let (mut places, mut layers) = (vec![], vec![]);
        layers.resize(stages.stages.iter().map(|s| s.layer + 1).max().unwrap_or(0), vec![]);
        for (n, (stage, (width, height))) in stages.stages.iter().zip(sizes).enumerate() {
            layers[stage.layer].push(n);
            places.push(LayerPlace { stage: Some(n), width: *width, height: *height, x: 0.0 });
        }
        let ways = find_ways(stages, &mut places, &mut layers);
        arrange(&mut layers, &ways, places.len());
        let width = spread(&layers, &mut places);
        let tallest_of = |layer: &Vec<usize>| layer.iter().map(|p| places[*p].height).fold(0.0, f64::max);
        let tallest: Vec<f64> = layers.iter().map(tallest_of).collect();
        let mut tops = vec![];
        let mut y = MARGIN + 2.0 * LINE_H + 10.0;
        for tallest in &tallest {
            tops.push(y);
            y += tallest + LAYER_GAP;
        }
        let mut layer_of = vec![0; places.len()];
        for (n, layer) in layers.iter().enumerate() {
            layer.iter().for_each(|p| layer_of[*p] = n);
        }
        Layout { places, ways, layer_of, tops, tallest, width, height: y - LAYER_GAP + MARGIN }
    }

    /// The upper end of a place.
    pub fn top(&self, place: usize) -> f64 {
        self.tops[self.layer_of[place]]
    }

    /// The lower end of a box. What an edge passes is as tall as its layer.
    pub fn bottom(&self, place: usize) -> f64 {
        let at = &self.places[place];
        self.top(place) + if at.stage.is_some() { at.height } else { self.tallest[self.layer_of[place]] }
    }

    /// The point where an edge leaves or enters the box at a place, from the box's middle. The edges of one side spread over
    /// it, in the order of their other ends.
    pub fn port(&self, at: usize, other: usize, leaves: bool) -> f64 {
        let places = &self.places;
        if places[at].stage.is_none() {
            return 0.0;
        }
        let between = self.ways.iter().filter(|way| way[0] != way[way.len() - 1]);
        let mut others: Vec<usize> = between
            .filter_map(|way| match leaves {
                true if way[0] == at => Some(way[1]),
                false if way[way.len() - 1] == at => Some(way[way.len() - 2]),
                _ => None,
            })
            .collect();
        others.sort_by(|a, b| places[*a].x.total_cmp(&places[*b].x).then(a.cmp(b)));
        let n = others.len() as f64;
        let i = others.iter().position(|o| *o == other).unwrap_or(0) as f64;
        (i + 1.0) / (n + 1.0) * places[at].width - places[at].width / 2.0
    }
}

/// The places that each edge goes through: one in every layer that it passes.
fn find_ways(stages: &Stages, places: &mut Vec<LayerPlace>, layers: &mut [Vec<usize>]) -> Vec<Vec<usize>> {
    let mut ways = vec![];
    for edge in &stages.edges {
        let (from, to) = (&stages.stages[edge.from], &stages.stages[edge.to]);
        let mut way = vec![edge.from];
        for layer in layers.iter_mut().take(to.layer).skip(from.layer + 1) {
            layer.push(places.len());
            way.push(places.len());
            places.push(LayerPlace { stage: None, width: 12.0, height: 0.0, x: 0.0 });
        }
        way.push(edge.to);
        ways.push(way);
    }
    ways
}

/// Orders each layer by the mean place of the neighbours above, then below, a few times.
fn arrange(layers: &mut [Vec<usize>], ways: &[Vec<usize>], n_places: usize) {
    let (mut above, mut below) = (vec![vec![]; n_places], vec![vec![]; n_places]);
    for pair in ways.iter().flat_map(|way| way.windows(2)).filter(|pair| pair[0] != pair[1]) {
        above[pair[1]].push(pair[0]);
        below[pair[0]].push(pair[1]);
    }
    let mut rank = vec![0.0; n_places];
    let number = |layer: &[usize], rank: &mut [f64]| {
        layer.iter().enumerate().for_each(|(i, p)| rank[*p] = i as f64 - layer.len() as f64 / 2.0);
    };
    layers.iter().for_each(|layer| number(layer, &mut rank));
    for sweep in 0..SWEEPS {
        let downwards = sweep % 2 == 0;
        let neighbours = if downwards { &above } else { &below };
        let mut numbers: Vec<usize> = (0..layers.len()).collect();
        if !downwards {
            numbers.reverse();
        }
        for n in numbers {
            let mean = |p: &usize| match neighbours[*p].as_slice() {
                [] => rank[*p],
                all => all.iter().map(|q| rank[*q]).sum::<f64>() / all.len() as f64,
            };
            let mut keyed: Vec<(f64, usize)> = layers[n].iter().map(|p| (mean(p), *p)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            layers[n] = keyed.into_iter().map(|(_, p)| p).collect();
            number(&layers[n], &mut rank);
        }
    }
}

/// Sets the middle of every place; each layer is centred. Returns the width of the drawing.
fn spread(layers: &[Vec<usize>], places: &mut [LayerPlace]) -> f64 {
    let width_of = |layer: &Vec<usize>, places: &[LayerPlace]| {
        layer.iter().map(|p| places[*p].width + GAP_X).sum::<f64>() - GAP_X
    };
    let widest = layers.iter().map(|layer| width_of(layer, places)).fold(260.0, f64::max);
    for layer in layers {
        let mut x = MARGIN + (widest - width_of(layer, places)) / 2.0;
        for p in layer {
            places[*p].x = x + places[*p].width / 2.0;
            x += places[*p].width + GAP_X;
        }
    }
    // Room at the right for the label of an edge from a stage to itself.
    widest + 2.0 * MARGIN + 120.0
}
