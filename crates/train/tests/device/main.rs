//! The model's golden numbers and the optimizer's on the first device of wgpu or CUDA: the same sources, another `device()`.
//!
//! Without a driver nothing is computed, and that is said. By default a dense model and a hybrid go through it;
//! `WORLDLOOM_DEVICE_TESTS=all` takes every family (`just test-wgpu`).

#![cfg(any(feature = "wgpu", feature = "cuda"))]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../suite/adamw.rs"]
mod adamw;
#[path = "../suite/common.rs"]
#[expect(dead_code, reason = "the suite of training uses the rest")]
mod common;
mod device;
#[path = "../../../model/tests/model/golden.rs"]
mod golden;
mod laws;
#[path = "../suite/rl_toys.rs"]
#[expect(dead_code, reason = "the suite of training uses the rest")]
mod rl_toys;
#[path = "../../../model/tests/model/support.rs"]
#[expect(dead_code, reason = "the suite of the model uses the rest")]
mod support;
