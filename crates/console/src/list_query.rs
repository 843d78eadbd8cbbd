//! The filters of a list and its page, in a query. Each link changes one of them and keeps the
//! others.

use std::fmt::Display;
use std::str::FromStr;

/// Pages of which the query remembers the beginning. From further behind, *Previous* leads to the
/// first.
const PAGES_REMEMBERED_MAX: usize = 20;
/// What is longer is ignored, because each link of a page repeats it. A search of 254 characters
/// fits.
const VALUE_BYTES_MAX: usize = 1024;
const MARK_BYTES_MAX: usize = 256;

/// What is chosen of the filters that a list has. Other parameters are ignored.
#[derive(Clone)]
pub(crate) struct ListQuery {
    /// In the order of the query. Empty: not chosen.
    pub(crate) filters: Vec<(&'static str, String)>,
    /// Where this page and those before it begin, except the first.
    pages: Vec<String>,
}

/// A filter above a list: a menu of values, or a link that sets it or ends it.
pub(crate) struct Chip {
    pub(crate) text: String,
    /// Where the link leads.
    pub(crate) query: String,
    pub(crate) is_set: bool,
    /// Those of a menu.
    pub(crate) values: Vec<Self>,
}

/// The queries of the pages beside this one.
pub(crate) struct Pages {
    pub(crate) previous: Option<String>,
    pub(crate) next: Option<String>,
}

impl Chip {
    pub(crate) fn link(text: String, query: String, is_set: bool) -> Self {
        Self {
            text,
            query,
            is_set,
            values: Vec::new(),
        }
    }
}

impl ListQuery {
    pub(crate) fn parse(query: Option<&str>, filters: &[&'static str]) -> Self {
        let mut found = Self {
            filters: filters.iter().map(|name| (*name, String::new())).collect(),
            pages: Vec::new(),
        };
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if name == "pages" {
                let is_mark = |mark: &&str| (1..=MARK_BYTES_MAX).contains(&mark.len());
                let marks = value.split('~').filter(is_mark).map(str::to_owned);
                found.pages = newest(marks.collect());
            }
            let value = value.trim();
            let known = found.filters.iter_mut().find(|known| known.0 == name);
            if let Some((_, filter)) = known.filter(|_| value.len() <= VALUE_BYTES_MAX) {
                value.clone_into(filter);
            }
        }
        found
    }

    /// Empty: not chosen.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.filters.iter().find(|known| known.0 == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    pub(crate) fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).parse().ok()
    }

    /// Changes what is chosen. None: nothing.
    pub(crate) fn set(&mut self, name: &str, value: Option<impl ToString>) {
        let value = value.map(|value| value.to_string()).unwrap_or_default();
        let mut filters = self.filters.iter_mut();
        if let Some((_, chosen)) = filters.find(|known| known.0 == name) {
            *chosen = value;
        }
    }

    /// Forgets the pages whose marks are none of this kind.
    pub(crate) fn retain_pages<T: FromStr>(&mut self) {
        self.pages.retain(|mark| mark.parse::<T>().is_ok());
    }

    /// Whether something is chosen.
    pub(crate) fn has_filter(&self) -> bool {
        !self.first().is_empty()
    }

    /// The query of the first page.
    pub(crate) fn first(&self) -> String {
        self.with(&[])
    }

    /// The query of the first page with these filters changed.
    pub(crate) fn with(&self, changes: &[(&str, &str)]) -> String {
        self.text(changes, &[])
    }

    fn text(&self, changes: &[(&str, &str)], pages: &[String]) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.filters {
            let change = changes.iter().find(|(changed, _)| changed == name);
            let value = change.map_or(value.as_str(), |(_, value)| *value);
            if !value.is_empty() {
                text.append_pair(name, value);
            }
        }
        if !pages.is_empty() {
            text.append_pair("pages", &pages.join("~"));
        }
        text.finish()
    }

    /// A filter with a few values, each with its text. Without one, it has the text of any, and
    /// says so if the query has another value, which chooses nothing.
    pub(crate) fn menu(
        &self,
        name: &str,
        any: &str,
        values: impl IntoIterator<Item = (impl Display, impl Display)>,
    ) -> Chip {
        let mut links = vec![self.choice(name, "", any)];
        let values = values.into_iter();
        links.extend(values.map(|(value, text)| self.choice(name, value, text)));
        let shown = links.iter().find(|value| value.is_set);
        let text = match shown {
            Some(value) => value.text.clone(),
            None => format!("{any} (unknown choice)"),
        };
        let is_set = shown.is_some() && !self.get(name).is_empty();
        Chip {
            values: links,
            ..Chip::link(text, String::new(), is_set)
        }
    }

    /// A link that chooses this value.
    pub(crate) fn choice(&self, name: &str, value: impl Display, text: impl Display) -> Chip {
        let value = value.to_string();
        let query = self.with(&[(name, value.as_str())]);
        Chip::link(text.to_string(), query, value == self.get(name))
    }

    /// A link that chooses this value, or ends the filter if it is chosen.
    pub(crate) fn toggle(&self, name: &str, value: &str, text: impl Display) -> Chip {
        let is_set = self.get(name) == value;
        let to = if is_set { "" } else { value };
        Chip::link(text.to_string(), self.with(&[(name, to)]), is_set)
    }

    /// The mark of the last row before the page. None: it is the first.
    pub(crate) fn start<T: FromStr>(&self) -> Option<T> {
        self.pages.last()?.parse().ok()
    }

    /// The query of this very page.
    pub(crate) fn this_page(&self) -> String {
        self.text(&[], &self.pages)
    }

    /// The query of the page before this one. None: this is the first.
    pub(crate) fn previous(&self) -> Option<String> {
        let (_, before) = self.pages.split_last()?;
        Some(self.text(&[], before))
    }

    /// The query of the page that begins at a mark.
    pub(crate) fn next(&self, mark: impl Display) -> String {
        let mut pages = self.pages.clone();
        pages.push(mark.to_string());
        self.text(&[], &newest(pages))
    }

    /// Cuts rows that were read with one more than a page has. `mark` is where the page behind a
    /// row begins.
    pub(crate) fn cut<T, M: Display>(
        &self,
        rows: &mut Vec<T>,
        rows_max: u32,
        mark: impl FnOnce(&T) -> M,
    ) -> Pages {
        let has_more = rows.len() > rows_max as usize;
        rows.truncate(rows_max as usize);
        let last = rows.last().filter(|_| has_more);
        Pages {
            previous: self.previous(),
            next: last.map(|last| self.next(mark(last))),
        }
    }
}

