//! Renders the consent pages as HTML, with their security headers.

use askama::Template;
use aws_lc_rs::digest::{SHA256, digest};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::brand::Brand;
use super::session::{ConsentResult, ConsentSession, NAME_CHARS_MAX, Step};
use super::{APP, ConsentProvider, EXAMPLE_USERNAME, InstitutionOption};

/// The page of one step, with its form.
#[derive(Template)]
#[template(path = "step.html")]
struct StepPage<'a, S> {
    brand: &'static Brand,
    css: &'a str,
    title: String,
    number: u8,
    steps: u8,
    /// The form's target; `None` is the URL of the page itself.
    action: Option<&'a str>,
    institutions: Vec<InstitutionOption>,
    session: &'a ConsentSession<S>,
    /// The one-time code in two groups.
    code: String,
    /// The first button, which the Enter key presses. The institutions are buttons themselves.
    yes: Option<&'static str>,
}

/// A page without a form.
#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage<'a> {
    brand: &'static Brand,
    css: &'a str,
    title: &'a str,
    text: &'a str,
    link: Option<&'a str>,
    is_last: bool,
}

/// The one style sheet of a page, whose policy names its hash.
fn style_sheet(brand: &Brand) -> String {
    format!(
        ":root {{ --colour: {}; --tint: {}; }}\n{}",
        brand.colour,
        brand.tint,
        include_str!("page.css")
    )
}

/// Renders a page. The policy has no `form-action`: browsers apply it to every redirect after a
/// form, so it would have to list every URL that an app's redirect URI leads to.
fn render(brand: &Brand, css: &str, status: StatusCode, page: &impl Template) -> Response {
    let html = page.render().expect("a page can be written to memory");
    let hash = STANDARD.encode(digest(&SHA256, css.as_bytes()));
    let frames = if brand.framed { "*" } else { "'none'" };
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; base-uri 'none'; frame-ancestors {frames}"
    );
    let html_type = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    let policy = [(header::CONTENT_SECURITY_POLICY, policy)];
    let mut response = (status, html_type, policy, html).into_response();
    let headers = response.headers_mut();
    if !brand.framed {
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
    set_security_headers(headers);
    response
}

/// Headers of pages and redirects: they are not stored, and their URLs are not sent as referrers.
pub(super) fn set_security_headers(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// A page with a message and no form.
pub(super) fn message_page(
    brand: &'static Brand,
    status: StatusCode,
    title: &str,
    text: &str,
) -> Response {
    let css = style_sheet(brand);
    let page = MessagePage {
        brand,
        css: &css,
        title,
        text,
        link: None,
        is_last: false,
    };
    render(brand, &css, status, &page)
}

/// Renders the current step of a session.
pub(super) fn page<H: ConsentProvider>(
    provider: &H,
    session: &ConsentSession<H::AuthRequest>,
    action: Option<&str>,
) -> Response {
    let brand = Brand::of::<H>();
    let institutions = provider.institutions();
    let mut all = institutions.iter();
    let institution = all.find(|known| Some(known.id) == session.institution_id.as_deref());
    let institution = institution.map_or("", |known| known.name);
    // A fixed institution saves one step.
    let skipped_steps = u8::from(session.fixed_institution.is_some());
    let (number, title, yes) = match session.step {
        Step::Consent => (1, format!("{APP} asks to see your accounts"), Some("Allow")),
        Step::Institution => (2, format!("Choose your {}", brand.institution_word), None),
        Step::SignIn => (3, format!("Sign in to {institution}"), Some("Sign in")),
        Step::Accounts => (
            4,
            format!("Choose accounts at {institution}"),
            Some("Allow"),
        ),
        Step::Done => return final_page(brand, session.result.as_ref()),
    };
    let (first, last) = session.code.split_at(3);
    let css = style_sheet(brand);
    let page = StepPage {
        brand,
        css: &css,
        title,
        number: if number > 2 {
            number - skipped_steps
        } else {
            number
        },
        steps: 4 - skipped_steps,
        action,
        institutions,
        session,
        code: format!("{first} {last}"),
        yes,
    };
    render(brand, &css, StatusCode::OK, &page)
}

fn final_page(brand: &'static Brand, result: Option<&ConsentResult>) -> Response {
    let Some(result) = result else {
        return expired_page(brand);
    };
    let css = style_sheet(brand);
    let page = MessagePage {
        brand,
        css: &css,
        title: result.title,
        text: &result.text,
        link: result.location.as_deref().filter(|_| result.shows_page),
        is_last: true,
    };
    render(brand, &css, StatusCode::OK, &page)
}

/// The page for a session that has ended, has expired or never existed.
pub(super) fn expired_page(brand: &'static Brand) -> Response {
    let (status, title) = (StatusCode::BAD_REQUEST, "This link is no longer valid");
    message_page(brand, status, title, brand.expired_text)
}
