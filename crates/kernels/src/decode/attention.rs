//! The cache of keys and values, and causal attention of many rows over caches that some of them share.
//!
//! A *row* is one token of one sequence with its query heads. Keys lie in panels of 16 positions and values position by
//! position, so that both the scores `q · k` and the sums `Σ p · v` are tiles of the product kernel.
#![expect(unsafe_code, reason = "tasks write the heads of their own rows in one shared output")]

use std::ops::Range;

use rayon::prelude::*;

use super::pointwise::exponentials;
use super::product::{MIN_TASK_WORK, PANEL, Panels, Rows, Store, Target, multiply_panels};

/// Queries that pass over a cache together.
const BLOCK_QUERIES: usize = 12;

/// The sizes that every cache of one model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Layers.
    pub num_layers: usize,
    /// Heads of keys and values.
    pub num_kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
}

/// Keys and values of a run of positions in all layers, allocated once.
#[derive(Clone, Debug)]
pub struct KeyValueCache {
    shape: CacheShape,
    capacity: usize,
    /// `[layer, head, position / 16, head_dim, 16]`
    keys: Vec<f32>,
    /// `[layer, head, position, head_dim rounded up to 16]`
    values: Vec<f32>,
}

impl KeyValueCache {
    /// Room for at least `capacity` positions.
    pub fn new(shape: CacheShape, capacity: usize) -> KeyValueCache {
        let capacity = capacity.next_multiple_of(PANEL);
        let heads = shape.num_layers * shape.num_kv_heads;
        KeyValueCache {
            shape,
            capacity,
            keys: vec![0.0; heads * capacity * shape.head_dim],
            values: vec![0.0; heads * capacity * shape.head_dim.next_multiple_of(PANEL)],
        }
    }

    /// Number of positions that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Puts the key and value heads of one token (each `[num_kv_heads, head_dim]`) at `position` of `layer`.
    pub fn write(&mut self, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let CacheShape { num_layers, num_kv_heads, head_dim } = self.shape;
        assert!(layer < num_layers && position < self.capacity, "layer {layer}, position {position} of the cache");
        assert!(keys.len() == num_kv_heads * head_dim && values.len() == keys.len(), "all heads of one token");
        let value_dim = head_dim.next_multiple_of(PANEL);
        for head in 0..num_kv_heads {
            let base = (layer * num_kv_heads + head) * self.capacity;
            let panel = (base + position / PANEL * PANEL) * head_dim + position % PANEL;
            let slots = self.keys[panel..].iter_mut().step_by(PANEL);
            for (slot, key) in slots.zip(&keys[head * head_dim..][..head_dim]) {
                *slot = *key;
            }
            self.values[(base + position) * value_dim..][..head_dim]
                .copy_from_slice(&values[head * head_dim..][..head_dim]);
        }
    }

    /// Takes over the first `len` positions of a cache of the same shape, in all layers.
    pub fn copy_start(&mut self, other: &KeyValueCache, len: usize) {
        assert_eq!(self.shape, other.shape, "caches of one model");
        assert!(
            len <= self.capacity.min(other.capacity),
            "{len} of {} and {} positions",
            self.capacity,
            other.capacity
        );
        let CacheShape { num_layers, num_kv_heads, head_dim } = self.shape;
        let value_dim = head_dim.next_multiple_of(PANEL);
        // Whole panels of keys: what lies behind `len` in the last one is overwritten before it is seen.
        let (keys, values) = (len.next_multiple_of(PANEL) * head_dim, len * value_dim);
        for head in 0..num_layers * num_kv_heads {
            let (to, from) = (head * self.capacity, head * other.capacity);
            self.keys[to * head_dim..][..keys].copy_from_slice(&other.keys[from * head_dim..][..keys]);
            self.values[to * value_dim..][..values].copy_from_slice(&other.values[from * value_dim..][..values]);
        }
    }

