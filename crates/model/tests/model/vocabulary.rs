//! More tokens for a model: new rows are means of their pieces, every old logit stays as it was.

use burn::tensor::Device;
use worldloom_model::{Decoder, Error, NewToken, Start};

use crate::support::{bits, small_config};

#[test]
fn new_rows_are_means_and_everything_else_stays() {
    for tied in [true, false] {
        let (config, device) = (small_config(tied), Device::flex());
        let decoder = Decoder::init_from(&config, 3, Start::Random, &device).unwrap();
        let (old, width) = (config.vocab_size, config.hidden_size);
        let tokens = [NewToken { id: old as u32 + 1, pieces: vec![2, 5] }, NewToken { id: 7, pieces: vec![4] }];
        let (larger, grown) = decoder.extend_vocabulary(&config, &tokens, &device).unwrap();
        assert_eq!(grown.vocab_size, old + 2);
        let numbers = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect::<Vec<f32>>();
        for ((name, before), (same, after)) in bits(&decoder).into_iter().zip(bits(&larger)) {
            assert_eq!(name, same);
            let is_table = name == "model.embed_tokens.weight" || name == "lm_head.weight";
            let (before, after) = (numbers(before), numbers(after));
            if !is_table {
                assert_eq!(before, after, "{name}");
                continue;
            }
            let row = |table: &[f32], id: usize| table[id * width..(id + 1) * width].to_vec();
            assert_eq!(after.len(), (old + 2) * width);
            for id in (0..old).filter(|&id| id != 7) {
                assert_eq!(row(&before, id), row(&after, id), "{name} {id}");
            }
            assert_eq!(row(&after, 7), row(&before, 4), "a spare row is filled too");
            assert_eq!(row(&after, old), vec![0.0; width], "an id that nobody has");
            let mean =
                row(&before, 2).into_iter().zip(row(&before, 5)).map(|(a, b)| (f64::from(a) + f64::from(b)) / 2.0);
            assert_eq!(row(&after, old + 1), mean.map(|value| value as f32).collect::<Vec<_>>(), "{name}");
        }
        let unknown = NewToken { id: 9, pieces: vec![old as u32] };
        let refused = decoder.extend_vocabulary(&config, &[unknown], &device);
        assert!(matches!(refused, Err(Error::NewToken { id: 9, .. })));
    }
}
