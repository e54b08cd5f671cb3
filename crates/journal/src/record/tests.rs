//! Round trips of records, and what decoding does with bytes that are none.