    /// Keys of the first `len` positions: a right factor of `head_dim × len`.
    fn keys(&self, layer: usize, head: usize, len: usize) -> Panels<'_> {
        let head_dim = self.shape.head_dim;
        let size = self.capacity * head_dim;
        let start = (layer * self.shape.num_kv_heads + head) * size;
        let values = &self.keys[start..start + size];
        Panels { values, panel_stride: head_dim * PANEL, step: PANEL, depth: head_dim, columns: len }
    }

    /// Values of the first `len` positions: a right factor of `len × head_dim`.
    fn values(&self, layer: usize, head: usize, len: usize) -> Panels<'_> {
        let value_dim = self.shape.head_dim.next_multiple_of(PANEL);
        let size = self.capacity * value_dim;
        let start = (layer * self.shape.num_kv_heads + head) * size;
        let values = &self.values[start..start + size];
        Panels { values, panel_stride: PANEL, step: value_dim, depth: len, columns: self.shape.head_dim }
    }
}

/// What one row attends to: positions of a cache that other rows may share, then positions of its own.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The shared cache.
    pub shared: &'a KeyValueCache,
    /// How many of its positions the row sees.
    pub shared_len: usize,
    /// The row's own cache and how many positions the row sees there.
    pub own: Option<(&'a KeyValueCache, usize)>,
}

impl View<'_> {
    fn own_len(&self) -> usize {
        self.own.map_or(0, |(_, len)| len)
    }

    fn len(&self) -> usize {
        self.shared_len + self.own_len()
    }

    /// Rows that one pass over the shared cache serves. Rows with positions of their own see equally much of it.
    fn joins(&self, other: &View) -> bool {
        let same_len = self.shared_len == other.shared_len;
        std::ptr::eq(self.shared, other.shared) && (same_len || self.own.is_none() && other.own.is_none())
    }
}

/// `softmax(q · k / sqrt(head_dim)) · v` for every query head of every row; consecutive query heads share a key head.
/// Rows over the same shared cache should stand together: up to four of them pass over it at once.
///
/// # Shapes
/// - `queries`: row `r` starts at `r * query_stride` with its `num_heads * head_dim` values
/// - `output`: `[views.len(), num_heads * head_dim]`
pub fn attend(
    layer: usize,
    num_heads: usize,
    queries: &[f32],
    query_stride: usize,
    views: &[View],
    output: &mut [f32],
) {
    let Some(first) = views.first() else { return };
    let shape = first.shared.shape;
    let width = num_heads * shape.head_dim;
    assert_eq!(num_heads % shape.num_kv_heads, 0, "query heads divide over key heads");
    assert!(query_stride >= width && queries.len() >= (views.len() - 1) * query_stride + width, "all queries");
    assert_eq!(output.len(), views.len() * width);
    for view in views {
        let caches = std::iter::once((view.shared, view.shared_len)).chain(view.own);
        for (cache, len) in caches {
            assert!(cache.shape == shape && len <= cache.capacity, "{len} of {} positions", cache.capacity);
        }
    }
    let pass = Pass {
        layer,
        shape,
        queries,
        query_stride,
        queries_per_head: num_heads / shape.num_kv_heads,
        target: Target { start: output.as_mut_ptr(), len: output.len(), stride: width },
    };
    let blocks = blocks(views, (BLOCK_QUERIES / pass.queries_per_head).max(1));
    let work = views.iter().map(View::len).sum::<usize>() * width * 2;
    let num_tasks = blocks.len() * shape.num_kv_heads;
    let run = |scratch: &mut Scratch, task: usize| {
        let block = blocks[task / shape.num_kv_heads].clone();
        // SAFETY: tasks differ in rows or in the key head, so they write different heads of `output`.
        unsafe { pass.attend_block(task % shape.num_kv_heads, block.clone(), &views[block], scratch) }
    };
    if work / MIN_TASK_WORK < 2 {
        let mut scratch = Scratch::default();
        (0..num_tasks).for_each(|task| run(&mut scratch, task));
    } else {
        (0..num_tasks).into_par_iter().for_each_init(Scratch::default, run);
    }
}

/// Runs of at most `max_rows` rows that pass over the same shared cache.
fn blocks(views: &[View], max_rows: usize) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    for (row, view) in views.iter().enumerate() {
        match blocks.last_mut() {
            Some(block) if block.len() < max_rows && views[block.start].joins(view) => block.end = row + 1,
            _ => blocks.push(row..row + 1),
        }
    }
    blocks
}

