//! Raw sources of any format to canonical trajectories; every rejected row is listed.