/// Which rows of a list a page has, such as `51 to 62 of 62`.
pub(crate) fn rows_of_list(first: u64, last: u64, all: u64) -> String {
    format!("{} of {all}", rows_between(first, last))
}

/// As [`rows_of_list`], where nobody knows how many there are.
pub(crate) fn rows_between(first: u64, last: u64) -> String {
    match first == last {
        true => last.to_string(),
        false => format!("{first} to {last}"),
    }
}

fn newest(mut pages: Vec<String>) -> Vec<String> {
    pages.drain(..pages.len().saturating_sub(PAGES_REMEMBERED_MAX));
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> ListQuery {
        ListQuery::parse(Some(text), &["what", "by"])
    }

    #[test]
    fn links_change_one_filter_and_keep_the_others() {
        let page = query("by=a%26b&what=key&other=1&pages=1~2");
        assert_eq!(page.first(), "what=key&by=a%26b");
        assert_eq!(page.with(&[("what", ""), ("by", "c")]), "by=c");
        assert_eq!((page.get("by"), page.get("other")), ("a&b", ""));
        let menu = page.menu("what", "Anything", [("user", "Users"), ("key", "Keys")]);
        assert_eq!((&*menu.text, menu.is_set), ("Keys", true));
        let links: Vec<_> = menu
            .values
            .iter()
            .map(|link| (&*link.query, link.is_set))
            .collect();
        let expected = [
            ("by=a%26b", false),
            ("what=user&by=a%26b", false),
            ("what=key&by=a%26b", true),
        ];
        assert_eq!(links, expected);
        let (set, other) = (page.toggle("by", "a&b", "A"), page.toggle("by", "c", "C"));
        assert_eq!((&*set.query, set.is_set), ("what=key", true));
        assert_eq!((&*other.query, other.is_set), ("what=key&by=c", false));
        let none = query("pages=2&what=").menu("what", "Anything", [("user", "Users")]);
        assert_eq!((&*none.text, none.is_set), ("Anything", false));
        let unknown = query("what=x").menu("what", "Anything", [("user", "Users")]);
        assert_eq!(
            (&*unknown.text, unknown.is_set),
            ("Anything (unknown choice)", false)
        );
        assert!(!query("pages=2").has_filter() && page.has_filter());
    }

    #[test]
    fn hostile_query_makes_no_long_links() {
        let long = "~".repeat(2000);
        let page = query(&format!("what={long}&by=key&pages={}", "a~".repeat(9000)));
        assert_eq!(page.first(), "by=key");
        assert!(page.this_page().len() < 100 && page.start() == Some("a".to_owned()));
        assert_eq!(
            query(&format!("pages={long}b{}", "c".repeat(300))).start::<String>(),
            None
        );
    }

    #[test]
    fn one_row_of_a_page_is_no_range() {
        assert_eq!(rows_of_list(1, 50, 301), "1 to 50 of 301");
        assert_eq!(rows_of_list(301, 301, 301), "301 of 301");
        assert_eq!(rows_between(51, 51), "51");
    }

    #[test]
    fn pages_are_walked_down_and_up() {
        let mut page = query("what=key&pages=~~");
        let cut = |page: &ListQuery| page.cut(&mut vec![1, 2, 3], 2, |_| "10.a-b");
        assert_eq!((cut(&page).previous, page.start::<String>()), (None, None));
        for number in 0..30 {
            let text = page
                .cut(&mut vec![0, number, 0], 2, |last| *last)
                .next
                .unwrap();
            page = query(&text);
            assert_eq!((page.start(), page.get("what")), (Some(number), "key"));
            assert!(text.len() < 200, "{text}");
        }
        for number in (10..29).rev() {
            page = query(&cut(&page).previous.unwrap());
            assert_eq!(page.start(), Some(number));
        }
        assert_eq!(cut(&page).previous.as_deref(), Some("what=key"));
        let mut last = vec![1, 2];
        assert_eq!(page.cut(&mut last, 2, |_| 0).next, None);
        assert_eq!(last, [1, 2]);
    }
}
