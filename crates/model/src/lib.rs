//! The decoder: families, weights in and out, cache, generation on token ids.
