//! The one place where the program opens devices.
//!
//! A *place* is how a user names one: `cpu`, `wgpu`, `wgpu:1`, `vulkan`, `metal`, `cuda:0`. What is not built in, not there or
//! computes wrongly is refused before a run starts. Everything but the trainings computes on the CPU.

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use burn::tensor::{DType, Device};
use worldloom_model::{LargestTensor, Products, SelfCheck, self_test};

use crate::allocator::keep_freed_memory;
use crate::config::UserError;
use crate::progress::size;

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackEnd {
    Cpu,
    Wgpu,
    Vulkan,
    Metal,
    Cuda,
}

impl BackEnd {
    pub(crate) const ALL: [BackEnd; 5] = [BackEnd::Cpu, BackEnd::Wgpu, BackEnd::Vulkan, BackEnd::Metal, BackEnd::Cuda];

    pub(crate) fn name(self) -> &'static str {
        match self {
            BackEnd::Cpu => "cpu",
            BackEnd::Wgpu => "wgpu",
            BackEnd::Vulkan => "vulkan",
            BackEnd::Metal => "metal",
            BackEnd::Cuda => "cuda",
        }
    }

    pub(crate) fn is_built_in(self) -> bool {
        match self {
            BackEnd::Cpu => true,
            BackEnd::Wgpu => cfg!(feature = "wgpu"),
            BackEnd::Vulkan => cfg!(feature = "vulkan"),
            BackEnd::Metal => cfg!(feature = "metal"),
            BackEnd::Cuda => cfg!(feature = "cuda"),
        }
    }

    /// How exactly it multiplies.
    pub(crate) fn products(self) -> Products {
        match self {
            BackEnd::Cuda => Products::TensorFloat,
            _ => Products::Single,
        }
    }

    /// The devices that are there, of those that are built in. Graphics drivers that compute on the CPU come last.
    pub(crate) fn present(self) -> Vec<Device> {
        #[cfg(feature = "cuda")]
        if self != BackEnd::Cpu {
            keep_kernels();
        }
        let mut found: Vec<Device> = match self {
            BackEnd::Cpu => vec![cpu()],
            #[cfg(feature = "wgpu")]
            BackEnd::Wgpu => Device::enumerate(burn::tensor::DeviceType::Wgpu).into_vec(),
            #[cfg(feature = "vulkan")]
            BackEnd::Vulkan => Device::enumerate(burn::tensor::DeviceType::Vulkan).into_vec(),
            #[cfg(feature = "metal")]
            BackEnd::Metal => Device::enumerate(burn::tensor::DeviceType::Metal).into_vec(),
            #[cfg(feature = "cuda")]
            BackEnd::Cuda => Device::enumerate(burn::tensor::DeviceType::Cuda).into_vec(),
            #[allow(unreachable_patterns, reason = "reached where a feature is off")]
            _ => Vec::new(),
        };
        found.sort_by_key(is_software);
        found
    }
}

/// Compiled kernels outlive the run, in the user's cache folder and per build of the program: compiling them takes a first run
/// minutes. A folder that cannot be written costs that time again, and no error. CubeCL reads its settings once, so this comes
/// before the first device; `cubecl.toml` and its variables stay in force for all else.
#[cfg(feature = "cuda")]
fn keep_kernels() {
    use cubecl_runtime::config::cache::CacheConfig;
    use cubecl_runtime::config::{CubeClRuntimeConfig, RuntimeConfig};
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        config.compilation.cache = true;
        config.environment.path = CacheConfig::Global;
        if !CubeClRuntimeConfig::try_set(config) {
            tracing::warn!("a device was opened before: its kernels are not kept");
        }
    });
}

/// Whether it is a graphics driver that computes on the CPU.
#[cfg(feature = "wgpu")]
pub(crate) fn is_software(device: &Device) -> bool {
    use burn::backend::{CubeDevice, DispatchDevice, WgpuDeviceKind};
    matches!(device.as_dispatch(), DispatchDevice::Cube(CubeDevice::Wgpu(found)) if found.kind == WgpuDeviceKind::Cpu)
}

/// Whether it is a graphics driver that computes on the CPU.
#[cfg(not(feature = "wgpu"))]
pub(crate) fn is_software(_: &Device) -> bool {
    false
}

/// A device as a user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) back_end: BackEnd,
    /// In the order that `doctor` lists them; none: the first.
    pub(crate) index: Option<usize>,
}

impl Place {
    pub(crate) const CPU: Place = Place { back_end: BackEnd::Cpu, index: None };

    pub(crate) fn is_cpu(self) -> bool {
        self.back_end == BackEnd::Cpu
    }

    /// The device, which has not computed anything yet.
    pub(crate) fn find(self) -> Result<Device> {
        let Place { back_end, index } = self;
        let name = back_end.name();
        if !back_end.is_built_in() {
            let error = UserError::new(format!("device `{self}`: this program was built without `{name}`"));
            return Err(error.hint(format!("build it with: cargo build --release --features {name}")).into());
        }
        let found = back_end.present();
        match found.get(index.unwrap_or(0)) {
            Some(device) => Ok(device.clone()),
            None if found.is_empty() => {
                let needed = match back_end {
                    BackEnd::Cuda => "an NVIDIA card and its driver (libcuda)",
                    BackEnd::Metal => "macOS",
                    _ => "a Vulkan driver: on Debian and Ubuntu the package mesa-vulkan-drivers, or the card's own",
                };
                let error = UserError::new(format!("device `{self}`: there is no {name} device"));
                Err(error.hint(format!("it needs {needed}; `worldloom doctor` lists what is there")).into())
            }
            None => {
                let last = found.len() - 1;
                let error = UserError::new(format!("device `{self}`: {name} devices are numbered 0 to {last}"));
                Err(error.hint("`worldloom doctor` lists them").into())
            }
        }
    }

