//! The decoder: embedding, pre-norm blocks, final norm and output projection.
//!
//! A block is `x + mixer(norm(x))`, then `x + feed_forward(norm(x))`; the parts stand in `parts/`, each named after what it
//! computes, and `families/` says which of them a published model has. Field names are the published key names, so a
//! parameter's path is its key. The seams are [`Decoder::embed`], [`Decoder::block`] and [`Decoder::norm_and_head`];
//! everything else is made of them.

use crate::counted::Counted;
use crate::lora::{Adapters, Lora};
use crate::ops::{self, RotaryTables, RowLoss, RowTargets};
use crate::parts::{Attention, GatedDeltaNet, Linear, Mlp, Moe, Norm, Routing, Source, rope};
use crate::{Error, FeedForwardKind, Layout, Mixer, ModelConfig};
use burn::module::Module;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use worldloom_kernels::cross_entropy::RowStatistics;
use worldloom_kernels::matmul::MatmulPrecision;

/// A decoder: tokens in, logits of each next token out.
#[derive(Module, Debug)]
pub struct Decoder {
    /// Everything below the output projection.
    pub model: Backbone,
    /// The output projection, `[vocabulary, hidden]`; none where the embedding table serves.
    pub lm_head: Option<Linear>,
    rope_frequencies: Vec<f32>,
    #[module(skip)]
    pub(crate) lora: Option<Lora>,
}

/// Embedding, blocks and final norm.
#[derive(Module, Debug)]
pub struct Backbone {
    /// The embedding table.
    pub embed_tokens: Linear,
    /// The blocks in order.
    pub layers: Vec<Block>,
    /// The final norm.
    pub norm: Norm,
}

/// A mixer of tokens and a feed-forward part, each behind its norm and added to the stream.
#[derive(Module, Debug)]
pub struct Block {
    /// Norm before the mixer.
    pub input_layernorm: Norm,
    /// The mixer, where it is attention.
    pub self_attn: Option<Attention>,
    /// The mixer, where it is a gated delta-net.
    pub linear_attn: Option<GatedDeltaNet>,
    /// Norm before the feed-forward part.
    pub post_attention_layernorm: Norm,
    /// The feed-forward part.
    pub mlp: FeedForward,
}

/// What every token passes alone.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "one per block; the tensors behind it are what counts")]
pub enum FeedForward {
    /// The same for all.
    Dense(Mlp),
    /// A few of many, chosen by a router.
    Experts(Moe),
}

impl Block {
    fn new<E>(source: &mut Source<'_, E>, path: &str, config: &ModelConfig, layer: usize) -> Result<Block, E> {
        let (design, hidden) = (&config.design, config.hidden_size);
        let kind = design.layers[layer];
        let input_layernorm = config.norm(source, &format!("{path}.input_layernorm"), hidden)?;
        let (self_attn, linear_attn) = match (kind.mixer, &design.delta_net) {
            (Mixer::DeltaNet, Some(shape)) => {
                (None, Some(GatedDeltaNet::new(source, &format!("{path}.linear_attn"), config, shape)?))
            }
            _ => (Some(Attention::new(source, &format!("{path}.self_attn"), config)?), None),
        };
        let post_attention_layernorm = config.norm(source, &format!("{path}.post_attention_layernorm"), hidden)?;
        let path = format!("{path}.mlp");
        let mlp = match (kind.feed_forward, &design.experts) {
            (FeedForwardKind::Experts, Some(shape)) => FeedForward::Experts(Moe::new(source, &path, config, shape)?),
            _ => FeedForward::Dense(Mlp::new(source, &path, hidden, config.intermediate_size)?),
        };
        Ok(Block { input_layernorm, self_attn, linear_attn, post_attention_layernorm, mlp })
    }

    fn adapt(&mut self, path: &str, adapters: &mut Adapters<'_, '_>) -> Result<(), Error> {
        if let Some(attention) = &mut self.self_attn {
            Linear::adapt(attention.projections(), &format!("{path}.self_attn"), adapters)?;
        }
        if let Some(delta_net) = &mut self.linear_attn {
            Linear::adapt(delta_net.projections(), &format!("{path}.linear_attn"), adapters)?;
        }
        let path = format!("{path}.mlp");
        match &mut self.mlp {
            FeedForward::Dense(mlp) => Linear::adapt(mlp.projections(), &path, adapters),
            FeedForward::Experts(moe) => moe.adapt(&path, adapters),
        }
    }

