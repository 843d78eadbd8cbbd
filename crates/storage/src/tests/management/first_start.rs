use crate::tests::support::{TestDb, at, both};
use crate::{FirstStart, UserChange, in_tx};

async fn begin(db: &TestDb) -> bool {
    in_tx!(db, first_start::begin()).await.unwrap()
}

async fn set_code(db: &TestDb, code: &str, ends: i64) -> bool {
    in_tx!(db, first_start::set_code(code, at(ends)))
        .await
        .unwrap()
}

async fn claim(db: &TestDb, code: &str, browser: &str, now: i64) -> bool {
    in_tx!(db, first_start::claim(code, browser, at(now)))
        .await
        .unwrap()
}

async fn found(db: &TestDb) -> FirstStart {
    db.first_start().find().await.unwrap().unwrap()
}

both! {
    async fn code_is_claimed_once_and_in_time(db) {
        assert!(!set_code(db, "code", 60).await, "no first start");
        assert!(begin(db).await && !begin(db).await, "marked once");
        assert!(set_code(db, "code", 60).await);
        assert!(found(db).await.has_code("code", at(59)) && !found(db).await.has_code("code", at(60)));
        assert!(!claim(db, "cod", "browser", 1).await && !claim(db, "code", "browser", 60).await);
        assert!(claim(db, "code", "browser", 1).await && !claim(db, "code", "other", 1).await);
        let first = found(db).await;
        assert!(first.has_browser("browser", at(59)) && !first.has_browser("other", at(1)));
        assert!(!first.has_browser("browser", at(60)), "an hour in all");
        assert!(set_code(db, "next", 99).await);
        assert!(!found(db).await.has_browser("browser", at(1)), "a new code voids the claim");
        // Of two codes at once, one is left.
        tokio::join!(set_code(db, "first", 60), set_code(db, "second", 60));
        let left = found(db).await;
        assert!(left.has_code("first", at(1)) ^ left.has_code("second", at(1)));
        let (first, second) = tokio::join!(claim(db, "first", "a", 1), claim(db, "second", "b", 1));
        assert!(first ^ second);
    }

    async fn operator_ends_it_however_made(db) {
        begin(db).await;
        set_code(db, "code", 60).await;
        let user = db.user("a@x").await.id;
        assert!(found(db).await.has_code("code", at(1)), "a user is no operator");
        let operator = UserChange { is_operator: Some(true), ..UserChange::default() };
        db.change_user(user, &operator).await;
        assert!(!found(db).await.has_code("code", at(1)));
        assert!(!claim(db, "code", "browser", 1).await && !set_code(db, "next", 60).await);
    }

    async fn key_is_offered_to_an_operator_for_a_time(db) {
        begin(db).await;
        set_code(db, "code", 60).await;
        claim(db, "code", "browser", 1).await;
        assert!(!found(db).await.offers_key(at(1)), "nobody yet");
        assert!(in_tx!(db, first_start::leave_claim("browser", at(1), at(90))).await.unwrap());
        let user = db.user("a@x").await.id;
        let operator = UserChange { is_operator: Some(true), ..UserChange::default() };
        db.change_user(user, &operator).await;
        assert!(found(db).await.offers_key(at(89)) && !found(db).await.offers_key(at(90)));
        in_tx!(db, first_start::keep_key(at(2))).await.unwrap();
        assert!(!found(db).await.offers_key(at(3)));
    }

    async fn command_takes_a_first_start_that_has_not_changed(db) {
        let nothing = db.first_start().find().await.unwrap();
        assert!(in_tx!(db, first_start::take(nothing.as_ref(), at(1))).await.unwrap(), "no row yet");
        assert!(!in_tx!(db, first_start::take(nothing.as_ref(), at(2))).await.unwrap());
        let seen = found(db).await;
        assert!(seen.done_at == Some(at(1)) && !seen.awaits_operator());
        assert!(in_tx!(db, first_start::take(Some(&seen), at(3))).await.unwrap());
        assert!(!in_tx!(db, first_start::take(Some(&seen), at(4))).await.unwrap());
    }

    async fn command_and_form_make_one_operator(db) {
        begin(db).await;
        set_code(db, "code", 60).await;
        claim(db, "code", "browser", 1).await;
        let seen = found(db).await;
        assert!(in_tx!(db, first_start::leave_claim("browser", at(1), at(90))).await.unwrap());
        assert!(!in_tx!(db, first_start::take(Some(&seen), at(2))).await.unwrap(), "the form was first");
        let seen = found(db).await;
        assert!(in_tx!(db, first_start::take(Some(&seen), at(2))).await.unwrap());
        assert!(!in_tx!(db, first_start::leave_claim("browser", at(3), at(90))).await.unwrap());
    }

    async fn database_with_a_user_is_of_no_first_start(db) {
        db.user("a@x").await;
        assert!(!begin(db).await);
        assert!(db.first_start().find().await.unwrap().is_none());
    }
}
