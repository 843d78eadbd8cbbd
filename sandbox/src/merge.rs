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

/// The page that a call asks for: from one end, or beside a position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRequest {
    pub(crate) size: usize,
    pub(crate) after: Option<Position>,
    pub(crate) before: Option<Position>,
}

/// A page of items, each with the index of its list.
pub(crate) struct Page<'a, T> {
    pub(crate) items: Vec<(usize, &'a T)>,
    pub(crate) next: Option<Position>,
    pub(crate) prev: Option<Position>,
}

impl<'a, T: HasPosition> Page<'a, T> {
    /// Merges sorted lists and cuts a page out of them.
    pub(crate) fn of(lists: &[&'a [T]], request: PageRequest, keep: impl Fn(&T) -> bool) -> Self {
        let (mut items, more_after, more_before);
        if let Some(before) = request.before {
            items = backward(lists, before, request.size + 1, &keep);
            more_before = items.len() > request.size;
            items.truncate(request.size);
            items.reverse();
            let last = items.last().map_or(before, |(_, item)| item.position());
            more_after = !forward(lists, Some(last), 1, &keep).is_empty();
        } else {
            items = forward(lists, request.after, request.size + 1, &keep);
            more_after = items.len() > request.size;
            items.truncate(request.size);
            let first = items.first().map(|(_, item)| item.position());
            more_before = request
                .after
                .is_some_and(|after| !backward(lists, first.unwrap_or(after), 1, &keep).is_empty());
        }
        let position = |(_, item): &(usize, &T)| item.position();
        let next = items.last().map(position).filter(|_| more_after);
        let prev = items.first().map(position).filter(|_| more_before);
        Self { items, next, prev }
    }

    /// An empty page whose next link continues where this page would have started.
    pub(crate) fn emptied(self, request: PageRequest) -> Self {
        if self.items.is_empty() || request.before.is_some() {
            return self;
        }
        let here = request.after.unwrap_or(Position::START);
        Self {
            items: Vec::new(),
            next: Some(here.after_empty_page()),
            prev: None,
        }
    }
}

impl<T> Page<'_, T> {
    /// Writes the elements of a JSON array.
    pub(crate) fn write_items(
        &self,
        out: &mut Vec<u8>,
        mut item: impl FnMut(&mut Vec<u8>, usize, &T),
    ) {
        for (number, (list, value)) in self.items.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            item(out, *list, value);
        }
    }
}

/// The first items after a position, each with the index of its list.
fn forward<'a, T: HasPosition>(
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
fn backward<'a, T: HasPosition>(
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
