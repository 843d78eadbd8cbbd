use bellbird_domain::{Account, AccountId, AccountType, Currency};

use crate::NewAccount;
use crate::tests::support::{assert_fails, at, both, currency, masked, new_account};

const NAMES: [&str; 9] = [
    "savings", "Zed", "Äpfel", "apple", "Zed", "école", "日本", "Apple", "-dash",
];

fn names(accounts: &[Account]) -> Vec<&str> {
    accounts
        .iter()
        .map(|account| account.name.as_str())
        .collect()
}

both! {
    async fn sorts_by_code_point_then_id(db) {
        let user = db.user("a@x").await;
        let ids: Vec<String> = (0..NAMES.len()).map(|number| format!("acc_{number}")).collect();
        let new: Vec<_> = ids.iter().zip(NAMES).map(|(id, name)| new_account(id, name)).collect();
        db.connection(user.id, "c1", &new[..5]).await;
        db.connection(user.id, "c2", &new[5..]).await;
        let (all, total) = db.accounts().list(user.id, 100, 0).await.unwrap();
        assert_eq!(names(&all), ["-dash", "Apple", "Zed", "Zed", "apple", "savings", "Äpfel", "école", "日本"]);
        assert!(all[2].id < all[3].id);
        assert_eq!(total, 9);
        for limit in 1..=10_u32 {
            for offset in 0..=11_u64 {
                let (page, total) = db.accounts().list(user.id, limit, offset).await.unwrap();
                let expected: Vec<_> = all.iter().skip(offset as usize).take(limit as usize).cloned().collect();
                assert_eq!((page, total), (expected, 9), "limit {limit} offset {offset}");
            }
        }
        assert_eq!(db.accounts().list(user.id, 10, u64::MAX).await.unwrap(), (vec![], 9));
        assert_eq!(db.accounts().list(user.id, 0, 0).await.unwrap(), (vec![], 9));
        assert_eq!(db.accounts().list(user.id, u32::MAX, 0).await.unwrap().1, 9);
    }

    async fn account_is_stored_as_given(db) {
        let user = db.user("a@x").await;
        let number = masked("123-456-7890");
        let new = NewAccount {
            provider_account_id: "acc_1",
            name: "O'Brien's \"card\" 💳",
            account_type: AccountType::CreditCard,
            number: Some(&number),
            currency: Some(currency("NZD")),
            known_as: None,
        };
        let connection = db.connection(user.id, "c", &[new]).await;
        let accounts = db.visible_accounts(user.id).await;
        let expected = Account {
            id: accounts[0].id,
            user_id: user.id,
            connection_id: connection.id,
            provider: "akahu".to_owned(),
            provider_account_id: "acc_1".to_owned(),
            name: "O'Brien's \"card\" 💳".to_owned(),
            account_type: AccountType::CreditCard,
            institution_name: Some("First Bank".to_owned()),
            number: Some(number.clone()),
            currency: currency("NZD"),
        };
        assert_eq!(accounts, std::slice::from_ref(&expected));
        assert_eq!(db.accounts().find(user.id, &[expected.id]).await.unwrap(), std::slice::from_ref(&expected));
        assert_eq!(db.accounts().list_of_connection(user.id, connection.id).await.unwrap(), [expected]);
        assert_eq!(db.accounts().count().await.unwrap(), [(connection.id, 1)].into());
        for (column, word, what) in [
            ("account_type", "chequing", "an account type"),
            ("currency", "DOLLARS", "a currency"),
            ("masked_number", "12", "an account number"),
        ] {
            let before = db.texts(&format!("SELECT {column} FROM accounts")).await;
            db.raw(&format!("UPDATE accounts SET {column} = '{word}'")).await;
            assert_fails!(db.accounts().list(user.id, 10, 0).await, Corrupt(part) if *part == what);
            db.raw(&format!("UPDATE accounts SET {column} = '{}'", before[0])).await;
        }
        assert_eq!(db.visible_accounts(user.id).await, accounts);
    }

    async fn finds_only_the_users_accounts(db) {
        let (user, other) = (db.user("a@x").await, db.user("b@x").await);
        let ids: Vec<String> = (0..30).map(|number| format!("acc_{number}")).collect();
        let new: Vec<_> = ids.iter().map(|id| new_account(id, id)).collect();
        db.connection(user.id, "c1", &new).await;
        db.connection(other.id, "c2", &new[..1]).await;
        let all = db.visible_accounts(user.id).await;
        let of_other_user = db.visible_accounts(other.id).await[0].id;
        for count in [0, 1, 2, 7, 8, 9, 20, 30] {
            let mut requested: Vec<AccountId> = all.iter().take(count).map(|account| account.id).collect();
            assert_eq!(db.accounts().find(user.id, &requested).await.unwrap(), all[..count], "{count}");
            requested.reverse();
            requested.extend([of_other_user, AccountId::new()]);
            requested.extend(requested.clone());
            assert_eq!(db.accounts().find(user.id, &requested).await.unwrap(), all[..count], "{count} and unknown ids");
        }
    }

    async fn refresh_writes_only_differences(db) {
        let user = db.user("a@x").await;
        let new = [new_account("acc_1", "One"), new_account("acc_2", "Two"), new_account("acc_3", "Three")];
        let connection = db.connection(user.id, "c", &new).await.id;
        let before = db.visible_accounts(user.id).await;
        assert!(db.refresh((user.id, connection), &new, true, at(20)).await);
        assert_eq!(db.visible_accounts(user.id).await, before);
        assert_eq!(db.revision(user.id).await, 1, "no account changed");
        let refreshed = db.connections().find(user.id, connection).await.unwrap().unwrap().last_refreshed_at;
        assert_eq!(refreshed, Some(at(20)));

        let number = masked("xx 4321");
        let changed = NewAccount { name: "Deux", number: Some(&number), ..new[1] };
        assert!(db.refresh((user.id, connection), &[changed], false, at(30)).await);
        let after = db.visible_accounts(user.id).await;
        assert_eq!(names(&after), ["Deux", "One", "Three"], "no account was deleted");
        assert_eq!(Some(after[0].id), before.iter().find(|account| account.name == "Two").map(|account| account.id));
        assert_eq!((after[0].number.as_ref(), db.revision(user.id).await), (Some(&number), 2));

        let fourth = new_account("acc_4", "Four");
        assert!(db.refresh((user.id, connection), &[fourth, changed, fourth], true, at(40)).await);
        assert_eq!(names(&db.visible_accounts(user.id).await), ["Deux", "Four", "One", "Three"], "two are missing");
        assert_eq!(db.revision(user.id).await, 3, "one increment for all changes");
        assert!(db.refresh((user.id, connection), &[fourth, changed], true, at(3_700)).await);
        assert_eq!(names(&db.visible_accounts(user.id).await), ["Deux", "Four"]);
        assert_eq!(db.revision(user.id).await, 4, "one increment for both");
        assert!(db.refresh((user.id, connection), &[], true, at(3_800)).await);
        assert!(db.refresh((user.id, connection), &[], true, at(7_500)).await);
        assert_eq!(db.accounts().list(user.id, 10, 0).await.unwrap(), (vec![], 0));
        assert_eq!(db.revision(user.id).await, 5);
    }

    async fn unknown_currency_is_set_once(db) {
        let user = db.user("a@x").await;
        let new = new_account("acc_1", "One");
        let connection = db.connection(user.id, "c", &[new]).await.id;
        let id = db.visible_accounts(user.id).await[0].id;
        let now = async || db.visible_accounts(user.id).await[0].currency;
        assert_eq!(now().await, Currency::UNKNOWN);
        db.accounts().set_currency(user.id, id, Currency::UNKNOWN).await.unwrap();
        assert_eq!(db.revision(user.id).await, 1);
        db.accounts().set_currency(user.id, id, currency("AUD")).await.unwrap();
        assert_eq!((now().await, db.revision(user.id).await), (currency("AUD"), 2));
        db.accounts().set_currency(user.id, id, currency("USD")).await.unwrap();
        assert_eq!((now().await, db.revision(user.id).await), (currency("AUD"), 2), "the currency was known");
        assert!(db.refresh((user.id, connection), &[new], true, at(20)).await);
        let unknown = NewAccount { currency: Some(Currency::UNKNOWN), ..new };
        assert!(db.refresh((user.id, connection), &[unknown], true, at(20)).await);
        assert_eq!((now().await, db.revision(user.id).await), (currency("AUD"), 2), "unknown keeps a known one");
        let listed = NewAccount { currency: Some(currency("NZD")), ..new };
        assert!(db.refresh((user.id, connection), &[listed], true, at(20)).await);
        assert_eq!((now().await, db.revision(user.id).await), (currency("NZD"), 3), "the listed one replaces it");
    }

    async fn nul_characters_are_stripped(db) {
        let user = db.user("a@x").await;
        let new = new_account("acc\0_1", "zero\0byte\u{feff}\u{202e}");
        let connection = db.connection(user.id, "con\0sent", &[new]).await;
        assert_eq!(db.visible_accounts(user.id).await[0].name, "zerobyte\u{feff}\u{202e}");
        assert!(db.refresh((user.id, connection.id), &[new], true, at(20)).await);
        assert_eq!(db.connection(user.id, "con\0sent", &[new]).await.id, connection.id);
        assert_eq!(db.visible_accounts(user.id).await.len(), 1);
    }
}
