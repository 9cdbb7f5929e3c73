//! What is on disk: trajectories, documents, shards, prompts, rollouts, manifests.