/// Buffers of one task, kept between tasks.
#[derive(Default)]
struct Scratch {
    queries: Vec<f32>,
    scores: Vec<f32>,
    sums: Vec<f32>,
}

/// What all tasks of one call share.
struct Pass<'a> {
    layer: usize,
    shape: CacheShape,
    queries: &'a [f32],
    query_stride: usize,
    queries_per_head: usize,
    target: Target,
}

impl Pass<'_> {
    /// The query heads of one key head for a block of rows.
    ///
    /// # Safety
    /// Nothing else reads or writes these heads of these rows in the output meanwhile.
    unsafe fn attend_block(&self, head: usize, rows: Range<usize>, views: &[View], scratch: &mut Scratch) {
        let head_dim = self.shape.head_dim;
        let num_queries = views.len() * self.queries_per_head;
        let stride = views.iter().map(View::len).max().unwrap_or(0);
        scratch.sums.clear();
        scratch.sums.resize(num_queries * head_dim, 0.0);
        scratch.scores.resize((num_queries * stride).max(scratch.scores.len()), 0.0);
        self.gather_queries(head, rows.clone(), &mut scratch.queries);

        let shared = views[0].shared;
        let shared_len = views.iter().map(|view| view.shared_len).max().unwrap_or(0);
        let every_query = 0..num_queries;
        let keys = shared.keys(self.layer, head, shared_len);
        product(&scratch.queries, head_dim, every_query.clone(), keys, &mut scratch.scores, stride, Store::Replace);
        for (view, queries) in self.own_parts(views) {
            let Some((own, len)) = view.own else { continue };
            let scores = &mut scratch.scores[view.shared_len..];
            let keys = own.keys(self.layer, head, len);
            product(&scratch.queries, head_dim, queries, keys, scores, stride, Store::Replace);
        }

        for (view, queries) in self.own_parts(views) {
            for query in queries {
                let row = &mut scratch.scores[query * stride..][..stride];
                let (seen, unseen) = row.split_at_mut(view.len());
                normalise(seen);
                unseen.fill(0.0);
            }
        }

        let values = shared.values(self.layer, head, shared_len);
        product(&scratch.scores, stride, every_query, values, &mut scratch.sums, head_dim, Store::Replace);
        for (view, queries) in self.own_parts(views) {
            let Some((own, len)) = view.own else { continue };
            let values = own.values(self.layer, head, len);
            product(
                &scratch.scores[view.shared_len..],
                stride,
                queries,
                values,
                &mut scratch.sums,
                head_dim,
                Store::Add,
            );
        }
        for (row, sums) in rows.zip(scratch.sums.chunks_exact(self.queries_per_head * head_dim)) {
            let start = row * self.target.stride + head * sums.len();
            assert!(start + sums.len() <= self.target.len, "the heads lie in the output");
            // SAFETY: bounds by the assert; the caller keeps the heads for this task alone.
            unsafe { std::ptr::copy_nonoverlapping(sums.as_ptr(), self.target.start.add(start), sums.len()) };
        }
    }

    /// Copies the queries of one key head together, `[rows, queries_per_head, head_dim]`, and scales them.
    fn gather_queries(&self, head: usize, rows: Range<usize>, gathered: &mut Vec<f32>) {
        let width = self.queries_per_head * self.shape.head_dim;
        let scale = 1.0 / (self.shape.head_dim as f32).sqrt();
        gathered.clear();
        for row in rows {
            let queries = &self.queries[row * self.query_stride + head * width..][..width];
            gathered.extend(queries.iter().map(|value| value * scale));
        }
    }

    /// Every view of a block with the queries that belong to it.
    fn own_parts<'v>(&self, views: &'v [View<'v>]) -> impl Iterator<Item = (&'v View<'v>, Range<usize>)> {
        let count = self.queries_per_head;
        views.iter().enumerate().map(move |(row, view)| (view, row * count..(row + 1) * count))
    }
}

/// Softmax in place.
fn normalise(scores: &mut [f32]) {
    let (_, sum) = exponentials(scores);
    let scale = 1.0 / sum;
    for score in scores {
        *score *= scale;
    }
}