    fn multiply_in(&mut self, precision: MatmulPrecision) {
        let attention = self.self_attn.iter_mut().flat_map(Attention::projections);
        let delta_net = self.linear_attn.iter_mut().flat_map(GatedDeltaNet::projections);
        let mlp = match &mut self.mlp {
            FeedForward::Dense(mlp) => Some(mlp),
            FeedForward::Experts(moe) => {
                moe.matmul = precision;
                moe.shared_expert.as_mut()
            }
        };
        for (name, projection) in attention.chain(delta_net).chain(mlp.into_iter().flat_map(Mlp::projections)) {
            if !["in_proj_ba", "in_proj_b", "in_proj_a"].contains(&name) {
                projection.matmul = precision;
            }
        }
    }

    /// `[batch, seq, hidden]` to the same; `watch` sees what a router says.
    fn forward(
        &self,
        stream: Tensor<3>,
        rotary: &RotaryTables,
        layout: &Layout,
        watch: &mut dyn FnMut(&Routing),
    ) -> Tensor<3> {
        self.feed(self.mix(stream, rotary, layout), watch)
    }

    /// As [`Block::forward`], of the positions that count, `[1, rows, hidden]`. Experts see all: their routers' loss is
    /// made of every position.
    fn forward_counted(
        &self,
        stream: Tensor<3>,
        rotary: &RotaryTables,
        layout: &Layout,
        counted: &Counted,
        watch: &mut dyn FnMut(&Routing),
    ) -> Tensor<3> {
        match (&self.self_attn, counted.narrowed_layout(), &self.mlp) {
            (Some(attention), Some(narrowed), FeedForward::Dense(_)) => {
                let heads = attention.heads(self.input_layernorm.forward(stream.clone()), rotary, narrowed);
                self.feed(counted.rows(stream) + attention.o_proj.forward(counted.rows(heads)), watch)
            }
            _ => counted.rows(self.forward(stream, rotary, layout, watch)),
        }
    }

    /// The feed-forward part, each position alone.
    fn feed(&self, stream: Tensor<3>, watch: &mut dyn FnMut(&Routing)) -> Tensor<3> {
        let normed = self.post_attention_layernorm.forward(stream.clone());
        stream
            + match &self.mlp {
                FeedForward::Dense(mlp) => mlp.forward(normed),
                FeedForward::Experts(moe) => moe.forward(normed, watch),
            }
    }

    fn mix(&self, stream: Tensor<3>, rotary: &RotaryTables, layout: &Layout) -> Tensor<3> {
        let normed = self.input_layernorm.forward(stream.clone());
        let mixed = match (&self.self_attn, &self.linear_attn) {
            (Some(attention), _) => attention.forward(normed, rotary, layout),
            (None, Some(delta_net)) => delta_net.forward(normed, layout),
            (None, None) => unreachable!("a block has a mixer"),
        };
        stream + mixed
    }
}

impl Decoder {
    /// A decoder whose parameters come from `source`, asked by published name and shape in a fixed order.
    pub(crate) fn from_values<E>(config: &ModelConfig, mut source: Source<'_, E>) -> Result<Decoder, E> {
        let (hidden, vocabulary) = (config.hidden_size, config.vocab_size);
        let embed_tokens = Linear::new(&mut source, "model.embed_tokens", vocabulary, hidden, false)?;
        let mut layers = Vec::with_capacity(config.num_hidden_layers);
        for layer in 0..config.num_hidden_layers {
            layers.push(Block::new(&mut source, &format!("model.layers.{layer}"), config, layer)?);
        }
        let norm = config.norm(&mut source, "model.norm", hidden)?;
        let lm_head = match config.tie_word_embeddings {
            true => None,
            false => Some(Linear::new(&mut source, "lm_head", vocabulary, hidden, false)?),
        };
        let model = Backbone { embed_tokens, layers, norm };
        Ok(Decoder { model, lm_head, rope_frequencies: rope::frequencies(config), lora: None })
    }

    /// Shows every projection that can have an adapter.
    pub(crate) fn adapt(&mut self, adapters: &mut Adapters<'_, '_>) -> Result<(), Error> {
        let layers = self.model.layers.iter_mut().enumerate();
        layers.into_iter().try_for_each(|(index, block)| block.adapt(&format!("model.layers.{index}"), adapters))
    }

    /// The same decoder with its products computed in `precision`, forward and backward, those of the output projection too.
    ///
    /// In single precision stay those inside attention and delta-nets, of routers and adapters, and those that decays and
    /// the steps of delta-nets are made of. Generation has kernels of its own and always computes in single precision.
    #[must_use]
    pub fn multiplied_in(mut self, precision: MatmulPrecision) -> Decoder {
        self.model.layers.iter_mut().for_each(|block| block.multiply_in(precision));
        self.lm_head.as_mut().unwrap_or(&mut self.model.embed_tokens).matmul = precision;
        self
    }

