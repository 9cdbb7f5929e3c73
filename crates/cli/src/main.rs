//! The program `worldloom`: raw agent logs in, a trained world model out.
//!
//! Reading order: [`args`] says what can be typed, [`commands`] does it, [`steps`] is where the stages of the other
//! crates become commands, [`pipeline`] strings them together. Only this crate reads arguments and TOML, opens a
//! device, prints and exits.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the program speaks to a person")]

mod allocator;
mod args;
mod cluster;
mod commands;
mod config;
mod device;
mod job;
mod machine;
#[cfg(feature = "mpi")]
mod mpi;
mod pipeline;
mod progress;
mod signals;
mod steps;

use std::process::ExitCode;

#[expect(unsafe_code, reason = "before any thread starts: the back end burn may fall back to")]
fn prepare_process() {
    unsafe { std::env::set_var("BURN_DEVICE", "flex") };
}

/// Ends as a shell's tools do where the reader of our output has gone (`worldloom plan … | head`), and not with a panic.
/// The signal itself stays off: a server must outlive its clients.
fn end_with_the_reader() {
    const SIGPIPE: i32 = 13;
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_unread = |text: &str| text.starts_with("failed printing to std") && text.contains("Broken pipe");
        if panic.payload_as_str().is_some_and(is_unread) {
            std::process::exit(128 + SIGPIPE);
        }
        report(panic);
    }));
}

fn main() -> ExitCode {
    prepare_process();
    end_with_the_reader();
    commands::main()
}
