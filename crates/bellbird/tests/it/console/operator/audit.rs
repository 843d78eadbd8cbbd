//! The audit, as a page and as a file.

use super::HOUR;
use crate::support::harness::{App, Setup};
use crate::support::words::assert_starts;

#[tokio::test]
async fn audit_is_filtered_and_downloaded() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let (olivia, ben) = (app.olivia.user.id, app.ben.user.id);
    for (user, form) in [
        (olivia, "plan=saver"),
        (ben, "plan=professional"),
        (ben, "end-sessions=yes"),
    ] {
        let page = format!("/operator/users/{user}");
        browser.try_submit(&page, form, 303).await;
    }
    let browser = app.sign_in(ben).await;
    for (query, rows) in [
        (String::new(), 3),
        ("what=user".to_owned(), 2),
        ("what=session".to_owned(), 1),
        ("what=key".to_owned(), 0),
        ("what=%25".to_owned(), 3),
        (format!("user={olivia}&by=operator"), 1),
        ("by=command".to_owned(), 0),
        (format!("by=operator:{ben}&days=1"), 3),
        (format!("by=operator:{olivia}"), 0),
        ("days=today".to_owned(), 3),
        ("days=yesterday".to_owned(), 0),
    ] {
        let page = browser.get(&format!("/operator/audit?{query}")).await;
        page.assert_status(200);
        let count = page.text.matches("<li>\n<span class=\"what\">").count();
        assert_eq!(count, rows, "{query}: {}", page.text);
        let file = browser.get(&format!("/operator/audit.csv?{query}")).await;
        file.assert_status(200);
        let lines = file.text.lines().count();
        assert_eq!(lines, rows + 1, "{query}: {}", file.text);
    }
    let of_user = "What happened to this user";
    let page = browser.get(&format!("/operator/audit?user={olivia}")).await;
    page.assert_has(of_user);
    // No id of a user, so all rows are listed.
    let page = browser.get("/operator/audit?user=nope").await;
    page.assert_lacks(of_user);
    let page = browser.get("/operator/audit").await;
    page.assert_has("</time>, 20:30");
    let by_ben = format!("<a href=\"?by=operator%3A{ben}\"><bdi>By ben@example.com</bdi></a>");
    page.assert_has(&by_ben);
    app.advance_clock(HOUR * 4);
    for (days, rows) in [("today", 0), ("yesterday", 3)] {
        let path = format!("/operator/audit.csv?days={days}");
        let file = browser.get(&path).await;
        assert_eq!(file.text.lines().count(), rows + 1, "{days}: {}", file.text);
    }
    let file = browser.get("/operator/audit.csv?what=user").await;
    let content_type = "text/csv; charset=utf-8; header=present";
    assert_eq!(file.headers["content-type"], content_type);
    let is_stream = !file.headers.contains_key("content-length");
    assert!(is_stream, "only a stream has a timeout");
    assert_starts(&file.text, "\u{feff}at,action,");
    let line = format!(
        ",user.update,{olivia},olivia@example.com,,plan: professional → saver,operator,{ben},\
         ben@example.com\r\n"
    );
    file.assert_has(&line);
}
