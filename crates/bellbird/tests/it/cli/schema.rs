//! A database that this version cannot upgrade: every command that opens it says so.

use super::instances::migrated;
use crate::support::database::execute;
use crate::support::harness::{Database, also_on_postgres};
use crate::support::process::{ANY_PORTS, Workdir};
use crate::support::words::assert_has;

const REASON: &str = "the database was made by an unreleased or older version of Bellbird, or by another program, and \
                      this version cannot upgrade it (schema_migrations lacks a column): go back to the version that \
                      made it, restore a backup of this version, or name an empty database in database.url";

fn database_check(workdir: &Workdir) -> String {
    workdir.doctor("database").remove(0)
}

#[tokio::test]
async fn unknown_schema_is_explained() {
    let database = Database::of_test();
    let (mut workdir, url) = migrated(database).await;
    let is_file = url.starts_with("sqlite:");
    if is_file {
        workdir.json("backup before.db");
    }
    execute(
        &url,
        "ALTER TABLE schema_migrations DROP COLUMN oldest_compatible",
        "",
    )
    .await;
    for command in ["migrate", "user list", &format!("serve {ANY_PORTS}")] {
        let error = workdir.error(command, 1);
        assert_has(&error, REASON);
    }
    assert!(
        database_check(&workdir).ends_with(REASON),
        "{}",
        database_check(&workdir)
    );
    if is_file {
        // As a backup, it is rejected too, while one of this version takes its place.
        let path = url.strip_prefix("sqlite:").unwrap().to_owned();
        workdir.set("BELLBIRD_DATABASE__URL", "sqlite:new.db");
        let error = workdir.error(&format!("restore {path}"), 1);
        assert_eq!(error, format!("error: nothing was restored: {REASON}"));
        workdir.set("BELLBIRD_DATABASE__URL", &url);
        workdir.json("restore before.db");
        assert_eq!(workdir.json("user list").as_array().unwrap().len(), 0);
    }
}

also_on_postgres! { unknown_schema_is_explained }
