//! Merges lists that are sorted by position, a page at a time.

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

/// The page that a call asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRequest {
    pub(crate) size: usize,
    pub(crate) after: Option<Position>,
}

/// A page of items, each with the index of its list.
pub(crate) struct Page<'a, T> {
    pub(crate) items: Vec<(usize, &'a T)>,
    pub(crate) next: Option<Position>,
}

impl<'a, T: HasPosition> Page<'a, T> {
    /// Merges sorted lists and cuts a page out of them.
    pub(crate) fn of(lists: &[&'a [T]], request: PageRequest, keep: impl Fn(&T) -> bool) -> Self {
        let rest = |list: &&'a [T]| {
            let start = request.after.map_or(0, |after| {
                list.partition_point(|item| item.position() <= after)
            });
            list[start..].iter().peekable()
        };
        let mut lists: Vec<_> = lists.iter().map(rest).collect();
        let mut items = Vec::with_capacity(request.size + 1);
        // One more than the page has, which says whether another page follows.
        while items.len() <= request.size {
            let heads = lists.iter_mut().enumerate();
            let heads = heads.filter_map(|(index, list)| Some((list.peek()?.position(), index)));
            let Some((_, index)) = heads.min() else {
                break;
            };
            let item = lists[index].next().filter(|item| keep(item));
            items.extend(item.map(|item| (index, item)));
        }
        let is_last = items.len() <= request.size;
        items.truncate(request.size);
        let last = items.last().map(|(_, item)| item.position());
        Self {
            next: last.filter(|_| !is_last),
            items,
        }
    }

    /// An empty page whose next link continues where this page would have started.
    pub(crate) fn emptied(self, request: PageRequest) -> Self {
        if self.items.is_empty() {
            return self;
        }
        let here = request.after.unwrap_or(Position::START);
        Self {
            items: Vec::new(),
            next: Some(here.after_empty_page()),
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
