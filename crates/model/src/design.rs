//! What a family computes beside the sizes: which parts a block has, and what is added to them.

use crate::Error;
use crate::config::invalid;

/// The parts of every block, and how they are computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// Whether queries, keys and values have a bias.
    pub has_qkv_bias: bool,
    /// Whether every query and key head is normed before it turns.
    pub has_head_norms: bool,
    /// Whether a gate multiplies the output of every attention head.
    pub has_output_gate: bool,
    /// Whether norms store their scale less 1.
    pub has_zero_centred_norms: bool,
    /// The blocks in order.
    pub layers: Vec<LayerDesign>,
    /// The gated delta-net, where blocks have one.
    pub delta_net: Option<DeltaNetShape>,
    /// The experts, where blocks have them.
    pub experts: Option<ExpertShape>,
}

/// The two parts of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerDesign {
    /// How tokens see each other.
    pub mixer: Mixer,
    /// What every token passes alone.
    pub feed_forward: FeedForwardKind,
}

/// How the tokens of a document see each other in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixer {
    /// Softmax attention over a cache that grows.
    Attention,
    /// A state of fixed size, updated by the gated delta rule.
    DeltaNet,
}

/// What a token passes alone in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForwardKind {
    /// One gated feed-forward part.
    Dense,
    /// A few of many, chosen by a router.
    Experts,
}

/// Sizes of the gated delta-net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaNetShape {
    /// Heads of queries and keys.
    pub num_key_heads: usize,
    /// Heads of values and states; a multiple of the key heads.
    pub num_value_heads: usize,
    /// Width of a query or key head.
    pub key_head_dim: usize,
    /// Width of a value head.
    pub value_head_dim: usize,
    /// Tokens that the causal convolution sees.
    pub conv_kernel_dim: usize,
    /// Whether the input projections are interleaved per key head in two matrices (Qwen3-Next), not four apart.
    pub has_interleaved_projections: bool,
}

impl DeltaNetShape {
    /// Width of all query (or key) heads together.
    pub fn key_width(&self) -> usize {
        self.num_key_heads * self.key_head_dim
    }

    /// Width of all value heads together.
    pub fn value_width(&self) -> usize {
        self.num_value_heads * self.value_head_dim
    }

    /// Channels of the convolution: queries, keys and values.
    pub fn conv_width(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }
}

/// Sizes of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertShape {
    /// Experts of a block.
    pub num_experts: usize,
    /// Experts that a token passes.
    pub num_experts_per_tok: usize,
    /// Width inside an expert.
    pub moe_intermediate_size: usize,
    /// Width inside the expert that every token passes, if there is one.
    pub shared_expert_intermediate_size: Option<usize>,
    /// Whether the chosen experts' weights are divided by their sum.
    pub norm_topk_prob: bool,
}

impl Design {
    /// Plain pre-norm blocks of attention and one feed-forward part.
    pub(crate) fn plain(num_layers: usize) -> Design {
        let layer = LayerDesign { mixer: Mixer::Attention, feed_forward: FeedForwardKind::Dense };
        Design {
            has_qkv_bias: false,
            has_head_norms: false,
            has_output_gate: false,
            has_zero_centred_norms: false,
            layers: vec![layer; num_layers],
            delta_net: None,
            experts: None,
        }
    }

    pub(crate) fn has_dense_layer(&self) -> bool {
        self.layers.iter().any(|layer| layer.feed_forward == FeedForwardKind::Dense)
    }

    /// What must be positive, by key.
    pub(crate) fn sizes(&self) -> Vec<(&'static str, usize)> {
        let mut sizes = Vec::new();
        if let Some(shape) = &self.delta_net {
            sizes.extend([
                ("linear_num_key_heads", shape.num_key_heads),
                ("linear_num_value_heads", shape.num_value_heads),
                ("linear_key_head_dim", shape.key_head_dim),
                ("linear_value_head_dim", shape.value_head_dim),
                ("linear_conv_kernel_dim", shape.conv_kernel_dim),
            ]);
        }
        if let Some(shape) = &self.experts {
            sizes.extend([
                ("num_experts", shape.num_experts),
                ("num_experts_per_tok", shape.num_experts_per_tok),
                ("moe_intermediate_size", shape.moe_intermediate_size),
            ]);
            sizes.extend(shape.shared_expert_intermediate_size.map(|size| ("shared_expert_intermediate_size", size)));
        }
        sizes
    }

    /// Refuses what does not divide. [`Design::sizes`] are positive.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(shape) = &self.delta_net
            && !shape.num_value_heads.is_multiple_of(shape.num_key_heads)
        {
            let expected = format!("a multiple of linear_num_key_heads ({})", shape.num_key_heads);
            return Err(invalid("linear_num_value_heads", shape.num_value_heads, &expected));
        }
        if let Some(shape) = &self.experts
            && shape.num_experts_per_tok > shape.num_experts
        {
            let expected = format!("at most num_experts ({})", shape.num_experts);
            return Err(invalid("num_experts_per_tok", shape.num_experts_per_tok, &expected));
        }
        Ok(())
    }
}
