//! A QR code as an SVG, for a link that another device opens.

use std::fmt::Write as _;

use qrcode::{Color, EcLevel, QrCode};

/// Light modules around the code, as readers need them.
const MARGIN: usize = 4;

/// None: the text is too long, which no link is.
pub(crate) fn svg(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    let (width, side) = (code.width(), code.width() + 2 * MARGIN);
    let mut path = String::new();
    for (at, color) in code.to_colors().into_iter().enumerate() {
        if color == Color::Dark {
            let (x, y) = (at % width + MARGIN, at / width + MARGIN);
            let _ = write!(path, "M{x} {y}h1v1h-1z");
        }
    }
    Some(format!(
        "<svg class=\"qr\" viewBox=\"0 0 {side} {side}\" shape-rendering=\"crispEdges\" role=\"img\" aria-label=\"QR \
         code of the link\"><path fill=\"#000\" d=\"{path}\"/></svg>"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_its_corners_and_says_nothing_else() {
        let svg = svg("https://bellbird.example/sign-in/0123456789abcdef").unwrap();
        // The three corners are squares of seven modules, whose first one is dark.
        assert!(svg.contains("M4 4h1v1h-1z"), "{svg}");
        assert!(!svg.contains("bellbird.example"));
        assert!(super::svg(&"x".repeat(5_000)).is_none());
    }
}
