//! Trajectories to tokens: templates, chat formats, tokenizer, loss weights, packing.
