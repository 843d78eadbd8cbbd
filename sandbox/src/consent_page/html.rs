//! The pages as HTML, and the headers that go with them. Whatever comes from outside passes [`escape`].

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, StatusCode, header};

use super::session::{ConsentResult, ConsentSession, Step};
use super::{Brand, ConsentProvider, InstitutionOption};

/// One page: a title, and what stands under it.
pub(super) struct Page {
    pub(super) status: StatusCode,
    pub(super) title: String,
    /// HTML in the corner of the head.
    pub(super) close: String,
    /// HTML.
    pub(super) body: String,
}

/// Text as it may stand in HTML, in an attribute too.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// The page as an answer. There is no `form-action` in the policy: browsers apply it to every redirect after a form, so
/// it would have to name all that an app's own address leads on to.
pub(super) fn render(brand: &Brand, page: &Page) -> Response {
    let css = format!(":root {{ --colour: {}; --tint: {}; }}\n{}", brand.colour, brand.tint, include_str!("page.css"));
    let html = format!(
        include_str!("frame.html"),
        title = escape(&page.title),
        brand = brand.name,
        initial = brand.name.chars().next().unwrap_or('?'),
        css = css,
        close = page.close,
        body = page.body,
    );
    let hash = STANDARD.encode(digest(&SHA256, css.as_bytes()));
    let frames = if brand.framed { "*" } else { "'none'" };
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; base-uri 'none'; frame-ancestors {frames}"
    );
    let mut response = (page.status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response();
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    if !brand.framed {
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
    set_security_headers(headers);
    response
}

/// What pages and redirects have in common: nobody keeps them, and no address of theirs is passed on.
pub(super) fn set_security_headers(headers: &mut http::HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// A page without a form, for what is in the way.
pub(super) fn message_page(status: StatusCode, title: &str, text: &str) -> Page {
    let body = format!("<h1>{}</h1>\n<p>{}</p>", escape(title), escape(text));
    Page { status, title: title.to_owned(), close: String::new(), body }
}

/// What a visit shows now. `action` is where its form goes, `None` for the address of the page itself.
pub(super) fn page<H: ConsentProvider>(
    provider: &H,
    session: &ConsentSession<H::AuthRequest>,
    action: Option<&str>,
) -> Page {
    let brand = &H::BRAND;
    let (title, inner) = match session.step {
        Step::Consent => consent_step(brand),
        Step::Institution => institution_step(brand, &provider.institutions()),
        Step::SignIn => sign_in_step(&institution_name(provider, session), session),
        Step::Accounts => accounts_step(&institution_name(provider, session), session),
        Step::Done => return final_page(brand, session.result.as_ref()),
    };
    // Without the list of institutions there is one page less.
    let skipped_steps = u8::from(session.fixed_institution.is_some());
    let number = match session.step {
        Step::Consent => 1,
        Step::Institution => 2,
        Step::SignIn => 3 - skipped_steps,
        Step::Accounts | Step::Done => 4 - skipped_steps,
    };
    let action = action.map(|action| format!(" action=\"{action}\"")).unwrap_or_default();
    let hidden = format!(
        "<input type=\"hidden\" name=\"session\" value=\"{}\">\
         <input type=\"hidden\" name=\"form_number\" value=\"{}\">",
        escape(&session.token),
        session.form_number
    );
    let wrong =
        session.message.as_ref().map(|text| format!("<p class=\"wrong\" role=\"alert\">{}</p>\n", escape(text)));
    let body = format!(
        "<p class=\"step\">Step {number} of {}</p>\n<h1>{}</h1>\n{}\
         <form method=\"post\"{action}>{hidden}\n{inner}\n</form>",
        4 - skipped_steps,
        escape(&title),
        wrong.unwrap_or_default(),
    );
    let close = format!(
        "<form class=\"close\" method=\"post\"{action}>{hidden}\
         <button name=\"do\" value=\"close\">Close</button></form>"
    );
    let close = if session.has_close_button { close } else { String::new() };
    Page { status: StatusCode::OK, title, close, body }
}

fn institution_name<H: ConsentProvider>(provider: &H, session: &ConsentSession<H::AuthRequest>) -> String {
    let named = provider
        .institutions()
        .into_iter()
        .find(|institution| Some(&institution.id) == session.institution_id.as_ref());
    named.map(|institution| institution.name).unwrap_or_default()
}

/// Two buttons. The first of a form is the one that the return key presses.
fn buttons(yes: &str) -> String {
    format!(
        "<div class=\"buttons\"><button class=\"yes\" name=\"do\" value=\"allow\">{yes}</button>\
         <button class=\"no\" name=\"do\" value=\"cancel\" formnovalidate>Cancel</button></div>"
    )
}

fn consent_step(brand: &Brand) -> (String, String) {
    let permissions: String = brand.permissions.iter().map(|permission| format!("<li>{permission}</li>")).collect();
    let inner = format!(
        "<p>{} asks through {} for:</p>\n<ul>{permissions}</ul>\n<p>On the next pages you say where your accounts are, \
         and which of them it may see.</p>\n<p class=\"help\">{}</p>\n{}",
        super::APP,
        brand.name,
        brand.note,
        buttons("Allow")
    );
    (format!("{} asks to see your accounts", super::APP), inner)
}

fn institution_step(brand: &Brand, institutions: &[InstitutionOption]) -> (String, String) {
    let mut inner = String::from("<fieldset><legend>All of them are invented</legend>\n");
    for institution in institutions {
        let (off, small) = match institution.note {
            Some(note) => (" disabled", format!("<small>{note}</small>")),
            None => ("", String::new()),
        };
        let _ = writeln!(
            inner,
            "<button class=\"place\" name=\"institution\" value=\"{}\"{off}>{}{small}</button>",
            escape(&institution.id),
            escape(&institution.name)
        );
    }
    inner.push_str(
        "</fieldset>\n<div class=\"buttons\"><button class=\"no\" name=\"do\" value=\"cancel\">Cancel</button></div>",
    );
    (format!("Choose your {}", brand.institution_word), inner)
}

fn sign_in_step<S>(institution: &str, session: &ConsentSession<S>) -> (String, String) {
    let (first, last) = session.code.split_at(3);
    let inner = format!(
        "<label class=\"field\" for=\"name\">User name</label>\n\
         <p class=\"help\" id=\"name-help\">Any name will do. The e-mail address of somebody whom the sandbox knows, \
         such as {}, is that person; every other name is a new one.</p>\n\
         <input class=\"gap\" type=\"text\" id=\"name\" name=\"name\" value=\"{}\" required maxlength=\"{}\" \
         autocomplete=\"username\" autocapitalize=\"none\" spellcheck=\"false\" aria-describedby=\"name-help\">\n\
         <label class=\"field\" for=\"code\">One-time code</label>\n\
         <p class=\"help\" id=\"code-help\">A real one would be sent to you. Here it is: <span class=\"code\">{first} \
         {last}</span></p>\n\
         <input type=\"text\" id=\"code\" name=\"code\" required inputmode=\"numeric\" maxlength=\"16\" \
         autocomplete=\"one-time-code\" aria-describedby=\"code-help\">\n\
         <p class=\"help below\">To try out failures: 000000 is an institution that does not answer, 111111 one that \
         does not let you in.</p>\n{}",
        super::EXAMPLE_USERNAME,
        escape(&session.name),
        super::session::NAME_CHARS_MAX,
        buttons("Sign in")
    );
    (format!("Sign in to {institution}"), inner)
}

fn accounts_step<S>(institution: &str, session: &ConsentSession<S>) -> (String, String) {
    let mut inner = format!(
        "<p>You are signed in as <strong>{}</strong>.</p>\n<fieldset><legend>Accounts that {} may see</legend>\n",
        escape(&session.display_name),
        super::APP
    );
    for (index, offer) in session.offers.iter().enumerate() {
        let _ = writeln!(
            inner,
            "<label class=\"choice\"><input type=\"checkbox\" name=\"account\" value=\"{index}\" checked>\
             <span>{}<small>{}</small></span></label>",
            escape(&offer.name),
            escape(&offer.detail)
        );
    }
    inner.push_str("</fieldset>\n");
    inner.push_str(&buttons("Allow"));
    (format!("Choose accounts at {institution}"), inner)
}

fn final_page(brand: &Brand, result: Option<&ConsentResult>) -> Page {
    let Some(result) = result else { return expired_page(brand) };
    let link = match (&result.location, result.shows_page) {
        (Some(location), true) => format!(
            "<div class=\"buttons\"><a class=\"yes\" href=\"{}\" rel=\"noreferrer\">Return to {}</a></div>",
            escape(location),
            super::APP
        ),
        _ => "<p>You may close this window.</p>".to_owned(),
    };
    let body = format!("<h1>{}</h1>\n<p>{}</p>\n{link}", escape(&result.title), escape(&result.text));
    Page { status: StatusCode::OK, title: result.title.clone(), close: String::new(), body }
}

/// For a visit that is over, too late, or never was.
pub(super) fn expired_page(brand: &Brand) -> Page {
    message_page(StatusCode::BAD_REQUEST, "This link is not valid any more", brand.expired_text)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn html_special_characters_are_escaped() {
        assert_eq!(escape("<b a='1' c=\"2\">&</b>é"), "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;&lt;/b&gt;é");
    }
}
