//! Merges lists that are sorted by position, a page at a time.

use std::cmp::Ordering;

use crate::store::{Entry, Position, Protocol};

/// An item of a sorted list.
pub(crate) trait HasPosition {
    fn position(&self) -> Position;
}

impl<P: Protocol> HasPosition for Entry<P> {
    fn position(&self) -> Position {
        self.position
    }
}

/// The first items after a position, each with the index of its list.
pub(crate) fn forward<'a, T: HasPosition>(
    lists: &[&'a [T]],
    after: Option<Position>,
    limit: usize,
    keep: &impl Fn(&T) -> bool,
) -> Vec<(usize, &'a T)> {
    let mut remaining: Vec<&[T]> = lists
        .iter()
        .map(|list| {
            let start = after.map_or(0, |after| {
                list.partition_point(|item| item.position() <= after)
            });
            &list[start..]
        })
        .collect();
    merge(
        &mut remaining,
        limit,
        keep,
        <[T]>::split_first,
        Ordering::is_lt,
    )
}

/// The last items before a position, last first.
pub(crate) fn backward<'a, T: HasPosition>(
    lists: &[&'a [T]],
    before: Position,
    limit: usize,
    keep: &impl Fn(&T) -> bool,
) -> Vec<(usize, &'a T)> {
    let mut remaining: Vec<&[T]> = lists
        .iter()
        .map(|list| &list[..list.partition_point(|item| item.position() < before)])
        .collect();
    merge(
        &mut remaining,
        limit,
        keep,
        <[T]>::split_last,
        Ordering::is_gt,
    )
}

/// Takes one item off an end of a list.
type Take<T> = for<'b> fn(&'b [T]) -> Option<(&'b T, &'b [T])>;

/// Takes items off the ends of the lists, always the one that `wins`, until `limit` items are kept.
fn merge<'a, T: HasPosition>(
    remaining: &mut [&'a [T]],
    limit: usize,
    keep: &impl Fn(&T) -> bool,
    take: Take<T>,
    wins: fn(Ordering) -> bool,
) -> Vec<(usize, &'a T)> {
    let mut items = Vec::with_capacity(limit);
    while items.len() < limit {
        let mut best: Option<(usize, Position)> = None;
        for (index, rest) in remaining.iter().enumerate() {
            let Some((item, _)) = take(rest) else {
                continue;
            };
            let position = item.position();
            if best.is_none_or(|(_, known)| wins(position.cmp(&known))) {
                best = Some((index, position));
            }
        }
        let Some((index, _)) = best else { break };
        let Some((item, rest)) = take(remaining[index]) else {
            break;
        };
        remaining[index] = rest;
        if keep(item) {
            items.push((index, item));
        }
    }
    items
}
