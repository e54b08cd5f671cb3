//! Checkpoints written, read back, cut short and damaged.
