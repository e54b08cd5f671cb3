//! How many blocks a filter has, and how many bits each DID sets in one: the choice of the reference implementation,
//! which every writer must repeat to write the same bytes.

use crate::gloom::{BLOCK_BITS, FALSE_POSITIVES};

/// ln(2)², as the reference implementation has it.
const LN2_SQUARED: f64 = 0.480_453_013_918_201_4;
/// Above this many items per block on average the distribution around it no longer matters.
const LAMBDA_DIRECT: f64 = 10_000.0;
const WEIGHT_MIN: f64 = 1e-15;

/// The sizes of the partitions of a block, for 3 to 17 bits a DID. The order matters.
const PARTITIONS: [&[u16]; 15] = [
    &[167, 173, 172],
    &[109, 127, 137, 139],
    &[97, 101, 103, 109, 102],
    &[61, 79, 83, 89, 97, 103],
    &[61, 67, 71, 79, 83, 89, 62],
    &[37, 47, 53, 61, 67, 71, 79, 97],
    &[41, 43, 47, 53, 59, 67, 71, 73, 58],
    &[31, 37, 41, 43, 47, 53, 59, 61, 67, 73],
    &[29, 31, 37, 41, 43, 44, 47, 53, 59, 61, 67],
    &[17, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 71],
    &[17, 19, 23, 29, 31, 37, 41, 43, 47, 52, 53, 59, 61],
    &[11, 13, 17, 19, 23, 29, 31, 37, 41, 47, 53, 59, 61, 71],
    &[11, 13, 17, 19, 23, 28, 29, 31, 37, 41, 43, 47, 53, 59, 61],
    &[5, 7, 11, 13, 17, 19, 23, 27, 29, 31, 37, 41, 43, 47, 53, 109],
    &[3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 32, 37, 41, 43, 47, 53, 101],
];
const K_MIN: u32 = 3;

/// The partitions for `k` bits a DID, if the format has them.
pub(super) fn partitions(k: u32) -> Option<&'static [u16]> {
    PARTITIONS.get(k.checked_sub(K_MIN)? as usize).copied()
}

/// The shape of a filter.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Parameters {
    /// Blocks of 512 bits.
    pub blocks: usize,
    /// Bits that each DID sets.
    pub k: u32,
}

/// The shape of a filter for `items` DIDs; none count as one.
pub fn parameters(items: usize) -> Parameters {
    #[expect(clippy::cast_precision_loss, reason = "numbers of DIDs are far below 2^53")]
    let n = items.max(1) as f64;
    let bits_per_item = -FALSE_POSITIVES.ln() / LN2_SQUARED;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and of the size of the number of items"
    )]
    let base = (n * bits_per_item / f64::from(BLOCK_BITS)).ceil() as usize;
    let max = base * 4;
    let mut blocks = base;
    loop {
        let (k, rate) = best_k(blocks, n);
        if rate <= FALSE_POSITIVES || blocks >= max {
            return Parameters { blocks, k };
        }
        blocks = (blocks + blocks / 8 + 1).min(max);
    }
}

/// The number of bits with the smallest rate of false positives, the lowest where several have it; and that rate.
fn best_k(blocks: usize, n: f64) -> (u32, f64) {
    let mut best = (K_MIN, f64::INFINITY);
    for (k, sizes) in (K_MIN..).zip(PARTITIONS) {
        let rate = false_positives(blocks, n, sizes);
        if rate < best.1 {
            best = (k, rate);
        }
    }
    best
}

/// The rate of false positives of `n` items in `blocks` blocks: the items in a block are distributed as Poisson has it.
fn false_positives(blocks: usize, n: f64, sizes: &[u16]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "numbers of blocks are far below 2^53")]
    let lambda = n / blocks as f64;
    if lambda > LAMBDA_DIRECT {
        return in_one_block(lambda, sizes);
    }
    let last = (lambda + 10.0 * lambda.sqrt() + 20.0).trunc();
    let (ln_lambda, mean) = (lambda.ln(), lambda.trunc());
    let (mut items, mut ln_factorial, mut rate) = (1.0_f64, 0.0, 0.0);
    while items <= last {
        ln_factorial += items.ln();
        let weight = (-lambda + items * ln_lambda - ln_factorial).exp();
        if weight < WEIGHT_MIN && items > mean {
            break;
        }
        rate += weight * in_one_block(items, sizes);
        items += 1.0;
    }
    rate
}

fn in_one_block(items: f64, sizes: &[u16]) -> f64 {
    sizes.iter().map(|size| 1.0 - (1.0 - 1.0 / f64::from(*size)).powf(items)).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_of_the_reference() {
        for (items, blocks, k) in [
            (0, 1, 15),
            (1, 1, 15),
            (10, 1, 15),
            (11, 1, 13),
            (27, 1, 11),
            (32, 1, 9),
            (33, 2, 11),
            (55, 2, 9),
            (100, 4, 11),
            (256, 8, 9),
            (271, 10, 9),
            (285, 9, 9),
            (1000, 33, 9),
            (4096, 131, 9),
            (10_000, 317, 9),
            (100_000, 3161, 9),
        ] {
            assert_eq!(parameters(items).blocks, blocks, "{items}");
            assert_eq!(parameters(items).k, k, "{items}");
        }
    }
}
