//! More tokens for a model: rows of the embedding, and of a head of its own, made of those of the tokens' old spelling.

use std::collections::BTreeMap;
use std::convert::Infallible;

use burn::tensor::Device;

use crate::parts::Source;
use crate::{Decoder, Error, ModelConfig};

/// A token that the model does not know yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Its id.
    pub id: u32,
    /// The tokens that spelled it until now.
    pub pieces: Vec<u32>,
}

impl Decoder {
    /// The same model with rows for `tokens`: each row the mean of those of its pieces, in the embedding and in the head.
    /// The tables grow to the largest id where they do not have it yet; every other number stays as it is.
    ///
    /// # Errors
    /// A token without pieces, or with a piece that the model does not have; parameters of another type than they should be.
    pub fn extend_vocabulary(
        &self,
        config: &ModelConfig,
        tokens: &[NewToken],
        device: &Device,
    ) -> Result<(Decoder, ModelConfig), Error> {
        for token in tokens {
            let known = token.pieces.iter().all(|&piece| (piece as usize) < config.vocab_size);
            if !known || token.pieces.is_empty() {
                let (id, pieces, vocab_size) = (token.id, token.pieces.clone(), config.vocab_size);
                return Err(Error::NewToken { id, pieces, vocab_size });
            }
        }
        self.check_dtypes()?;
        let needed = tokens.iter().map(|token| token.id as usize + 1).max().unwrap_or(0);
        let larger = ModelConfig { vocab_size: config.vocab_size.max(needed), ..config.clone() };
        let mut values: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        self.for_each_parameter(&mut |name, _, numbers| {
            values.insert(name.to_owned(), numbers.to_vec());
        });
        for name in ["model.embed_tokens.weight", "lm_head.weight"] {
            if let Some(table) = values.get_mut(name) {
                extend(table, config.hidden_size, larger.vocab_size, tokens);
            }
        }
        let values = &mut |name: &str, _: &[usize]| {
            let values = values.remove(name).expect("every parameter of the larger decoder is one of the smaller's");
            Ok::<_, Infallible>(values)
        };
        match Decoder::from_values(&larger, Source { values, device, precision: self.precision() }) {
            Ok(decoder) => Ok((decoder, larger)),
            Err(never) => match never {},
        }
    }
}

/// Rows up to `rows`, and the mean of its pieces' rows for each new token. Pieces are read before anything is written.
fn extend(table: &mut Vec<f32>, width: usize, rows: usize, tokens: &[NewToken]) {
    let row = |table: &[f32], id: u32| table[id as usize * width..(id as usize + 1) * width].to_vec();
    let mean = |token: &NewToken| {
        let mut sum = vec![0f64; width];
        for &piece in &token.pieces {
            row(table, piece).iter().zip(&mut sum).for_each(|(value, sum)| *sum += f64::from(*value));
        }
        sum.into_iter().map(|sum| (sum / token.pieces.len() as f64) as f32).collect::<Vec<f32>>()
    };
    let means: Vec<(usize, Vec<f32>)> = tokens.iter().map(|token| (token.id as usize, mean(token))).collect();
    table.resize(rows * width, 0.0);
    for (id, mean) in means {
        table[id * width..(id + 1) * width].copy_from_slice(&mean);
    }
}
