//! Which part of which tensor a parameter is.
//!
//! Paths of parameters are published names, so most parameters are one tensor of their own name. Two things are
//! published in more than one way: the text part of a vision-language checkpoint lies below `model.language_model`, and
//! a layer's experts are two tensors for all (`gate_up_proj`, gate first, and `down_proj`) or three for each.

use crate::ParameterShape;
use std::collections::BTreeMap;
use std::ops::Range;

const BACKBONE: &str = "model.";
const TEXT_BACKBONE: &str = "model.language_model.";
const EXPERTS: &str = ".mlp.experts.";

/// How a checkpoint spells what can be spelled in more than one way.
pub(crate) struct Spelling<'a> {
    /// Whether the backbone lies below `model.language_model`.
    pub(crate) is_text_part: bool,
    /// Whether a layer's experts lie in two tensors, by the layer's path and a dot.
    pub(crate) is_fused: &'a dyn Fn(&str) -> bool,
}

/// Part of a parameter, in its order: a range of a tensor's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) tensor: String,
    pub(crate) range: Range<usize>,
}

/// The tensors of a checkpoint, and the pieces of each parameter.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Names and shapes, in the order of the parameters.
    pub(crate) tensors: Vec<(String, Vec<usize>)>,
    pieces: BTreeMap<String, Vec<Piece>>,
}

impl Spelling<'_> {
    /// Reads the spelling off the names of a checkpoint.
    pub(crate) fn found_in<T>(tensors: &BTreeMap<String, T>, then: impl FnOnce(&Spelling<'_>) -> Plan) -> Plan {
        let is_text_part = tensors.keys().any(|name| name.starts_with(TEXT_BACKBONE));
        let is_fused = |layer: &str| {
            let published = published_name(&format!("{layer}mlp.experts.gate_up_proj"), is_text_part);
            tensors.contains_key(&published)
        };
        then(&Spelling { is_text_part, is_fused: &is_fused })
    }
}

impl Plan {
    pub(crate) fn new(parameters: &[ParameterShape], spelling: &Spelling<'_>) -> Plan {
        let num_experts = parameters.iter().filter_map(|parameter| Expert::of(&parameter.name)?.index).max();
        let num_experts = num_experts.map_or(0, |last| last + 1);
        let mut plan = Plan::default();
        let mut known = BTreeMap::new();
        for parameter in parameters {
            let mut pieces = Vec::new();
            for (tensor, shape, range) in parts(parameter, num_experts, spelling) {
                let tensor = published_name(&tensor, spelling.is_text_part);
                if known.insert(tensor.clone(), ()).is_none() {
                    plan.tensors.push((tensor.clone(), shape));
                }
                pieces.push(Piece { tensor, range });
            }
            plan.pieces.insert(parameter.name.clone(), pieces);
        }
        plan
    }

    /// The pieces of a parameter, one after the other.
    pub(crate) fn pieces(&self, parameter: &str) -> &[Piece] {
        self.pieces.get(parameter).unwrap_or_else(|| panic!("no plan for parameter `{parameter}`"))
    }
}

fn published_name(name: &str, is_text_part: bool) -> String {
    match name.strip_prefix(BACKBONE) {
        Some(rest) if is_text_part => format!("{TEXT_BACKBONE}{rest}"),
        _ => name.to_owned(),
    }
}

/// A parameter of the experts: `model.layers.3.mlp.experts.7.up_proj.weight`, or `model.layers.3.mlp.experts.down_proj`.
struct Expert<'a> {
    /// `model.layers.3.`
    layer: &'a str,
    /// `7`; none where one parameter holds all experts.
    index: Option<usize>,
    /// `up_proj`
    projection: &'a str,
}

impl Expert<'_> {
    fn of(parameter: &str) -> Option<Expert<'_>> {
        let (layer, rest) = parameter.split_once(EXPERTS)?;
        let layer = &parameter[..layer.len() + 1];
        match rest.split_once('.') {
            None => Some(Expert { layer, index: None, projection: rest }),
            Some((index, projection)) => Some(Expert {
                layer,
                index: Some(index.parse().ok()?),
                projection: projection.strip_suffix(".weight")?,
            }),
        }
    }

    fn tensor(&self, index: usize, projection: &str) -> String {
        format!("{}mlp.experts.{index}.{projection}.weight", self.layer)
    }

    fn fused(&self, projection: &str) -> String {
        format!("{}mlp.experts.{projection}", self.layer)
    }
}

type Part = (String, Vec<usize>, Range<usize>);

