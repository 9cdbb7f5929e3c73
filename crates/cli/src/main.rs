//! The program `worldloom`.

fn main() {}
