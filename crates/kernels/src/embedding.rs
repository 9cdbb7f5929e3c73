//! Rows of the embedding table, and their gradient.

use crate::buffer::filled;
use crate::precision::Number;
use rayon::prelude::*;

/// Rows of the table that one task of the backward pass owns.
const VOCABULARY_PER_BLOCK: usize = 256;
const TOKENS_PER_BLOCK: usize = 64;

/// The row of `weight` (`[vocabulary, width]`) of each token.
pub fn embedding<N: Number>(weight: &[N], tokens: &[u32], width: usize) -> Vec<f32> {
    let vocabulary = weight.len() / width;
    assert_eq!(weight.len(), vocabulary * width, "embedding: rows of {width}");
    filled(tokens.len() * width, |y| {
        y.par_chunks_mut(TOKENS_PER_BLOCK * width).zip(tokens.par_chunks(TOKENS_PER_BLOCK)).for_each(|(y, tokens)| {
            for (y, &token) in y.chunks_exact_mut(width).zip(tokens) {
                assert!((token as usize) < vocabulary, "embedding: token {token} of a vocabulary of {vocabulary}");
                let row = &weight[token as usize * width..][..width];
                y.iter_mut().zip(row).for_each(|(value, held)| *value = held.widen());
            }
        });
    })
}

/// Gradient of [`embedding`] to the table: each row adds the gradients of its tokens in the order of the tokens.
pub fn embedding_backward(tokens: &[u32], dy: &[f32], vocabulary: usize, width: usize) -> Vec<f32> {
    assert_eq!(dy.len(), tokens.len() * width, "embedding_backward: one row of {width} per token");
    let mut dw = vec![0f32; vocabulary * width];
    dw.par_chunks_mut(VOCABULARY_PER_BLOCK * width).enumerate().for_each(|(block, dw)| {
        let first = block * VOCABULARY_PER_BLOCK;
        let owned = first..first + dw.len() / width;
        for (&token, dy) in tokens.iter().zip(dy.chunks_exact(width)) {
            if owned.contains(&(token as usize)) {
                let row = &mut dw[(token as usize - first) * width..][..width];
                for (sum, value) in row.iter_mut().zip(dy) {
                    *sum += value;
                }
            }
        }
    });
    dw
}
