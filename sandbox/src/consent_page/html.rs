//! Renders the consent pages as HTML, with their security headers. All outside text passes through
//! [`escape`].

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, StatusCode, header};

use super::session::{ConsentResult, ConsentSession, Step};
use super::{Brand, ConsentProvider, InstitutionOption};

pub(super) struct Page {
    pub(super) status: StatusCode,
    pub(super) title: String,
    /// HTML in the corner of the header.
    pub(super) close: String,
    /// HTML.
    pub(super) body: String,
}

/// Escapes text for HTML, including attributes.
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

/// Renders a page. The policy has no `form-action`: browsers apply it to every redirect after a
/// form, so it would have to list every URL that an app's redirect URI leads to.
pub(super) fn render(brand: &Brand, page: &Page) -> Response {
    let css = format!(
        ":root {{ --colour: {}; --tint: {}; }}\n{}",
        brand.colour,
        brand.tint,
        include_str!("page.css")
    );
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
    let mut response = (
        page.status,
        [(header::CONTENT_TYPE, "text/html; charset=utf-8")],
        html,
    )
        .into_response();
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

/// Headers of pages and redirects: they are not stored, and their URLs are not sent as referrers.
pub(super) fn set_security_headers(headers: &mut http::HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
}

/// A page with a message and no form.
pub(super) fn message_page(status: StatusCode, title: &str, text: &str) -> Page {
    let body = format!("<h1>{}</h1>\n<p>{}</p>", escape(title), escape(text));
    Page {
        status,
        title: title.to_owned(),
        close: String::new(),
        body,
    }
}

/// Renders the current step of a session. `action` is the form's target; `None` is the URL of the
/// page itself.
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
    // A fixed institution saves one step.
    let skipped_steps = u8::from(session.fixed_institution.is_some());
    let number = match session.step {
        Step::Consent => 1,
        Step::Institution => 2,
        Step::SignIn => 3 - skipped_steps,
        Step::Accounts | Step::Done => 4 - skipped_steps,
    };
    let action = action
        .map(|action| format!(" action=\"{action}\""))
        .unwrap_or_default();
    let hidden = format!(
        "<input type=\"hidden\" name=\"session\" value=\"{}\">\
         <input type=\"hidden\" name=\"form_number\" value=\"{}\">",
        escape(&session.token),
        session.form_number
    );
    let wrong = session
        .message
        .as_ref()
        .map(|text| format!("<p class=\"wrong\" role=\"alert\">{}</p>\n", escape(text)));
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
    let close = if session.has_close_button {
        close
    } else {
        String::new()
    };
    Page {
        status: StatusCode::OK,
        title,
        close,
        body,
    }
}

fn institution_name<H: ConsentProvider>(
    provider: &H,
    session: &ConsentSession<H::AuthRequest>,
) -> String {
    let named = provider
        .institutions()
        .into_iter()
        .find(|institution| Some(&institution.id) == session.institution_id.as_ref());
    named
        .map(|institution| institution.name)
        .unwrap_or_default()
}

/// Renders two buttons. The Enter key presses the first one of a form.
fn buttons(yes: &str) -> String {
    format!(
        "<div class=\"buttons\"><button class=\"yes\" name=\"do\" value=\"allow\">{yes}</button>\
         <button class=\"no\" name=\"do\" value=\"cancel\" formnovalidate>Cancel</button></div>"
    )
}

fn consent_step(brand: &Brand) -> (String, String) {
    let permissions: String = brand
        .permissions
        .iter()
        .map(|permission| format!("<li>{permission}</li>"))
        .collect();
    let inner = format!(
        "<p>{} asks through {} for:</p>\n<ul>{permissions}</ul>\n<p>On the next pages you choose your institution \
         and the accounts to share.</p>\n<p class=\"help\">{}</p>\n{}",
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
            "<button class=\"institution\" name=\"institution\" value=\"{}\"{off}>{}{small}</button>",
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
         <p class=\"help\" id=\"name-help\">Any name works. The e-mail address of a sandbox user, \
         such as {}, signs in as that user; any other name creates a new one.</p>\n\
         <input class=\"gap\" type=\"text\" id=\"name\" name=\"name\" value=\"{}\" required maxlength=\"{}\" \
         autocomplete=\"username\" autocapitalize=\"none\" spellcheck=\"false\" aria-describedby=\"name-help\">\n\
         <label class=\"field\" for=\"code\">One-time code</label>\n\
         <p class=\"help\" id=\"code-help\">A real institution would send you one. Here it is: \
         <span class=\"code\">{first} {last}</span></p>\n\
         <input type=\"text\" id=\"code\" name=\"code\" required inputmode=\"numeric\" maxlength=\"16\" \
         autocomplete=\"one-time-code\" aria-describedby=\"code-help\">\n\
         <p class=\"help below\">To test failures: with 000000 the institution is unavailable, with 111111 it \
         rejects the login.</p>\n{}",
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
    let Some(result) = result else {
        return expired_page(brand);
    };
    let link = match (&result.location, result.shows_page) {
        (Some(location), true) => format!(
            "<div class=\"buttons\"><a class=\"yes\" href=\"{}\" rel=\"noreferrer\">Return to {}</a></div>",
            escape(location),
            super::APP
        ),
        _ => "<p>You may close this window.</p>".to_owned(),
    };
    let body = format!(
        "<h1>{}</h1>\n<p>{}</p>\n{link}",
        escape(&result.title),
        escape(&result.text)
    );
    Page {
        status: StatusCode::OK,
        title: result.title.clone(),
        close: String::new(),
        body,
    }
}

/// The page for a session that has ended, has expired or never existed.
pub(super) fn expired_page(brand: &Brand) -> Page {
    message_page(
        StatusCode::BAD_REQUEST,
        "This link is no longer valid",
        brand.expired_text,
    )
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn html_special_characters_are_escaped() {
        assert_eq!(
            escape("<b a='1' c=\"2\">&</b>é"),
            "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;&lt;/b&gt;é"
        );
    }
}
