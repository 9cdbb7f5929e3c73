//! Trajectories to disjoint pools as DataFusion plans.
