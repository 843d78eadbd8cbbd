//! Merges lists that are sorted by position, a page at a time.

use std::cmp::Reverse;
use std::iter::Peekable;

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
    let rest = |list: &&'a [T]| {
        let start = after.map_or(0, |after| {
            list.partition_point(|item| item.position() <= after)
        });
        list[start..].iter().peekable()
    };
    merge(lists.iter().map(rest), limit, keep, |position| position)
}

/// The last items before a position, last first.
pub(crate) fn backward<'a, T: HasPosition>(
    lists: &[&'a [T]],
    before: Position,
    limit: usize,
    keep: &impl Fn(&T) -> bool,
) -> Vec<(usize, &'a T)> {
    let rest = |list: &&'a [T]| {
        let end = list.partition_point(|item| item.position() < before);
        list[..end].iter().rev().peekable()
    };
    merge(lists.iter().map(rest), limit, keep, Reverse)
}

/// Takes the item whose position has the smallest key, until `limit` items are kept.
fn merge<'a, T: HasPosition + 'a, I: Iterator<Item = &'a T>, K: Ord>(
    lists: impl Iterator<Item = Peekable<I>>,
    limit: usize,
    keep: &impl Fn(&T) -> bool,
    key: impl Fn(Position) -> K,
) -> Vec<(usize, &'a T)> {
    let mut lists: Vec<_> = lists.collect();
    let mut items = Vec::with_capacity(limit);
    while items.len() < limit {
        let heads = lists.iter_mut().enumerate();
        let heads = heads.filter_map(|(index, list)| Some((key(list.peek()?.position()), index)));
        let Some((_, index)) = heads.min() else {
            break;
        };
        let item = lists[index].next().filter(|item| keep(item));
        items.extend(item.map(|item| (index, item)));
    }
    items
}
