//! Drives real environments and writes what they answered as raw logs.
