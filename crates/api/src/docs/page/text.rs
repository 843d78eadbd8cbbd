//! Descriptions. They are Markdown, of which the document uses paragraphs, `code` and **strong**
//! text.

/// Paragraphs of spans.
pub(super) struct Text(pub Vec<Vec<Span>>);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Span {
    Plain(String),
    Code(String),
    Strong(String),
}

impl Text {
    pub(super) fn new(markdown: &str) -> Self {
        Self(
            markdown
                .split("\n\n")
                .map(|paragraph| spans(&paragraph.replace('\n', " ")))
                .collect(),
        )
    }
}

fn spans(paragraph: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    for (at, part) in paragraph.split('`').enumerate() {
        if at % 2 == 1 {
            spans.push(Span::Code(part.to_owned()));
            continue;
        }
        let parts = part
            .split("**")
            .enumerate()
            .filter(|(_, part)| !part.is_empty());
        spans.extend(parts.map(|(at, part)| match at % 2 {
            0 => Span::Plain(part.to_owned()),
            _ => Span::Strong(part.to_owned()),
        }));
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_code_and_strong_text_are_read() {
        let text = Text::new("**Limits.** See\n`X-RateLimit-*`.\n\n`**`");
        let [first, second] = &text.0[..] else {
            panic!("two paragraphs")
        };
        let limits = [
            Span::Strong("Limits.".to_owned()),
            Span::Plain(" See ".to_owned()),
            Span::Code("X-RateLimit-*".to_owned()),
            Span::Plain(".".to_owned()),
        ];
        assert_eq!(first[..], limits);
        assert_eq!(second[..], [Span::Code("**".to_owned())]);
    }
}
