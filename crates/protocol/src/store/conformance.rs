//! The behaviour suite of the store contract.