/// The parts of a parameter before the backbone's name is looked at.
fn parts(parameter: &ParameterShape, num_experts: usize, spelling: &Spelling<'_>) -> Vec<Part> {
    let shape = &parameter.shape;
    let whole = |tensor: String, shape: &[usize]| (tensor, shape.to_vec(), 0..shape.iter().product());
    let Some(expert) = Expert::of(&parameter.name) else { return vec![whole(parameter.name.clone(), shape)] };
    match (expert.index, (spelling.is_fused)(expert.layer)) {
        (None, true) | (Some(_), false) => vec![whole(parameter.name.clone(), shape)],
        (None, false) => match (expert.projection, shape.as_slice()) {
            ("gate_up_proj", &[experts, rows, width]) => (0..experts)
                .flat_map(|index| ["gate_proj", "up_proj"].map(|projection| expert.tensor(index, projection)))
                .map(|tensor| whole(tensor, &[rows / 2, width]))
                .collect(),
            (projection, &[experts, rows, width]) => {
                (0..experts).map(|index| whole(expert.tensor(index, projection), &[rows, width])).collect()
            }
            (_, shape) => panic!("parameter `{}` has shape {shape:?}, expected three axes", parameter.name),
        },
        (Some(index), true) => {
            let &[rows, width] = shape.as_slice() else {
                panic!("parameter `{}` has shape {shape:?}, expected two axes", parameter.name);
            };
            let (tensor, rows_of_expert, before) = match expert.projection {
                "gate_proj" => ("gate_up_proj", 2 * rows, 0),
                "up_proj" => ("gate_up_proj", 2 * rows, rows),
                other => (other, rows, 0),
            };
            let start = (index * rows_of_expert + before) * width;
            vec![(expert.fused(tensor), vec![num_experts, rows_of_expert, width], start..start + rows * width)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(name: &str, shape: &[usize]) -> ParameterShape {
        ParameterShape { name: name.to_owned(), shape: shape.to_vec() }
    }

    fn each() -> Vec<ParameterShape> {
        let layer = "model.layers.0.mlp.experts";
        let of = |index: usize| {
            [("gate_proj", [2, 3]), ("up_proj", [2, 3]), ("down_proj", [3, 2])]
                .map(|(name, axes)| shape(&format!("{layer}.{index}.{name}.weight"), &axes))
        };
        (0..2).flat_map(of).chain([shape("model.norm.weight", &[3])]).collect()
    }

    fn fused() -> Vec<ParameterShape> {
        vec![
            shape("model.layers.0.mlp.experts.gate_up_proj", &[2, 4, 3]),
            shape("model.layers.0.mlp.experts.down_proj", &[2, 3, 2]),
            shape("model.norm.weight", &[3]),
        ]
    }

    /// Every number of every tensor belongs to exactly one place of one parameter.
    fn check_is_a_permutation(parameters: &[ParameterShape], is_fused: bool, is_text_part: bool) -> Plan {
        let plan = Plan::new(parameters, &Spelling { is_text_part, is_fused: &|_| is_fused });
        let mut seen: BTreeMap<&str, Vec<u32>> =
            plan.tensors.iter().map(|(name, axes)| (name.as_str(), vec![0; axes.iter().product()])).collect();
        for parameter in parameters {
            let pieces = plan.pieces(&parameter.name);
            let len: usize = pieces.iter().map(|piece| piece.range.len()).sum();
            assert_eq!(len, parameter.num_elements(), "{}", parameter.name);
            for piece in pieces {
                seen.get_mut(piece.tensor.as_str()).unwrap()[piece.range.clone()].iter_mut().for_each(|n| *n += 1);
            }
        }
        assert!(seen.values().all(|counts| counts.iter().all(|&count| count == 1)), "{seen:?}");
        plan
    }

    #[test]
    fn each_layout_of_experts_covers_every_number_once_in_either_form() {
        for parameters in [each(), fused()] {
            for is_fused in [true, false] {
                for is_text_part in [true, false] {
                    let plan = check_is_a_permutation(&parameters, is_fused, is_text_part);
                    assert_eq!(plan.tensors.len(), if is_fused { 3 } else { 7 });
                    let below = |name: &str| name.starts_with(TEXT_BACKBONE) == is_text_part;
                    assert!(plan.tensors.iter().all(|(name, _)| below(name)), "{:?}", plan.tensors);
                }
            }
        }
    }

    #[test]
    fn the_gate_comes_before_what_passes_in_the_tensor_of_all_experts() {
        let plan = Plan::new(&each(), &Spelling { is_text_part: false, is_fused: &|_| true });
        let range = |name: &str| plan.pieces(&format!("model.layers.0.mlp.experts.{name}.weight"))[0].range.clone();
        assert_eq!([range("0.gate_proj"), range("0.up_proj"), range("1.gate_proj")], [0..6, 6..12, 12..18]);
        assert_eq!([range("0.down_proj"), range("1.down_proj")], [0..6, 6..12]);
        let tensors = ["model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.down_proj"];
        assert_eq!(plan.tensors[0], (tensors[0].to_owned(), vec![2, 4, 3]));
        assert_eq!(plan.tensors[1], (tensors[1].to_owned(), vec![2, 3, 2]));
    }
}
