//! Renders the consent pages as HTML, with their security headers. All outside text passes through
//! [`escape`].

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, StatusCode, header};

use super::brand::Brand;
use super::session::{ConsentResult, ConsentSession, NAME_CHARS_MAX, Step};
use super::{APP, ConsentProvider, EXAMPLE_USERNAME, InstitutionOption};

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
    let brand = Brand::of::<H>();
    let institution = || institution_name(provider, session);
    let (title, fields) = match session.step {
        Step::Consent => consent_step(brand),
        Step::Institution => institution_step(brand, &provider.institutions()),
        Step::SignIn => sign_in_step(institution(), session),
        Step::Accounts => accounts_step(institution(), session),
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
        .map(|text| format!("<p class=\"wrong\" role=\"alert\">{}</p>", escape(text)));
    let body = format!(
        include_str!("step.html"),
        number = number,
        steps = 4 - skipped_steps,
        title = escape(&title),
        wrong = wrong.unwrap_or_default(),
        action = action,
        hidden = hidden,
        fields = fields,
    );
    let close = format!(
        "<form class=\"close\" method=\"post\"{action}>{hidden}\
         <button name=\"do\" value=\"close\">Close</button></form>"
    );
    Page {
        status: StatusCode::OK,
        title,
        close: if session.has_close_button {
            close
        } else {
            String::new()
        },
        body,
    }
}

fn institution_name<H: ConsentProvider>(
    provider: &H,
    session: &ConsentSession<H::AuthRequest>,
) -> &'static str {
    let mut all = provider.institutions().into_iter();
    let named = all.find(|known| Some(known.id) == session.institution_id.as_deref());
    named.map_or("", |institution| institution.name)
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
    let fields = format!(
        include_str!("consent.html"),
        app = APP,
        brand = brand.name,
        permissions = permissions,
        note = brand.note,
        buttons = buttons("Allow"),
    );
    (format!("{APP} asks to see your accounts"), fields)
}

fn institution_step(brand: &Brand, institutions: &[InstitutionOption]) -> (String, String) {
    let mut fields = String::from("<fieldset><legend>All of them are invented</legend>\n");
    for InstitutionOption { id, name, note } in institutions {
        let (id, name) = (escape(id), escape(name));
        let (off, small) = match note {
            Some(note) => (" disabled", format!("<small>{note}</small>")),
            None => ("", String::new()),
        };
        let _ = writeln!(
            fields,
            "<button class=\"institution\" name=\"institution\" value=\"{id}\"{off}>{name}{small}</button>"
        );
    }
    fields.push_str(
        "</fieldset>\n<div class=\"buttons\"><button class=\"no\" name=\"do\" value=\"cancel\">Cancel</button></div>",
    );
    (format!("Choose your {}", brand.institution_word), fields)
}

fn sign_in_step<S>(institution: &str, session: &ConsentSession<S>) -> (String, String) {
    let (first, last) = session.code.split_at(3);
    let code = format!("{first} {last}");
    let fields = format!(
        include_str!("sign_in.html"),
        example = EXAMPLE_USERNAME,
        name = escape(&session.name),
        name_chars = NAME_CHARS_MAX,
        code = code,
        buttons = buttons("Sign in"),
    );
    (format!("Sign in to {institution}"), fields)
}

fn accounts_step<S>(institution: &str, session: &ConsentSession<S>) -> (String, String) {
    let mut fields = format!(
        "<p>You are signed in as <strong>{}</strong>.</p>\n<fieldset><legend>Accounts that {APP} may see</legend>\n",
        escape(&session.display_name)
    );
    for (index, offer) in session.offers.iter().enumerate() {
        let _ = writeln!(
            fields,
            "<label class=\"choice\"><input type=\"checkbox\" name=\"account\" value=\"{index}\" checked>\
             <span>{}<small>{}</small></span></label>",
            escape(&offer.name),
            escape(&offer.detail)
        );
    }
    fields.push_str("</fieldset>\n");
    fields.push_str(&buttons("Allow"));
    (format!("Choose accounts at {institution}"), fields)
}

fn final_page(brand: &Brand, result: Option<&ConsentResult>) -> Page {
    let Some(result) = result else {
        return expired_page(brand);
    };
    let link = match (&result.location, result.shows_page) {
        (Some(location), true) => format!(
            "<div class=\"buttons\"><a class=\"yes\" href=\"{}\" rel=\"noreferrer\">Return to {APP}</a></div>",
            escape(location)
        ),
        _ => "<p>You may close this window.</p>".to_owned(),
    };
    let mut page = message_page(StatusCode::OK, result.title, &result.text);
    page.body = format!("{}\n{link}", page.body);
    page
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
