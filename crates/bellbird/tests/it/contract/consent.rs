//! The end of a consent, however it comes.

use bellbird_domain::ConnectionStatus;
use bellbird_providers::{Error, Standing};

use super::stage::{Asked, Stage, What, call, read, walk};

const REVOKED: Error = Error::ReconnectNeeded(ConnectionStatus::Revoked);

promise! {
    async fn a_lost_consent_is_known_by_every_read(stage) {
        let ways = (stage.subject.revoke)(&stage.links().await[0].members).len();
        for way in 0..ways {
            // Everything anew, as the first way leaves nothing to lose.
            let stage = Stage::start(stage.subject).await;
            let link = stage.links().await.remove(0);
            let accounts = [stage.account_with_rows(&link, 3).await];
            let asked = Asked::all(&link.grant, &accounts, 100);
            stage.control((stage.subject.revoke)(&link.members).remove(way)).await;
            for what in stage.whats() {
                let expected = match what {
                    // A grant that nobody honours covers nothing, or is said to be gone.
                    What::Discover => continue,
                    What::Standing => Ok(()),
                    _ => Err(REVOKED),
                };
                assert_eq!(read(&*stage.provider, &call(), &asked, what).await, expected, "{what:?}");
            }
            let standing = stage.provider.standing(&call(), &link.grant).await;
            assert_eq!(standing, Ok(Standing::Broken(ConnectionStatus::Revoked)));
        }
    }
}

promise! {
    async fn an_expired_consent_is_said_to_be_that(stage) {
        let links = stage.links().await;
        stage.control((stage.subject.expire)(&links[0].members)).await;
        let standing = async |at: usize| stage.provider.standing(&call(), &links[at].grant).await;
        assert_eq!(standing(0).await, Ok(Standing::Broken(ConnectionStatus::Invalidated)));
        assert_eq!(standing(1).await, Ok(Standing::Active), "the same user's other one works");
    }
}

promise! {
    async fn withdrawing_ends_the_consent_and_can_be_done_again(stage) {
        let links = stage.links().await;
        let mut accounts = Vec::new();
        for link in &links[..2] {
            accounts.push([stage.account_with_rows(link, 3).await]);
        }
        assert_eq!(stage.provider.withdraw(&call(), &links[0].grant).await, Ok(()));
        stage.a_moment_later().await;
        let standing = async |at: usize| stage.provider.standing(&call(), &links[at].grant).await;
        assert_eq!(standing(0).await, Ok(Standing::Broken(ConnectionStatus::Revoked)));
        let rows = async |at: usize| walk(&*stage.provider, &Asked::all(&links[at].grant, &accounts[at], 100)).await;
        assert_eq!(rows(0).await, Err(REVOKED));
        assert_eq!(stage.provider.withdraw(&call(), &links[0].grant).await, Ok(()), "done already");
        // The same user's other consent is not touched.
        assert_eq!(standing(1).await, Ok(Standing::Active));
        assert_eq!(rows(1).await.map(|rows| rows.len()), Ok(3));
    }
}