    /// The device, once it has computed rightly; the CPU is trusted.
    pub(crate) fn open(self) -> Result<Device> {
        let device = self.find()?;
        if self.is_cpu() {
            return Ok(device);
        }
        let products = self.back_end.products();
        let wrong = |check: &SelfCheck| format!("{} is off by {:.0e}", check.name, check.error);
        let checks = self_test(&device, &cpu());
        let wrong: Vec<String> = checks.iter().filter(|check| !check.passes(products)).map(wrong).collect();
        if wrong.is_empty() {
            return Ok(device);
        }
        let message = format!("device `{self}` computes wrongly: {}", wrong.join(", "));
        Err(UserError::new(message).hint("another driver may help; `--device cpu` computes rightly").into())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.back_end.name())?;
        self.index.map_or(Ok(()), |index| write!(f, ":{index}"))
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}`, expected cpu, wgpu, vulkan, metal or cuda, with a number as in wgpu:1");
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index.parse::<usize>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let back_end = BackEnd::ALL.into_iter().find(|back_end| back_end.name() == name).ok_or_else(wrong)?;
        match (back_end, index) {
            (BackEnd::Cpu, Some(_)) => Err(wrong()),
            _ => Ok(Place { back_end, index }),
        }
    }
}

/// The CPU: where everything computes that is no training.
pub(crate) fn cpu() -> Device {
    keep_freed_memory();
    Device::flex()
}

/// What a device says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) name: String,
    /// Bytes of the largest buffer; none: the memory is the bound.
    pub(crate) largest_buffer: Option<u64>,
    /// Workgroups along one axis of a launch.
    pub(crate) workgroups: Option<u32>,
    pub(crate) holds_bf16: bool,
}

impl Limits {
    pub(crate) fn of(device: &Device) -> Limits {
        let holds_bf16 = device.supports_dtype(DType::BF16);
        #[cfg(any(feature = "wgpu", feature = "cuda"))]
        if let burn::backend::DispatchDevice::Cube(found) = device.clone().inner().as_dispatch() {
            let client = found.client();
            let properties = client.properties();
            return Limits {
                name: properties.identity.name.clone(),
                largest_buffer: Some(properties.memory.max_page_size),
                workgroups: Some(properties.hardware.max_cube_count.0),
                holds_bf16,
            };
        }
        let name = crate::machine::processor().unwrap_or_else(|| "CPU".into());
        Limits { name, largest_buffer: None, workgroups: None, holds_bf16 }
    }

    /// Refuses a tensor that no buffer of the device holds.
    pub(crate) fn check(&self, place: Place, largest: &LargestTensor) -> Result<()> {
        let Some(limit) = self.largest_buffer.filter(|&limit| largest.bytes > limit) else { return Ok(()) };
        let (name, bytes, limit) = (&largest.name, size(largest.bytes), size(limit));
        let message =
            format!("device `{place}` ({}): {name} takes {bytes}, and its largest buffer is {limit}", self.name);
        let hint = match name.starts_with("the scores") || name.starts_with("the widest") {
            true => "take fewer rows_per_micro_batch or shorter rows, or --device cpu",
            false => "the model is too large for this device; --device cpu has no such limit",
        };
        Err(UserError::new(message).hint(hint).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_as_they_are_written_and_others_are_refused() {
        for text in ["cpu", "wgpu", "wgpu:1", "cuda:0", "vulkan", "metal"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for text in ["gpu", "cpu:0", "wgpu:", "wgpu:x", "", "cuda:-1"] {
            let error = text.parse::<Place>().unwrap_err();
            assert!(error.starts_with(&format!("`{text}`, expected cpu, wgpu")), "{error}");
        }
    }

    #[test]
    fn what_is_not_built_in_or_not_there_is_refused_with_a_way_out() {
        let hint = |place: Place| {
            let error = place.find().unwrap_err();
            let error = error.downcast_ref::<UserError>().unwrap();
            format!("{} / {}", error.message, error.hint.clone().unwrap_or_default())
        };
        if !BackEnd::Metal.is_built_in() {
            let told = hint(Place { back_end: BackEnd::Metal, index: None });
            assert!(told.contains("built without `metal`") && told.contains("--features metal"), "{told}");
        }
        if BackEnd::Wgpu.is_built_in() {
            let told = hint(Place { back_end: BackEnd::Wgpu, index: Some(99) });
            assert!(told.contains("there is no wgpu device") || told.contains("numbered 0 to"), "{told}");
        }
    }

    #[test]
    fn a_tensor_that_no_buffer_holds_is_refused_by_name() {
        let limits = Limits { name: "card".into(), largest_buffer: Some(1 << 20), workgroups: None, holds_bf16: false };
        let place = Place { back_end: BackEnd::Wgpu, index: None };
        let tensor = |bytes| LargestTensor { name: "the scores of attention".into(), bytes };
        assert!(limits.check(place, &tensor(1 << 20)).is_ok());
        let error = limits.check(place, &tensor((1 << 20) + 1)).unwrap_err().to_string();
        assert!(error.contains("(card): the scores of attention takes"), "{error}");
    }
}
