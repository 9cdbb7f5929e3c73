//! The stage loops cpt, sft and rl on token ids.
