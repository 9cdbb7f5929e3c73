//! The program as a person uses it: help, mistakes, the whole road, a kill in the middle.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod axes;
mod cluster;
mod form;
mod played;
mod products;
mod road;
mod rollouts;
mod support;
mod teacher;
mod words;
