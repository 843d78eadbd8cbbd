//! Splits the rows of a sync into chunks, one for each event. Pure.

use std::ops::Range;

/// The rows of one event, as index ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub new: Range<usize>,
    pub updated: Range<usize>,
}

/// Splits rows into chunks of at most `rows_max` (at least 1), new rows before updated ones. One
/// chunk may hold the last new and the first updated rows. Without rows there is no chunk.
pub fn chunks(new: usize, updated: usize, rows_max: usize) -> Vec<Chunk> {
    let (rows, size) = (new + updated, rows_max.max(1));
    let chunk = |from: usize| {
        let to = rows.min(from.saturating_add(size));
        Chunk {
            new: from.min(new)..to.min(new),
            updated: from.max(new) - new..to.max(new) - new,
        }
    };
    (0..rows).step_by(size).map(chunk).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn new_rows_come_before_updated_ones() {
        let chunk = |new, updated| Chunk { new, updated };
        assert_eq!(chunks(0, 0, 500), []);
        assert_eq!(chunks(500, 0, 500), [chunk(0..500, 0..0)]);
        assert_eq!(
            chunks(501, 0, 500),
            [chunk(0..500, 0..0), chunk(500..501, 0..0)]
        );
        assert_eq!(chunks(0, 3, 500), [chunk(0..0, 0..3)]);
        assert_eq!(
            chunks(3, 4, 2),
            [
                chunk(0..2, 0..0),
                chunk(2..3, 0..1),
                chunk(3..3, 1..3),
                chunk(3..3, 3..4)
            ]
        );
        assert_eq!(chunks(2, 0, 0), chunks(2, 0, 1));
        assert_eq!(chunks(7, 7, usize::MAX), [chunk(0..7, 0..7)]);
    }

    proptest! {
        #[test]
        fn every_row_is_in_one_chunk_in_order(
            new in 0_usize..2_000,
            updated in 0_usize..2_000,
            rows_max in 1_usize..700,
        ) {
            let chunks = chunks(new, updated, rows_max);
            let sizes: Vec<usize> = chunks.iter().map(|chunk| chunk.new.len() + chunk.updated.len()).collect();
            prop_assert_eq!(sizes.len(), (new + updated).div_ceil(rows_max));
            if let Some((last, full)) = sizes.split_last() {
                prop_assert!(full.iter().all(|size| *size == rows_max) && (1..=rows_max).contains(last));
            }
            let in_order: Vec<usize> = chunks
                .iter()
                .flat_map(|chunk| chunk.new.clone().chain(chunk.updated.clone().map(|row| new + row)))
                .collect();
            prop_assert_eq!(in_order, (0..new + updated).collect::<Vec<_>>());
        }
    }
}
