//! Seeds split by name and step, so that no draw depends on how many came before it.

/// What a seed is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Order of rows or prompts.
    Data,
    /// Rows held out for validation.
    HeldOut,
    /// Initial weights.
    Init,
    /// Sampling of completions.
    Sampling,
    /// Random masks.
    Mask,
    /// Order inside one part of a mixture.
    Part,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Purpose::Data => "data",
            Purpose::HeldOut => "held-out",
            Purpose::Init => "init",
            Purpose::Sampling => "sampling",
            Purpose::Mask => "mask",
            Purpose::Part => "part",
        }
    }
}

/// The seed for one purpose at one step, a pure function of its three arguments.
pub fn split_seed(seed: u64, purpose: Purpose, step: u64) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(&step.to_le_bytes());
    hasher.update(purpose.name().as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_and_steps_have_seeds_of_their_own() {
        let seeds = [
            split_seed(7, Purpose::Data, 0),
            split_seed(7, Purpose::Data, 1),
            split_seed(7, Purpose::Sampling, 0),
            split_seed(8, Purpose::Data, 0),
        ];
        for (index, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..index].contains(seed), "seed {index} repeats an earlier one");
        }
        assert_eq!(seeds[0], split_seed(7, Purpose::Data, 0));
    }
}