    /// Rows of the embedding table: `[batch, seq]` to `[batch, seq, hidden]`.
    pub fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        ops::embedding(self.model.embed_tokens.weight.val(), tokens)
    }

    /// The rotary tables of a layout, for [`Decoder::block`].
    pub fn rotary(&self, layout: &Layout) -> RotaryTables {
        rope::tables(&self.rope_frequencies, layout)
    }

    /// One block over `[batch, seq, hidden]`.
    pub fn block(&self, index: usize, stream: Tensor<3>, rotary: &RotaryTables, layout: &Layout) -> Tensor<3> {
        self.watched_block(index, stream, rotary, layout, &mut |_| ())
    }

    /// As [`Decoder::block`]; `watch` sees what the block's router says, if it has one.
    pub(crate) fn watched_block(
        &self,
        index: usize,
        stream: Tensor<3>,
        rotary: &RotaryTables,
        layout: &Layout,
        watch: &mut dyn FnMut(&Routing),
    ) -> Tensor<3> {
        self.model.layers[index].forward(stream, rotary, layout, watch)
    }

    /// As [`Decoder::watched_block`]; the last block gives the positions that count, `[1, rows, hidden]`.
    pub(crate) fn counted_block(
        &self,
        index: usize,
        stream: Tensor<3>,
        rotary: &RotaryTables,
        layout: &Layout,
        counted: &Counted,
        watch: &mut dyn FnMut(&Routing),
    ) -> Tensor<3> {
        match index + 1 == self.model.layers.len() {
            true => self.model.layers[index].forward_counted(stream, rotary, layout, counted, watch),
            false => self.watched_block(index, stream, rotary, layout, watch),
        }
    }

    /// What the router of a block says of its input, `[batch, seq, hidden]`; none where the block has no experts.
    pub fn routing(&self, index: usize, stream: Tensor<3>, rotary: &RotaryTables, layout: &Layout) -> Option<Routing> {
        let block = &self.model.layers[index];
        let FeedForward::Experts(moe) = &block.mlp else { return None };
        let stream = block.mix(stream, rotary, layout);
        Some(moe.route(block.post_attention_layernorm.forward(stream)))
    }

    /// The final norm and the output projection: `[batch, seq, hidden]` to `[batch, seq, vocabulary]`.
    pub fn norm_and_head(&self, stream: Tensor<3>) -> Tensor<3> {
        let head = self.head();
        ops::linear(self.model.norm.forward(stream), head.weight.val(), head.matmul)
    }

    /// Hidden states after the final norm, `[batch, seq, hidden]`.
    pub fn hidden(&self, tokens: Tensor<2, Int>, layout: &Layout) -> Tensor<3> {
        self.model.norm.forward(self.stream(tokens, layout))
    }

    /// Logits of the token that follows each position, `[batch, seq, vocabulary]`.
    pub fn logits(&self, tokens: Tensor<2, Int>, layout: &Layout) -> Tensor<3> {
        self.norm_and_head(self.stream(tokens, layout))
    }

    /// `Σ_t weights[t] · nll_t`, unnormalised, `[1]`: the one law that every stage's loss is made of.
    ///
    /// `targets[t]` is the token predicted **at** position `t`, already shifted by the caller, and `weights[t]` its
    /// weight, row after row; rows of weight 0 are not computed. CPT and SFT pass loss weights over the step's sum, RL
    /// passes `−∂loss/∂log-prob`, which may be negative. The logits are divided by `temperature` first.
    pub fn weighted_nll(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        targets: &[u32],
        weights: &[f32],
        temperature: f32,
    ) -> Tensor<1> {
        self.check_targets(&tokens, targets, weights, temperature);
        let counted = Counted::weighed(weights, layout);
        let stream = self.counted_stream(tokens, layout, &counted, &mut |_| ());
        self.stream_losses(stream, &counted.pick(targets), &counted.pick(weights), temperature).total
    }

    pub(crate) fn check_targets(&self, tokens: &Tensor<2, Int>, targets: &[u32], weights: &[f32], temperature: f32) {
        let [batch, seq] = tokens.dims();
        assert_eq!(targets.len(), batch * seq, "one target per token");
        assert_eq!(weights.len(), batch * seq, "one weight per token");
        assert!(temperature > 0.0, "a loss needs a temperature above 0");
    }

    /// The losses from what leaves the last block, `[1, rows, hidden]`.
    pub(crate) fn stream_losses(
        &self,
        stream: Tensor<3>,
        targets: &[u32],
        weights: &[f32],
        temperature: f32,
    ) -> RowLoss {
        let targets = row_targets(targets, weights, temperature, &stream.device());
        let head = self.head();
        ops::linear_cross_entropy(self.normed_rows(stream), head.weight.val(), targets, head.matmul)
    }

    fn normed_rows(&self, stream: Tensor<3>) -> Tensor<2> {
        let [batch, seq, width] = stream.dims();
        self.model.norm.forward(stream).reshape([batch * seq, width])
    }

    /// Loss and more of each target where `selected`, zeros elsewhere, without a graph; see [`RowStatistics`].
    ///
    /// `targets` as in [`Decoder::weighted_nll`].
    pub fn token_statistics(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        targets: &[u32],
        selected: &[bool],
    ) -> Vec<RowStatistics> {
        let (decoder, counted, weights, stream) = self.selected_stream(tokens, layout, targets, selected);
        let targets = row_targets(&counted.pick(targets), &weights, 1.0, &stream.device());
        let head = decoder.head();
        let found = ops::row_statistics(decoder.normed_rows(stream), head.weight.val(), targets, head.matmul);
        let numbers: Vec<f32> = found.into_data().iter::<f32>().collect();
        let of = |row: &[f32]| RowStatistics { nll: row[0], entropy: row[1], is_top: row[2] != 0.0 };
        counted.spread(numbers.chunks_exact(3).map(of))
    }

    /// Log-probability of each target where `selected`, 0 elsewhere, without a graph.
    ///
    /// `targets` as in [`Decoder::weighted_nll`]; the logits are divided by `temperature` first.
    pub fn token_log_probs(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        targets: &[u32],
        selected: &[bool],
        temperature: f32,
    ) -> Vec<f32> {
        let (decoder, counted, weights, stream) = self.selected_stream(tokens, layout, targets, selected);
        counted.spread(decoder.stream_losses(stream, &counted.pick(targets), &weights, temperature).log_probs())
    }

    /// What leaves the last block where `selected`, without a graph, with the decoder that has none and weights of 1.
    fn selected_stream(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        targets: &[u32],
        selected: &[bool],
    ) -> (Decoder, Counted, Vec<f32>, Tensor<3>) {
        let weights: Vec<f32> = selected.iter().map(|&selected| f32::from(u8::from(selected))).collect();
        self.check_targets(&tokens, targets, &weights, 1.0);
        let counted = Counted::new(selected.iter().copied(), layout);
        let decoder = self.valid();
        let stream = decoder.counted_stream(tokens.inner(), layout, &counted, &mut |_| ());
        let weights = counted.pick(&weights);
        (decoder, counted, weights, stream)
    }

    fn stream(&self, tokens: Tensor<2, Int>, layout: &Layout) -> Tensor<3> {
        self.watched_stream(tokens, layout, &mut |_| ())
    }

    /// What leaves the last block, `[batch, seq, hidden]`; `watch` sees what the routers say, block after block.
    pub(crate) fn watched_stream(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        watch: &mut dyn FnMut(&Routing),
    ) -> Tensor<3> {
        assert_eq!(tokens.dims(), layout.dims(), "tokens and layout differ in shape");
        let rotary = self.rotary(layout);
        let embedded = self.embed(tokens);
        let blocks = 0..self.model.layers.len();
        blocks.fold(embedded, |stream, index| self.watched_block(index, stream, &rotary, layout, watch))
    }

    /// What leaves the last block at the positions that count, `[1, rows, hidden]`.
    pub(crate) fn counted_stream(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        counted: &Counted,
        watch: &mut dyn FnMut(&Routing),
    ) -> Tensor<3> {
        assert_eq!(tokens.dims(), layout.dims(), "tokens and layout differ in shape");
        let (rotary, blocks) = (self.rotary(layout), 0..self.model.layers.len());
        let block = |stream, index| self.counted_block(index, stream, &rotary, layout, counted, watch);
        blocks.fold(self.embed(tokens), block)
    }

    /// The output projection.
    fn head(&self) -> &Linear {
        self.lm_head.as_ref().unwrap_or(&self.model.embed_tokens)
    }
}

fn row_targets(targets: &[u32], weights: &[f32], temperature: f32, device: &Device) -> RowTargets {
    let rows = targets.len();
    RowTargets {
        tokens: Tensor::from_data(TensorData::new(crate::layout::integers(targets), [rows]), (device, DType::I32)),
        weights: Tensor::from_data(TensorData::new(weights.to_vec(), [rows]), (device, DType::F32)),
        temperature,
    }
}