/// Product of the chosen rows of `left` (`left_stride` apart) with `right` into the same rows of `output`.
fn product(
    left: &[f32],
    left_stride: usize,
    chosen: Range<usize>,
    right: Panels,
    output: &mut [f32],
    output_stride: usize,
    store: Store,
) {
    let rows = Rows { values: &left[chosen.start * left_stride..], stride: left_stride, count: chosen.len() };
    let output = &mut output[chosen.start * output_stride..];
    let target = Target { start: output.as_mut_ptr(), len: output.len(), stride: output_stride };
    // SAFETY: the target is one slice that is borrowed for this call alone.
    unsafe { multiply_panels(rows, right, 0..right.columns.div_ceil(PANEL), target, store) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: CacheShape = CacheShape { num_layers: 2, num_kv_heads: 2, head_dim: 24 };
    const NUM_HEADS: usize = 6;
    const WIDTH: usize = NUM_HEADS * 24;

    fn wave(position: usize, salt: usize) -> Vec<f32> {
        (0..48).map(|i| ((position * 131 + i * 17 + salt * 7919) as f32 * 0.37).sin()).collect()
    }

    /// A cache that holds the positions of `range`.
    fn filled(range: Range<usize>) -> KeyValueCache {
        let mut cache = KeyValueCache::new(SHAPE, range.len());
        for (slot, position) in range.enumerate() {
            for layer in 0..2 {
                cache.write(layer, slot, &wave(position, layer), &wave(position, layer + 2));
            }
        }
        cache
    }

    fn queries(row: usize) -> Vec<f32> {
        (0..3).flat_map(|part| wave(row, 10 + part)).collect()
    }

    /// The formula in float64.
    fn by_the_formula(layer: usize, queries: &[f32], len: usize) -> Vec<f64> {
        let mut output = Vec::new();
        for (head, query) in queries.chunks(24).enumerate() {
            let kv = head / 3 * 24;
            let dot = |key: &[f32]| query.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let weights: Vec<f64> =
                (0..len).map(|p| (dot(&wave(p, layer)[kv..kv + 24]) / 24f64.sqrt()).exp()).collect();
            let total: f64 = weights.iter().sum();
            output
                .extend((0..24).map(|i| {
                    (0..len).map(|p| weights[p] / total * f64::from(wave(p, layer + 2)[kv + i])).sum::<f64>()
                }));
        }
        output
    }

    #[test]
    fn attention_is_the_softmax_formula_for_shared_and_own_positions() {
        let shared = filled(0..37);
        let owns: Vec<KeyValueCache> = (1..20).map(|len| filled(37..37 + len)).collect();
        let views: Vec<View> = owns
            .iter()
            .enumerate()
            .map(|(i, own)| View { shared: &shared, shared_len: 37, own: Some((own, i + 1)) })
            .collect();
        let rows: Vec<f32> = (0..views.len()).flat_map(queries).collect();
        let mut output = vec![0.0; views.len() * WIDTH];
        attend(1, NUM_HEADS, &rows, WIDTH, &views, &mut output);
        for (row, output) in output.chunks(WIDTH).enumerate() {
            for (value, expected) in output.iter().zip(by_the_formula(1, &queries(row), 37 + row + 1)) {
                assert!((f64::from(*value) - expected).abs() < 2e-6, "{value} {expected}");
            }
        }
    }

    #[test]
    fn where_a_sequence_is_split_and_who_stands_beside_it_changes_no_bit() {
        let whole = filled(0..60);
        let rows: Vec<f32> = (0..60).flat_map(queries).collect();
        let mut causal = vec![0.0; 60 * WIDTH];
        let views: Vec<View> = (0..60).map(|row| View { shared: &whole, shared_len: row + 1, own: None }).collect();
        attend(0, NUM_HEADS, &rows, WIDTH, &views, &mut causal);
        for row in [0, 1, 15, 16, 17, 40, 59] {
            for split in [0, 1, row / 2, row] {
                let (shared, own) = (filled(0..split), filled(split..row + 1));
                let view = View { shared: &shared, shared_len: split, own: Some((&own, row + 1 - split)) };
                let mut alone = vec![0.0; WIDTH];
                attend(0, NUM_HEADS, &queries(row), WIDTH, &[view], &mut alone);
                assert!(alone == causal[row * WIDTH..][..WIDTH], "row {row} split at {split}");
            }
        }
    }
}
