// Generated from docs/openapi.json by `npm run generate`.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export type components = {
    schemas: {
        /** @description One account of a connection. */
        Account: {
            /**
             * @description `xxxx` and the last four digits. The full number is never stored.
             * @example xxxx1234
             */
            accountNumber: string | null;
            /**
             * Format: uuid
             * @description The account's connection.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            connectionId: string;
            /**
             * @description ISO 4217 code; `XXX` until the provider reports one.
             * @example AUD
             */
            currency: string;
            /**
             * Format: uuid
             * @description Identifier, a UUID assigned by this service.
             * @example 0191e7a0-91d4-7a01-8000-00aabbccddee
             */
            id: string;
            /**
             * @description Display name of the institution.
             * @example Wattle Bank
             */
            institutionName: string | null;
            /**
             * @description Display name.
             * @example Everyday Account
             */
            name: string;
            /**
             * @description The connection's provider. Null only for legacy accounts, of which this service has none.
             * @example fiskil
             */
            provider: string | null;
            /**
             * @description The kind of account.
             * @example transaction
             * @enum {string}
             */
            type: "transaction" | "savings" | "credit-card" | "loan" | "investment" | "term-deposit" | "other";
        };
        /** @description A window of the accounts, sorted by name. */
        AccountList: {
            /** @description The accounts in the window. */
            data: components["schemas"]["Account"][];
            /** @description The position of this window in the list. */
            pagination: components["schemas"]["Pagination"];
        };
        /** @description The balance of one account. All three values are null if the read failed for this account. */
        Balance: {
            /**
             * Format: uuid
             * @description The account.
             * @example 0191e7a0-91d4-7a01-8000-00aabbccddee
             */
            accountId: string;
            /**
             * @description Available funds, an exact decimal with the provider's digits.
             * @example 1500.00
             */
            availableBalance: string | null;
            /**
             * @description ISO 4217 code of both balances.
             * @example AUD
             */
            currency: string | null;
            /**
             * @description Exact decimal with the provider's digits; negative when money is owed.
             * @example -250.00
             */
            currentBalance: string | null;
            /**
             * @description If the read failed, why, in the words of the header `Bellbird-Error`.
             * @example reconnect_required
             */
            error?: string;
        };
        /** @description One entry for each requested account, in no particular order. */
        BalanceList: {
            /** @description The balances. */
            data: components["schemas"]["Balance"][];
        };
        /** @description A transaction category. */
        Category: {
            /**
             * @description The code used in a transaction's `category`.
             * @example FOOD_AND_DRINK
             * @enum {string}
             */
            key: "BANK_FEES" | "ENTERTAINMENT" | "FOOD_AND_DRINK" | "GOVERNMENT_AND_NON_PROFIT" | "HOME_IMPROVEMENT" | "INCOME" | "LOAN_PAYMENTS" | "MEDICAL" | "MERCHANDISE" | "PERSONAL_CARE" | "RENT_AND_UTILITIES" | "SERVICES" | "TRANSFER_IN" | "TRANSFER_OUT" | "TRANSPORTATION" | "TRAVEL";
            /**
             * @description Display name of the category.
             * @example Food & Drink
             */
            label: string;
        };
        /** @description All sixteen categories. */
        CategoryList: {
            /** @description The categories, sorted by key. */
            categories: components["schemas"]["Category"][];
        };
        /** @description A link between the user and one institution through one provider. */
        Connection: {
            /**
             * @description The kind of institution.
             * @example banking
             * @enum {string}
             */
            category: "banking" | "brokerage";
            /**
             * Format: date-time
             * @description When the user's consent ends unless they renew it, or when it ended, RFC 3339 in UTC. Null
             *     if the provider does not say.
             * @example 2027-08-01T02:10:00Z
             */
            consentExpiresAt: string | null;
            /**
             * Format: date-time
             * @description When the connection was linked, RFC 3339 in UTC.
             * @example 2026-08-01T02:10:00.25Z
             */
            createdAt: string;
            /**
             * Format: uuid
             * @description Identifier, a UUID assigned by this service.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * @description The provider's identifier of the institution. Opaque.
             * @example 22
             */
            institutionId: string;
            /**
             * Format: uri
             * @description URL of the institution's logo.
             * @example https://cdn.example/logos/22.svg
             */
            institutionLogo: string | null;
            /**
             * @description Display name of the institution.
             * @example Wattle Bank
             */
            institutionName: string;
            /**
             * Format: date-time
             * @description When the provider last returned data, RFC 3339 in UTC.
             * @example 2026-11-20T21:04:11.52Z
             */
            lastRefreshedAt: string | null;
            /**
             * @description The provider of the data, such as `fiskil` (Australian banking).
             * @example fiskil
             * @enum {string}
             */
            provider: "fiskil" | "akahu" | "snaptrade";
            /**
             * @description `active`: readable. `invalidated`: credentials or consent expired, the user must reconnect.
             *     `pending_mfa`: the institution is waiting for the user. `revoked`: consent was withdrawn.
             * @example active
             * @enum {string}
             */
            status: "active" | "invalidated" | "pending_mfa" | "revoked";
        };
        ConnectionChanges: {
            /**
             * @description Always empty.
             * @example []
             */
            new: components["schemas"]["EventConnection"][];
            /**
             * @description Rows that are gone, in events of their own. From version 2026-12-01 of the body on, which only then sends such events.
             * @example []
             */
            removed?: components["schemas"]["RemovedRow"][];
            /** @description The connection, once. */
            updated: components["schemas"]["EventConnection"][];
        };
        ConnectionCreated: {
            /**
             * @description The form of the body, as the endpoint asks for it.
             * @example 2026-11-01
             * @enum {string}
             */
            api_version: "2026-11-01" | "2026-12-01";
            /**
             * Format: int64
             * @description When the sync made the event, or the status changed, in seconds since 1970.
             * @example 1795266244
             */
            created: number;
            /** @description What is new or has changed. */
            data: components["schemas"]["NewConnection"];
            /**
             * Format: uuid
             * @description The event's id, the same in every attempt and at each endpoint.
             * @example 01a1fe34-ee44-76f2-a0b0-d9d526c141bd
             */
            id: string;
            /** @description The sync, and how many objects `data` has. */
            metadata: components["schemas"]["EventMetadata"];
            /**
             * @description Always `event`.
             * @example event
             * @enum {string}
             */
            object: "event";
            /**
             * @description The type of the event.
             * @example connection.created
             * @enum {string}
             */
            type: "connection.created";
        };
        ConnectionExpiring: {
            /**
             * @description The form of the body, as the endpoint asks for it.
             * @example 2026-11-01
             * @enum {string}
             */
            api_version: "2026-11-01" | "2026-12-01";
            /**
             * Format: int64
             * @description When the sync made the event, or the status changed, in seconds since 1970.
             * @example 1795266244
             */
            created: number;
            /** @description What is new or has changed. */
            data: components["schemas"]["ConnectionChanges"];
            /**
             * Format: uuid
             * @description The event's id, the same in every attempt and at each endpoint.
             * @example 01a1fe34-ee44-76f2-a0b0-d9d526c141bd
             */
            id: string;
            /** @description The sync, and how many objects `data` has. */
            metadata: components["schemas"]["EventMetadata"];
            /**
             * @description Always `event`.
             * @example event
             * @enum {string}
             */
            object: "event";
            /**
             * @description The type of the event.
             * @example connection.expiring
             * @enum {string}
             */
            type: "connection.expiring";
        };
        /** @description All connections, newest first. */
        ConnectionList: {
            /** @description The connections. */
            data: components["schemas"]["Connection"][];
        };
        ConnectionRemoved: {
            /**
             * @description The form of the body, as the endpoint asks for it.
             * @example 2026-11-01
             * @enum {string}
             */
            api_version: "2026-11-01" | "2026-12-01";
            /**
             * Format: int64
             * @description When the sync made the event, or the status changed, in seconds since 1970.
             * @example 1795266244
             */
            created: number;
            /** @description What is new or has changed. */
            data: components["schemas"]["NoChanges"];
            /**
             * Format: uuid
             * @description The event's id, the same in every attempt and at each endpoint.
             * @example 01a1fe34-ee44-76f2-a0b0-d9d526c141bd
             */
            id: string;
            /** @description The sync, and how many objects `data` has. */
            metadata: components["schemas"]["EventMetadata"];
            /**
             * @description Always `event`.
             * @example event
             * @enum {string}
             */
            object: "event";
            /**
             * @description The type of the event.
             * @example connection.removed
             * @enum {string}
             */
            type: "connection.removed";
        };
        ConnectionUpdated: {
            /**
             * @description The form of the body, as the endpoint asks for it.
             * @example 2026-11-01
             * @enum {string}
             */
            api_version: "2026-11-01" | "2026-12-01";
            /**
             * Format: int64
             * @description When the sync made the event, or the status changed, in seconds since 1970.
             * @example 1795266244
             */
            created: number;
            /** @description What is new or has changed. */
            data: components["schemas"]["ConnectionChanges"];
            /**
             * Format: uuid
             * @description The event's id, the same in every attempt and at each endpoint.
             * @example 01a1fe34-ee44-76f2-a0b0-d9d526c141bd
             */
            id: string;
            /** @description The sync, and how many objects `data` has. */
            metadata: components["schemas"]["EventMetadata"];
            /**
             * @description Always `event`.
             * @example event
             * @enum {string}
             */
            object: "event";
            /**
             * @description The type of the event.
             * @example connection.updated
             * @enum {string}
             */
            type: "connection.updated";
        };
        EndpointPing: {
            /**
             * @description The form of the body, as the endpoint asks for it.
             * @example 2026-11-01
             * @enum {string}
             */
            api_version: "2026-11-01" | "2026-12-01";
            /**
             * Format: int64
             * @description When the sync made the event, or the status changed, in seconds since 1970.
             * @example 1795266244
             */
            created: number;
            /** @description What is new or has changed. */
            data: components["schemas"]["NoChanges"];
            /**
             * Format: uuid
             * @description The event's id, the same in every attempt and at each endpoint.
             * @example 01a1fe34-ee44-76f2-a0b0-d9d526c141bd
             */
            id: string;
            /** @description The sync, and how many objects `data` has. */
            metadata: components["schemas"]["PingMetadata"];
            /**
             * @description Always `event`.
             * @example event
             * @enum {string}
             */
            object: "event";
            /**
             * @description The type of the event.
             * @example endpoint.ping
             * @enum {string}
             */
            type: "endpoint.ping";
        };
        /** @description What happened, and what to do about it. */
        Error: {
            /**
             * @description A code for programs. Most paths have only `professional_required`, and otherwise omit it.
             *     `/v1/me`, changes and files have the word of the header `Bellbird-Error` in every error.
             * @example professional_required
             */
            code?: string;
            /**
             * @description One entry for each invalid parameter. Or the connection at fault, as `connectionId: <id>`,
             *     and its status if the user has to reconnect it, as `status: <status>`. Omitted if there is
             *     none.
             * @example [
             *       "limit: Must be an integer between 1 and 500"
             *     ]
             */
            details?: string[];
            /**
             * @description A sentence for humans. Its wording may change.
             * @example The API key is missing or not valid
             */
            message: string;
        };
        /** @description The body of every response that is not a success. */
        ErrorBody: {
            /** @description What happened, and what to do about it. */
            error: components["schemas"]["Error"];
        };
        EventConnection: {
            /**
             * @description The kind of institution.
             * @example banking
             * @enum {string}
             */
            category: "banking" | "brokerage";
            /**
             * Format: date-time
             * @description When the consent ends, if the provider has said.
             * @example 2027-02-01T13:40:00Z
             */
            consent_expires_at: string | null;
            /**
             * Format: uuid
             * @description As in `/v1/connections`.
             * @example 01a1fe34-ec31-7b02-9d5e-6c1f80a3e2d7
             */
            id: string;
            /**
             * @description The provider's identifier of the institution.
             * @example 22
             */
            institution_id: string;
            /**
             * @description Name of the bank or broker.
             * @example Ironbark Example Bank
             */
            institution_name: string;
            /**
             * Format: date-time
             * @description When the provider had last returned data.
             * @example 2026-11-21T13:04:03.708114Z
             */
            last_refreshed_at: string | null;
            /**
             * @description Always `connection`.
             * @example connection
             * @enum {string}
             */
            object: "connection";
            /**
             * @description The status before, if it has changed.
             * @example active
             * @enum {string|null}
             */
            previous_status: "active" | "invalidated" | "pending_mfa" | "revoked" | null;
            /**
             * @description The provider of the connection.
             * @example fiskil
             * @enum {string}
             */
            provider: "fiskil" | "akahu" | "snaptrade";
            /**
             * @description The status at `created`.
             * @example revoked
             * @enum {string}
             */
            status: "active" | "invalidated" | "pending_mfa" | "revoked";
        };
        EventMetadata: {
            /**
             * @description The number of this chunk within the sync, from 1.
             * @example 1
             */
            chunk: number;
            /**
             * Format: uuid
             * @description The connection, as in `/v1/connections`.
             * @example 01a1fe34-ec31-7b02-9d5e-6c1f80a3e2d7
             */
            connection_id: string;
            /**
             * @description How many objects `new` has.
             * @example 1
             */
            new_count: number;
            /**
             * @description How many objects `removed` has. From version 2026-12-01 of the body on.
             * @example 0
             */
            removed_count?: number;
            /**
             * Format: uuid
             * @description The sync. All its events share this id. Without a sync it is a new id.
             * @example 01a1fe34-ee31-75da-b457-4b1b25d9fb1a
             */
            sync_run_id: string;
            /**
             * @description How many chunks the sync has.
             * @example 1
             */
            total_chunks: number;
            /**
             * @description How many objects `updated` has.
             * @example 0
             */
            updated_count: number;
            /**
             * Format: uuid
             * @description The user whose event it is. Only at an endpoint of the installation.
             * @example 01a1fe34-d017-7c3b-8def-00aabbccddee
             */
            user_id?: string;
            /**
             * @description The operator's own name of the user. Only at an endpoint of the installation.
             * @example customer-17
             */
            user_reference?: string | null;
        };
        EventTrade: {
            /**
             * @description The account's name once more.
             * @example Ironbark Low Rate Card
             */
            account: string;
            /**
             * Format: uuid
             * @description The account, as in `/v1/accounts`.
             * @example 01a1fe34-ec48-710a-8ee7-1f8674e0434a
             */
            account_id: string;
            /**
             * @description The account's name.
             * @example Ironbark Low Rate Card
             */
            account_name: string;
            /**
             * @description The currency in lower case.
             * @example usd
             */
            currency: string;
            /**
             * @description The broker's description.
             * @example BOUGHT Example Income Fund
             */
            description: string | null;
            /**
             * @description Fees, an exact decimal.
             * @example 0
             */
            fees: string | null;
            /**
             * @description Made of the trade's members. Not a key, because two equal fills on one day have the same one.
             * @example 2026-11-13T18:34:34Z-EXIF-BUY--151.98-17-2026-11-14T00:00:00Z-0-BOUGHT Example Income Fund
             */
            id: string;
            /**
             * @description Names the row among those of its connection for as long as that lives, also when a renewed consent gives the row another `id`. From version 2026-12-01 of the body on.
             * @example 9f3b2c61d07a4e58
             */
            key?: string;
            /**
             * @description Name of the security.
             * @example Example Income Fund
             */
            name: string | null;
            /**
             * @description Always `trade`.
             * @example trade
             * @enum {string}
             */
            object: "trade";
            /**
             * @description Price of one unit, an exact decimal.
             * @example 8.94
             */
            price: string | null;
            /**
             * @description Number of units with the broker's sign, an exact decimal.
             * @example 17
             */
            quantity: string | null;
            /**
             * @description The broker's text for the day of settlement.
             * @example 2026-11-14T00:00:00Z
             */
            settlement_date: string | null;
            /**
             * @description Ticker symbol, if the row is about a security.
             * @example EXIF
             */
            symbol: string | null;
            /**
             * @description Change in cash, an exact decimal: positive in, negative out.
             * @example -151.98
             */
            total_amount: string | null;
            /**
             * @description A day or a time, as the broker gives it.
             * @example 2026-11-13T18:34:34Z
             */
            trade_date: string;
            /**
             * @description What kind of activity it is.
             * @example buy
             * @enum {string}
             */
            type: "buy" | "sell" | "dividend" | "split" | "transfer" | "fee" | "interest" | "other";
        };
        EventTransaction: {
            /**
             * @description The account's name once more.
             * @example Ironbark Low Rate Card
             */
            account: string;
            /**
             * Format: uuid
             * @description The account, as in `/v1/accounts`.
             * @example 01a1fe34-ec48-710a-8ee7-1f8674e0434a
             */
            account_id: string;
            /**
             * @description The account's name.
             * @example Ironbark Low Rate Card
             */
            account_name: string;
            /**
             * Format: int64
             * @description A whole number of the currency's smallest unit (ISO 4217), negative for debits. More places than the currency has are rounded half to even.
             * @example -4913
             */
            amount: number;
            /**
             * @description The amount as an exact decimal, as in `/v1/transactions`. From version 2026-12-01 of the body on.
             * @example -49.13
             */
            amount_decimal?: string;
            /**
             * @description A key from `/v1/categories`, if the provider reports a category.
             * @example FOOD_AND_DRINK
             * @enum {string|null}
             */
            category: "BANK_FEES" | "ENTERTAINMENT" | "FOOD_AND_DRINK" | "GOVERNMENT_AND_NON_PROFIT" | "HOME_IMPROVEMENT" | "INCOME" | "LOAN_PAYMENTS" | "MEDICAL" | "MERCHANDISE" | "PERSONAL_CARE" | "RENT_AND_UTILITIES" | "SERVICES" | "TRANSFER_IN" | "TRANSFER_OUT" | "TRANSPORTATION" | "TRAVEL" | null;
            /**
             * @description The provider's type in lower case with hyphens. `other` if it has none.
             * @example payment
             */
            class: string;
            /**
             * @description The currency in lower case: the row's own, else the account's. `xxx` while it is unknown.
             * @example aud
             */
            currency: string;
            /**
             * @description The bank's description. Untrusted text.
             * @example BILLYCART GROCER 0412 FITZROY VIC
             */
            description: string;
            /**
             * @description `debit` below zero, else `credit`.
             * @example debit
             * @enum {string}
             */
            direction: "credit" | "debit";
            /**
             * @description A longer text of the bank, if there is one.
             * @example Lunch with Kim
             */
            extended_description: string | null;
            /**
             * @description As in `/v1/transactions`. It is unique within its account.
             * @example bank_tx_5d914c29f203d779b9d0f4659da8b17a2f4a12557a3b2fb7a25dbcfbea2be233
             */
            id: string;
            /**
             * @description Names the row among those of its connection for as long as that lives, also when a renewed consent gives the row another `id`. From version 2026-12-01 of the body on.
             * @example 9f3b2c61d07a4e58
             */
            key?: string;
            /**
             * Format: date
             * @description The day of posting in the user's timezone, as `date` of `/v1/transactions`.
             * @example 2026-11-21
             */
            local_date: string;
            /**
             * @description Merchant category code (ISO 18245), if the provider knows it.
             * @example 5411
             */
            merchant_category_code: string | null;
            /**
             * @description Name of the merchant, if the provider knows it.
             * @example Billycart Grocer
             */
            merchant_name: string | null;
            /**
             * @description Always `transaction`.
             * @example transaction
             * @enum {string}
             */
            object: "transaction";
            /**
             * @description The provider's text for when it was posted.
             * @example 2026-11-20T22:27:27Z
             */
            post_date: string;
            /**
             * @description The payment's reference, if there is one.
             * @example LUNCH
             */
            reference: string | null;
            /**
             * @description Always `posted`.
             * @example posted
             * @enum {string}
             */
            status: "posted";
            /**
             * @description The provider's text for when it was made. If that is unknown, `post_date`.
             * @example 2026-11-20T07:27:27Z
             */
            transaction_date: string;
        };
        /** @description The state of the service. */
        Health: {
            /**
             * @description Always `ok`.
             * @example ok
             */
            status: string;
        };
        /** @description A position of a brokerage account. Only `symbol`, `currency` and `quantity` always have a value. */
        Holding: {
            /**
             * Format: uuid
             * @description The account that holds the position.
             * @example 0191e7a0-91d4-7a01-8000-00aabbccddee
             */
            accountId: string;
            /**
             * @description Display name of that account.
             * @example Margin Account
             */
            accountName: string;
            /**
             * @description Average cost of a unit, an exact decimal.
             * @example 118.2
             */
            averagePrice: string | null;
            /**
             * @description ISO 4217 code of the prices and values, or the ticker of a crypto asset.
             * @example USD
             */
            currency: string;
            /**
             * @description Latest price of a unit, an exact decimal.
             * @example 123.45
             */
            currentPrice: string | null;
            /**
             * @description The exchange as the broker names it: a MIC or an exchange code.
             * @example XNAS
             */
            exchange: string | null;
            /**
             * @description Identifier, stable across requests. Opaque.
             * @example 0191e7a0-91d4-7a01-8000-00aabbccddee:1ef3a5d3-4a9b-40b2-b8d1-cc35f74d6324
             */
            id: string;
            /**
             * @description Value of the position, an exact decimal: quantity times current price, times the contract
             *     multiplier.
             * @example 1296.225
             */
            marketValue: string | null;
            /**
             * @description The security's name.
             * @example Apple Inc.
             */
            name: string | null;
            /**
             * @description Number of units, an exact decimal with the provider's digits. Negative for a short position.
             *     Fractions occur.
             * @example 10.5
             */
            quantity: string;
            /**
             * @description Ticker.
             * @example AAPL
             */
            symbol: string;
            /**
             * @description `marketValue` minus the cost, an exact decimal: quantity times average price, times the
             *     contract multiplier.
             * @example 55.125
             */
            unrealizedPnl: string | null;
        };
        /** @description All positions, account by account. */
        HoldingList: {
            /** @description The holdings. */
            data: components["schemas"]["Holding"][];
        };
        /** @description An API key. */
        Key: {
            /**
             * Format: date-time
             * @description When the key was made, RFC 3339 in UTC.
             * @example 2026-08-01T02:10:00.25Z
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description The key stops working at this time, RFC 3339 in UTC. Null if it does not expire.
             * @example 2027-08-01T02:10:00.25Z
             */
            expiresAt: string | null;
            /**
             * Format: uuid
             * @description Identifier, a UUID.
             * @example 0191e7a0-2b2b-7c00-8000-00aabbccddee
             */
            id: string;
            /**
             * @description The name that the operator gave the key.
             * @example spreadsheet
             */
            name: string;
            /**
             * @description The key's first characters.
             * @example bb_004KdQz
             */
            prefix: string;
        };
        /** @description Null where there is no limit. */
        Limits: {
            /**
             * Format: int32
             * @description Requests a minute of the key for balances.
             * @example 30
             */
            balancesPerMinute: number | null;
            /**
             * Format: int32
             * @description Such requests of the key at once.
             * @example 4
             */
            liveInFlight: number | null;
            /**
             * Format: int32
             * @description Requests a minute of the key for transactions, holdings, trades and files together.
             * @example 30
             */
            livePerMinute: number | null;
            /**
             * Format: int32
             * @description Requests a minute of the key for connections, accounts, categories and this path.
             * @example 60
             */
            metadataPerMinute: number | null;
            /**
             * Format: int32
             * @description Provider calls a minute for the user's requests, at each provider.
             * @example 300
             */
            providerCallsPerMinute: number | null;
        };
        /** @description The key's user, the key and its limits. */
        Me: {
            /** @description Who calls. */
            data: components["schemas"]["MeData"];
        };
        /** @description Who calls. */
        MeData: {
            /** @description The key of this request. */
            key: components["schemas"]["Key"];
            /** @description The limits of each key, and of the user. */
            limits: components["schemas"]["Limits"];
            /**
             * @description `saver`: no API access. `developer`: everything but holdings and trades. `professional`:
             *     everything.
             * @example saver
             * @enum {string}
             */
            plan: "saver" | "developer" | "professional";
            /**
             * @description IANA timezone of the user, in which `date` of every row is a day.
             * @example Australia/Sydney
             */
            timezone: string;
            /**
             * Format: uuid
             * @description The user whose data the key reads.
             * @example 0191e79f-11aa-7c00-8000-00aabbccddee
             */
            userId: string;
        };
        NewConnection: {
            /** @description The connection, once. */
            new: components["schemas"]["EventConnection"][];
            /**
             * @description Rows that are gone, in events of their own. From version 2026-12-01 of the body on, which only then sends such events.
             * @example []
             */
            removed?: components["schemas"]["RemovedRow"][];
            /**
             * @description Always empty.
             * @example []
             */
            updated: components["schemas"]["EventConnection"][];
        };
        NoChanges: {
            /**
             * @description Always empty.
             * @example []
             */
            new: Record<string, never>[];
            /**
             * @description Rows that are gone, in events of their own. From version 2026-12-01 of the body on, which only then sends such events.
             * @example []
             */
            removed?: components["schemas"]["RemovedRow"][];
            /**
             * @description Always empty.
             * @example []
             */
            updated: Record<string, never>[];
        };
        /** @description The position of this window in the list. */
        Pagination: {
            /**
             * @description Whether more items follow. Continue with `offset + limit`.
             * @example true
             */
            hasMore: boolean;
            /**
             * Format: int32
             * @description Maximum number of items in the window, as applied.
             * @example 200
             */
            limit: number;
            /**
             * Format: int64
             * @description Number of items skipped.
             * @example 0
             */
            offset: number;
            /**
             * Format: int64
             * @description Number of items in the list. For transactions it is exact when `hasMore` is false, and a
             *     lower bound when it is true.
             * @example 312
             */
            total: number;
        };
        PingMetadata: {
            /**
             * @description The number of this chunk within the sync, from 1.
             * @example 1
             */
            chunk: number;
            /**
             * @description How many objects `new` has.
             * @example 1
             */
            new_count: number;
            /**
             * @description How many objects `removed` has. From version 2026-12-01 of the body on.
             * @example 0
             */
            removed_count?: number;
            /**
             * Format: uuid
             * @description The sync. All its events share this id. Without a sync it is a new id.
             * @example 01a1fe34-ee31-75da-b457-4b1b25d9fb1a
             */
            sync_run_id: string;
            /**
             * @description How many chunks the sync has.
             * @example 1
             */
            total_chunks: number;
            /**
             * @description How many objects `updated` has.
             * @example 0
             */
            updated_count: number;
        };
        RemovedRow: {
            /**
             * Format: uuid
             * @description The row's account, as in `/v1/accounts`.
             * @example 01a1fe34-ec48-710a-8ee7-1f8674e0434a
             */
            account_id: string;
            /**
             * @description Names the row among those of its connection for as long as that lives, also when a renewed consent gives the row another `id`. From version 2026-12-01 of the body on.
             * @example 9f3b2c61d07a4e58
             */
            key: string;
        };
        RemovedUser: {
            /**
             * Format: uuid
             * @description The id that the user had.
             * @example 01a1fe34-d017-7c3b-8def-00aabbccddee
             */
            id: string;
            /**
             * @description Always `user`.
             * @example user
             * @enum {string}
             */
            object: "user";
            /**
             * @description The operator's own name of the user.
             * @example customer-17
             */
            reference: string | null;
        };
        /** @description A row of a brokerage account's activity: a fill, a dividend, a fee, a transfer and so on. */
        Trade: {
            /**
             * Format: uuid
             * @description The account of the trade.
             * @example 0191e7a0-91d4-7a01-8000-00aabbccddee
             */
            accountId: string;
            /**
             * @description Display name of that account.
             * @example Margin Account
             */
            accountName: string;
            /**
             * @description ISO 4217 code, or the ticker of a crypto asset.
             * @example CAD
             */
            currency: string;
            /**
             * @description The broker's description.
             * @example BOUGHT VAB
             */
            description: string | null;
            /**
             * @description Fees, an exact decimal.
             * @example 0
             */
            fees: string | null;
            /**
             * @description Opaque, and not unique: two identical fills have the same id.
             * @example 2026-03-22T16:27:55Z-VAB.TO-BUY--2.08-5.2-2026-03-26T00:00:00Z-0-BOUGHT VAB
             */
            id: string;
            /**
             * @description The security's name; for an option, the name of its underlying.
             * @example VANGUARD CDN AGGREGATE BOND INDEX ETF
             */
            name: string | null;
            /**
             * @description Price of a unit, an exact decimal; `0` if there is none.
             * @example 0.4
             */
            price: string;
            /**
             * @description Number of units, an exact decimal with the provider's digits and the broker's sign; `0` if
             *     there are none.
             * @example 5.2
             */
            quantity: string;
            /**
             * @description The settlement date: a day or an ISO 8601 time, as the broker reports it.
             * @example 2026-03-26T00:00:00Z
             */
            settlementDate: string | null;
            /**
             * @description Ticker; empty if the row has no security.
             * @example VAB.TO
             */
            symbol: string;
            /**
             * @description Change in cash, an exact decimal: positive in, negative out; `0` if there is none.
             * @example -2.08
             */
            totalAmount: string;
            /**
             * @description The trade date: a day or an ISO 8601 time, as the broker reports it.
             * @example 2026-03-22T16:27:55Z
             */
            tradeDate: string;
            /**
             * @description The kind of activity.
             * @example buy
             * @enum {string}
             */
            type: "buy" | "sell" | "dividend" | "split" | "transfer" | "fee" | "interest" | "other";
        };
        /** @description A change of a trade. */
        TradeChange: {
            /**
             * @description Whether the row was first seen after the cursor was made.
             * @example true
             */
            isNew: boolean;
            /**
             * @description Names the row among those of its connection, unlike its `id`.
             * @example 9f3b2c61d07a4e58
             */
            key: string;
            /**
             * @example upsert
             * @enum {string}
             */
            op: "upsert";
            trade: components["schemas"]["Trade"];
        } | {
            /**
             * Format: uuid
             * @description The row's account. Null if the connection has lost it.
             * @example 0191e7a0-91d4-7a01-8000-00aabbccddee
             */
            accountId: string | null;
            /**
             * @description Names the row among those of its connection.
             * @example 9f3b2c61d07a4e58
             */
            key: string;
            /**
             * @example remove
             * @enum {string}
             */
            op: "remove";
        };
        TradeChanges: {
            /** @description Trades that no earlier sync has seen. */
            new: components["schemas"]["EventTrade"][];
            /**
             * @description Rows that are gone, in events of their own. From version 2026-12-01 of the body on, which only then sends such events.
             * @example []
             */
            removed?: components["schemas"]["RemovedRow"][];
            /**
             * @description Trades that have changed since, as they are now.
             * @example []
             */
            updated: components["schemas"]["EventTrade"][];
        };
        /** @description A page of changes. */
        TradeChangesPage: {
            /**
             * @description Where the next page, or the next request, continues. Opaque; keep it in the same transaction
             *     as the rows.
             * @example dGhlIHNlYWxlZCBwbGFjZSBvZiBhIGNsaWVudA
             */
            cursor: string;
            /** @description The changes, to be applied in this order. */
            data: components["schemas"]["TradeChange"][];
            /**
             * @description Whether to ask again at once.
             * @example false
             */
            hasMore: boolean;
            /**
             * Format: date
             * @description Changes of rows of this day and later ones are found, in the user's timezone.
             * @example 2026-10-23
             */
            watchedFrom: string;
        };
        /** @description A window of the trades, newest first. */
        TradeList: {
            /** @description The trades in the window. */
            data: components["schemas"]["Trade"][];
            /** @description The position of this window in the list. */
            pagination: components["schemas"]["TradesPagination"];
        };
        /** @description The position of this window in the list of trades. */
        TradesPagination: {
            /**
             * @description Whether more items follow. Continue with `offset + limit`.
             * @example true
             */
            hasMore: boolean;
            /**
             * Format: int32
             * @description Maximum number of items in the window, as applied.
             * @example 200
             */
            limit: number;
            /**
             * Format: int64
             * @description Number of items skipped.
             * @example 0
             */
            offset: number;
            /**
             * Format: int64
             * @description -1 while `hasMore` is true; the number of trades in the list when it is false.
             * @example -1
             */
            total: number;
        };
        TradesSynced: {
            /**
             * @description The form of the body, as the endpoint asks for it.
             * @example 2026-11-01
             * @enum {string}
             */
            api_version: "2026-11-01" | "2026-12-01";
            /**
             * Format: int64
             * @description When the sync made the event, or the status changed, in seconds since 1970.
             * @example 1795266244
             */
            created: number;
            /** @description What is new or has changed. */
            data: components["schemas"]["TradeChanges"];
            /**
             * Format: uuid
             * @description The event's id, the same in every attempt and at each endpoint.
             * @example 01a1fe34-ee44-76f2-a0b0-d9d526c141bd
             */
            id: string;
            /** @description The sync, and how many objects `data` has. */
            metadata: components["schemas"]["EventMetadata"];
            /**
             * @description Always `event`.
             * @example event
             * @enum {string}
             */
            object: "event";
            /**
             * @description The type of the event.
             * @example trades.synced
             * @enum {string}
             */
            type: "trades.synced";
        };
        /** @description A posted bank transaction. Pending transactions are never returned. */
        Transaction: {
            /**
             * Format: uuid
             * @description The account of the transaction.
             * @example 0191e7a0-91d4-7a01-8000-00aabbccddee
             */
            accountId: string;
            /**
             * @description Display name of that account.
             * @example Everyday Account
             */
            accountName: string;
            /**
             * @description Signed, exact decimal with the provider's digits: negative for debits. Parse it as a
             *     decimal, not as a float.
             * @example -5.00
             */
            amount: string;
            /**
             * @description A key from `/v1/categories`, if the provider reports a category.
             * @example TRANSPORTATION
             * @enum {string|null}
             */
            category: "BANK_FEES" | "ENTERTAINMENT" | "FOOD_AND_DRINK" | "GOVERNMENT_AND_NON_PROFIT" | "HOME_IMPROVEMENT" | "INCOME" | "LOAN_PAYMENTS" | "MEDICAL" | "MERCHANDISE" | "PERSONAL_CARE" | "RENT_AND_UTILITIES" | "SERVICES" | "TRANSFER_IN" | "TRANSFER_OUT" | "TRANSPORTATION" | "TRAVEL" | null;
            /**
             * @description ISO 4217 code of `amount`: the row's own currency, else that of the account. `XXX` if
             *     neither is known.
             * @example AUD
             */
            currency: string;
            /**
             * Format: date
             * @description The day of posting in the user's timezone (default `Australia/Sydney`).
             * @example 2026-11-20
             */
            date: string;
            /**
             * @description The provider's text of the time that determines `date` and the order.
             * @example 2026-11-19T21:15:42.000Z
             */
            datetime: string | null;
            /**
             * @description The bank's description.
             * @example TRANSPORTFORNSW TAP SYDNEY
             */
            description: string;
            /**
             * @description `credit` or `debit`, by the sign of `amount`; zero is `credit`.
             * @example debit
             * @enum {string}
             */
            direction: "credit" | "debit";
            /**
             * @description The provider's identifier. Opaque, not a UUID.
             * @example bank_tx_cf8a93dbe42ce957f5a6ef39ef8e5f9acae5dad932794b6e0df7b1b9afe707c5
             */
            id: string;
            /**
             * @description Merchant category code (ISO 18245), if the provider knows it.
             * @example 4111
             */
            merchantCategoryCode: string | null;
            /**
             * @description Name of the merchant, if the provider knows it.
             * @example Transport for NSW
             */
            merchantName: string | null;
            /**
             * @description Always `posted`.
             * @example posted
             * @enum {string}
             */
            status: "posted";
        };
        /** @description A change of a transaction. */
        TransactionChange: {
            /**
             * @description Whether the row was first seen after the cursor was made.
             * @example true
             */
            isNew: boolean;
            /**
             * @description Names the row among those of its connection.
             * @example 9f3b2c61d07a4e58
             */
            key: string;
            /**
             * @example upsert
             * @enum {string}
             */
            op: "upsert";
            transaction: components["schemas"]["Transaction"];
        } | {
            /**
             * Format: uuid
             * @description The row's account. Null if the connection has lost it.
             * @example 0191e7a0-91d4-7a01-8000-00aabbccddee
             */
            accountId: string | null;
            /**
             * @description Names the row among those of its connection.
             * @example 9f3b2c61d07a4e58
             */
            key: string;
            /**
             * @example remove
             * @enum {string}
             */
            op: "remove";
        };
        TransactionChanges: {
            /** @description Transactions that no earlier sync has seen. */
            new: components["schemas"]["EventTransaction"][];
            /**
             * @description Rows that are gone, in events of their own. From version 2026-12-01 of the body on, which only then sends such events.
             * @example []
             */
            removed?: components["schemas"]["RemovedRow"][];
            /**
             * @description Transactions that have changed since, as they are now.
             * @example []
             */
            updated: components["schemas"]["EventTransaction"][];
        };
        /** @description A page of changes. */
        TransactionChangesPage: {
            /**
             * @description Where the next page, or the next request, continues. Opaque; keep it in the same transaction
             *     as the rows.
             * @example dGhlIHNlYWxlZCBwbGFjZSBvZiBhIGNsaWVudA
             */
            cursor: string;
            /** @description The changes, to be applied in this order. */
            data: components["schemas"]["TransactionChange"][];
            /**
             * @description Whether to ask again at once.
             * @example false
             */
            hasMore: boolean;
            /**
             * Format: date
             * @description Changes of rows of this day and later ones are found, in the user's timezone.
             * @example 2026-10-23
             */
            watchedFrom: string;
        };
        /** @description A window of the transactions, newest first. */
        TransactionList: {
            /** @description The transactions in the window. */
            data: components["schemas"]["Transaction"][];
            /** @description The position of this window in the list. */
            pagination: components["schemas"]["Pagination"];
        };
        TransactionsSynced: {
            /**
             * @description The form of the body, as the endpoint asks for it.
             * @example 2026-11-01
             * @enum {string}
             */
            api_version: "2026-11-01" | "2026-12-01";
            /**
             * Format: int64
             * @description When the sync made the event, or the status changed, in seconds since 1970.
             * @example 1795266244
             */
            created: number;
            /** @description What is new or has changed. */
            data: components["schemas"]["TransactionChanges"];
            /**
             * Format: uuid
             * @description The event's id, the same in every attempt and at each endpoint.
             * @example 01a1fe34-ee44-76f2-a0b0-d9d526c141bd
             */
            id: string;
            /** @description The sync, and how many objects `data` has. */
            metadata: components["schemas"]["EventMetadata"];
            /**
             * @description Always `event`.
             * @example event
             * @enum {string}
             */
            object: "event";
            /**
             * @description The type of the event.
             * @example transactions.synced
             * @enum {string}
             */
            type: "transactions.synced";
        };
        UserChanges: {
            /**
             * @description Always empty.
             * @example []
             */
            new: Record<string, never>[];
            /**
             * @description Rows that are gone, in events of their own. From version 2026-12-01 of the body on, which only then sends such events.
             * @example []
             */
            removed?: components["schemas"]["RemovedRow"][];
            /** @description The user, once. */
            updated: components["schemas"]["RemovedUser"][];
        };
        UserMetadata: {
            /**
             * @description The number of this chunk within the sync, from 1.
             * @example 1
             */
            chunk: number;
            /**
             * @description How many objects `new` has.
             * @example 1
             */
            new_count: number;
            /**
             * @description How many objects `removed` has. From version 2026-12-01 of the body on.
             * @example 0
             */
            removed_count?: number;
            /**
             * Format: uuid
             * @description The sync. All its events share this id. Without a sync it is a new id.
             * @example 01a1fe34-ee31-75da-b457-4b1b25d9fb1a
             */
            sync_run_id: string;
            /**
             * @description How many chunks the sync has.
             * @example 1
             */
            total_chunks: number;
            /**
             * @description How many objects `updated` has.
             * @example 0
             */
            updated_count: number;
            /**
             * Format: uuid
             * @description The user whose event it is. Only at an endpoint of the installation.
             * @example 01a1fe34-d017-7c3b-8def-00aabbccddee
             */
            user_id: string;
            /**
             * @description The operator's own name of the user. Only at an endpoint of the installation.
             * @example customer-17
             */
            user_reference: string | null;
        };
        UserRemoved: {
            /**
             * @description The form of the body, as the endpoint asks for it.
             * @example 2026-11-01
             * @enum {string}
             */
            api_version: "2026-11-01" | "2026-12-01";
            /**
             * Format: int64
             * @description When the sync made the event, or the status changed, in seconds since 1970.
             * @example 1795266244
             */
            created: number;
            /** @description What is new or has changed. */
            data: components["schemas"]["UserChanges"];
            /**
             * Format: uuid
             * @description The event's id, the same in every attempt and at each endpoint.
             * @example 01a1fe34-ee44-76f2-a0b0-d9d526c141bd
             */
            id: string;
            /** @description The sync, and how many objects `data` has. */
            metadata: components["schemas"]["UserMetadata"];
            /**
             * @description Always `event`.
             * @example event
             * @enum {string}
             */
            object: "event";
            /**
             * @description The type of the event.
             * @example user.removed
             * @enum {string}
             */
            type: "user.removed";
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
};
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
