// Generated from docs/admin-openapi.json by `npm run generate`.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export type components = {
    schemas: {
        /** @description Who made a change. */
        Actor: {
            /**
             * @description The id of the operator's key, of the operator, or of the user's session; of a command its
             *     Unix user.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * @description `operator_key`, `operator` (on the console's pages for operators), `command` or `user` (in
             *     the console).
             * @example operator_key
             */
            kind: string;
        };
        /** @description One change. */
        AuditRow: {
            /**
             * @description The subject and the verb, such as `key.create`. The list may grow.
             * @example key.create
             */
            action: string;
            actor: components["schemas"]["Actor"];
            /**
             * Format: date-time
             * @example 2026-08-01T02:10:00.25Z
             */
            at: string;
            /**
             * @description What the user calls it: the browser, the name of the key or the URL of the endpoint. Of
             *     `user.update`, or if an operator did it, what changed, such as `plan: saver → developer`.
             *     Null: neither is known.
             * @example Firefox on Linux
             */
            detail: string | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * @description The id of what it was about, such as a key; of `key.rotate` the old one. Null: the action is
             *     about the user.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            subject: string | null;
            /**
             * Format: uuid
             * @description Null: the action is about the installation, such as an endpoint for all users.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string | null;
        };
        AuditRowList: {
            data: components["schemas"]["AuditRow"][];
            /** @description The `cursor` of the next page. Null: this is the last one. */
            nextCursor: string | null;
        };
        /** @description A link between a user and one institution through one provider. */
        Connection: {
            /**
             * @description The kind of institution.
             * @example banking
             * @enum {string}
             */
            category: "banking" | "brokerage";
            /**
             * Format: date-time
             * @description When the user's consent ends unless they renew it, or when it ended. Null if the provider
             *     does not say.
             * @example 2027-08-01T02:10:00Z
             */
            consentExpiresAt: string | null;
            /**
             * Format: date-time
             * @example 2026-08-01T02:10:00.25Z
             */
            createdAt: string;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * @description The provider's identifier of the institution. Opaque.
             * @example 22
             */
            institutionId: string;
            /** @example Wattle Bank */
            institutionName: string;
            /**
             * Format: date-time
             * @description When the provider last returned data.
             * @example 2026-11-20T21:04:11.52Z
             */
            lastRefreshedAt: string | null;
            /**
             * @description The provider of the data.
             * @example fiskil
             * @enum {string}
             */
            provider: "fiskil" | "akahu" | "snaptrade";
            /**
             * @description As in `/v1/connections`, or `deleting`: it is being removed.
             * @example active
             * @enum {string}
             */
            status: "active" | "invalidated" | "pending_mfa" | "revoked" | "deleting";
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string;
        };
        /** @description A connection with its jobs. */
        ConnectionDetails: {
            /**
             * @description The kind of institution.
             * @example banking
             * @enum {string}
             */
            category: "banking" | "brokerage";
            /**
             * Format: date-time
             * @description When the user's consent ends unless they renew it, or when it ended. Null if the provider
             *     does not say.
             * @example 2027-08-01T02:10:00Z
             */
            consentExpiresAt: string | null;
            /**
             * Format: date-time
             * @example 2026-08-01T02:10:00.25Z
             */
            createdAt: string;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * @description The provider's identifier of the institution. Opaque.
             * @example 22
             */
            institutionId: string;
            /** @example Wattle Bank */
            institutionName: string;
            /**
             * Format: date-time
             * @description When the provider last returned data.
             * @example 2026-11-20T21:04:11.52Z
             */
            lastRefreshedAt: string | null;
            /**
             * @description The provider of the data.
             * @example fiskil
             * @enum {string}
             */
            provider: "fiskil" | "akahu" | "snaptrade";
            removal: components["schemas"]["ConnectionRemoval"] | null;
            /**
             * @description As in `/v1/connections`, or `deleting`: it is being removed.
             * @example active
             * @enum {string}
             */
            status: "active" | "invalidated" | "pending_mfa" | "revoked" | "deleting";
            sync: components["schemas"]["ConnectionSync"] | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string;
        };
        ConnectionDetailsItem: {
            data: components["schemas"]["ConnectionDetails"];
        };
        ConnectionList: {
            data: components["schemas"]["Connection"][];
            /** @description The `cursor` of the next page. Null: this is the last one. */
            nextCursor: string | null;
        };
        /** @description A removal in progress. */
        ConnectionRemoval: {
            /**
             * Format: int32
             * @description Failures so far.
             */
            attempts: number;
            /** @description Why the last attempt failed. */
            lastError: string | null;
            /**
             * Format: date-time
             * @example 2026-11-21T03:04:11.52Z
             */
            nextAttemptAt: string;
        };
        /** @description The syncs of a connection. */
        ConnectionSync: {
            /** @description Why the last one failed. */
            lastError: string | null;
            /**
             * Format: date-time
             * @description The next one.
             * @example 2026-11-21T03:04:11.52Z
             */
            nextAt: string | null;
            /**
             * Format: date-time
             * @description The start of the last successful sync.
             * @example 2026-11-20T21:04:11.52Z
             */
            syncedAt: string | null;
        };
        /** @description A created key. */
        CreatedKey: {
            /**
             * Format: date-time
             * @example 2026-08-01T02:10:00.25Z
             */
            createdAt: string;
            /**
             * Format: date-time
             * @example 2027-01-31T00:00:00Z
             */
            expiresAt: string | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * @description The key itself. Store it: it is not shown again.
             * @example bb_...
             */
            key: string;
            /**
             * Format: date-time
             * @description Exact to a minute.
             * @example 2026-08-01T02:10:00.25Z
             */
            lastUsedAt: string | null;
            /** @example app */
            name: string;
            /**
             * @description The first characters of the key.
             * @example bb_007Kd2p
             */
            prefix: string;
            /**
             * Format: date-time
             * @example 2027-01-31T00:00:00Z
             */
            revokedAt: string | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string;
        };
        CreatedKeyItem: {
            data: components["schemas"]["CreatedKey"];
        };
        /** @description A created link session. */
        CreatedLinkSession: {
            /**
             * Format: date-time
             * @example 2026-08-01T02:40:00Z
             */
            expiresAt: string;
            /**
             * Format: uuid
             * @description No secret: the return has it too.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * Format: uri
             * @description Secret: whoever has it links for this user.
             * @example https://console.example.com/link/...
             */
            url: string;
        };
        CreatedLinkSessionItem: {
            data: components["schemas"]["CreatedLinkSession"];
        };
        /** @description A created webhook endpoint. */
        CreatedWebhookEndpoint: {
            /**
             * @description Of the events' body.
             * @example 2026-11-01
             * @enum {string}
             */
            apiVersion: "2026-11-01" | "2026-12-01";
            /**
             * Format: date-time
             * @example 2026-08-01T02:10:00.25Z
             */
            createdAt: string;
            /**
             * @description A few words. Null: enabled.
             * @example by operator
             */
            disabledReason: string | null;
            /**
             * @description The event types that it receives.
             * @example [
             *       "transactions.synced",
             *       "trades.synced"
             *     ]
             */
            events: ("transactions.synced" | "trades.synced" | "connection.created" | "connection.updated" | "connection.expiring" | "connection.removed" | "user.removed")[];
            /**
             * Format: date-time
             * @description The first failure since the last success. Of an endpoint for all users, the earliest of
             *     those that last.
             * @example 2026-11-20T21:04:11.52Z
             */
            failingSince: string | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * Format: date-time
             * @description The last success, to the minute.
             * @example 2026-11-20T21:04:11.52Z
             */
            lastDeliveredAt: string | null;
            /**
             * @description Verifies the signatures of events. Store it: it is not shown again.
             * @example whsec_...
             */
            secret: string;
            /**
             * @description Whether it receives events.
             * @example enabled
             * @enum {string}
             */
            status: "enabled" | "disabled";
            /**
             * Format: uri
             * @example https://hooks.example.com/bellbird
             */
            url: string;
            /**
             * Format: uuid
             * @description Null: it receives the events of all users.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string | null;
        };
        CreatedWebhookEndpointItem: {
            data: components["schemas"]["CreatedWebhookEndpoint"];
        };
        /** @description The delivery of an event to an endpoint. */
        Delivery: {
            /**
             * Format: int32
             * @description Starts again from 0 with a redelivery.
             * @example 1
             */
            attempts: number;
            /**
             * Format: int32
             * @description From 1 to `totalChunks`.
             * @example 1
             */
            chunk: number;
            /**
             * Format: date-time
             * @description When the event was created.
             * @example 2026-11-20T21:04:11.52Z
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When it was delivered, or failed and was no longer retried.
             * @example 2026-11-20T21:04:11.52Z
             */
            endedAt: string | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            eventId: string;
            /**
             * Format: date-time
             * @example 2026-11-20T21:04:11.52Z
             */
            lastAttemptAt: string | null;
            /**
             * Format: int32
             * @example 84
             */
            lastDurationMs: number | null;
            /**
             * @description A few words.
             * @example timeout
             */
            lastError: string | null;
            /**
             * Format: int32
             * @description HTTP status of the last attempt. Null: no response, or no attempt yet.
             * @example 204
             */
            lastStatus: number | null;
            /**
             * Format: int32
             * @description New rows in the event.
             * @example 3
             */
            newCount: number;
            /**
             * Format: date-time
             * @example 2026-11-20T21:04:11.52Z
             */
            nextAttemptAt: string | null;
            /**
             * Format: int32
             * @description Rows in the event that are gone.
             * @example 0
             */
            removedCount: number;
            /**
             * @description `pending`, `waiting` for the chunk before, `delivered` or `failed`.
             * @example pending
             * @enum {string}
             */
            state: "pending" | "waiting" | "delivered" | "failed";
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            syncRunId: string;
            /**
             * Format: int32
             * @example 1
             */
            totalChunks: number;
            /**
             * @description The type of the event.
             * @example transactions.synced
             * @enum {string}
             */
            type: "transactions.synced" | "trades.synced" | "connection.created" | "connection.updated" | "connection.expiring" | "connection.removed" | "user.removed" | "endpoint.ping";
            /**
             * Format: int32
             * @description Changed rows in the event.
             * @example 0
             */
            updatedCount: number;
            /**
             * Format: uuid
             * @description Whose event it is. Null: nobody's, because it is a ping of an endpoint for all users.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string | null;
        };
        /** @description An attempt to deliver an event. */
        DeliveryAttempt: {
            /**
             * Format: date-time
             * @example 2026-11-20T21:04:11.52Z
             */
            at: string;
            /**
             * Format: int32
             * @description From 1, counted on after a redelivery.
             * @example 1
             */
            attempt: number;
            /**
             * Format: int32
             * @example 84
             */
            durationMs: number;
            /**
             * @description A few words.
             * @example timeout
             */
            error: string | null;
            /**
             * Format: int32
             * @description HTTP status. Null: no response.
             * @example 204
             */
            status: number | null;
        };
        /** @description A delivery with its attempts. */
        DeliveryDetails: {
            /** @description All attempts, oldest first. */
            attemptLog: components["schemas"]["DeliveryAttempt"][];
            /**
             * Format: int32
             * @description Starts again from 0 with a redelivery.
             * @example 1
             */
            attempts: number;
            /**
             * Format: int32
             * @description From 1 to `totalChunks`.
             * @example 1
             */
            chunk: number;
            /**
             * Format: date-time
             * @description When the event was created.
             * @example 2026-11-20T21:04:11.52Z
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When it was delivered, or failed and was no longer retried.
             * @example 2026-11-20T21:04:11.52Z
             */
            endedAt: string | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            eventId: string;
            /**
             * Format: date-time
             * @example 2026-11-20T21:04:11.52Z
             */
            lastAttemptAt: string | null;
            /**
             * Format: int32
             * @example 84
             */
            lastDurationMs: number | null;
            /**
             * @description A few words.
             * @example timeout
             */
            lastError: string | null;
            /**
             * Format: int32
             * @description HTTP status of the last attempt. Null: no response, or no attempt yet.
             * @example 204
             */
            lastStatus: number | null;
            /**
             * Format: int32
             * @description New rows in the event.
             * @example 3
             */
            newCount: number;
            /**
             * Format: date-time
             * @example 2026-11-20T21:04:11.52Z
             */
            nextAttemptAt: string | null;
            /**
             * Format: int32
             * @description Rows in the event that are gone.
             * @example 0
             */
            removedCount: number;
            /**
             * @description `pending`, `waiting` for the chunk before, `delivered` or `failed`.
             * @example pending
             * @enum {string}
             */
            state: "pending" | "waiting" | "delivered" | "failed";
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            syncRunId: string;
            /**
             * Format: int32
             * @example 1
             */
            totalChunks: number;
            /**
             * @description The type of the event.
             * @example transactions.synced
             * @enum {string}
             */
            type: "transactions.synced" | "trades.synced" | "connection.created" | "connection.updated" | "connection.expiring" | "connection.removed" | "user.removed" | "endpoint.ping";
            /**
             * Format: int32
             * @description Changed rows in the event.
             * @example 0
             */
            updatedCount: number;
            /**
             * Format: uuid
             * @description Whose event it is. Null: nobody's, because it is a ping of an endpoint for all users.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string | null;
        };
        DeliveryDetailsItem: {
            data: components["schemas"]["DeliveryDetails"];
        };
        DeliveryList: {
            data: components["schemas"]["Delivery"][];
            /** @description The `cursor` of the next page. Null: this is the last one. */
            nextCursor: string | null;
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
        /** @description A key, without the key itself. */
        Key: {
            /**
             * Format: date-time
             * @example 2026-08-01T02:10:00.25Z
             */
            createdAt: string;
            /**
             * Format: date-time
             * @example 2027-01-31T00:00:00Z
             */
            expiresAt: string | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * Format: date-time
             * @description Exact to a minute.
             * @example 2026-08-01T02:10:00.25Z
             */
            lastUsedAt: string | null;
            /** @example app */
            name: string;
            /**
             * @description The first characters of the key.
             * @example bb_007Kd2p
             */
            prefix: string;
            /**
             * Format: date-time
             * @example 2027-01-31T00:00:00Z
             */
            revokedAt: string | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string;
        };
        /** @description The keys of a user. */
        KeyList: {
            data: components["schemas"]["Key"][];
        };
        /** @description How to rotate a key. */
        KeyRotation: {
            /**
             * Format: int32
             * @description How long the old key stays valid, in seconds. 86400 if absent; 0 ends it immediately.
             * @example 3600
             */
            graceSeconds?: number;
        };
        /** @description A link session with its result. */
        LinkSession: {
            /** @description What it has connected, reconnected or renewed, and what is still connected. */
            connections: components["schemas"]["LinkedConnection"][];
            /**
             * Format: date-time
             * @example 2026-08-01T02:40:00Z
             */
            expiresAt: string;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            reason: components["schemas"]["LinkSessionReason"] | null;
            /**
             * @description `open`, `waiting`, `connected`, `declined`, `failed` or `expired`.
             * @example open
             * @enum {string}
             */
            status: "open" | "waiting" | "connected" | "declined" | "failed" | "expired";
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string;
        };
        LinkSessionItem: {
            data: components["schemas"]["LinkSession"];
        };
        /** @description Why a link session has no connection. */
        LinkSessionReason: {
            /**
             * @description A word for programs. More may come.
             * @example declined
             */
            code: string;
            /**
             * @description A sentence for people.
             * @example The person gave no consent.
             */
            message: string;
        };
        /** @description A connection of a link session. */
        LinkedConnection: {
            /**
             * @example banking
             * @enum {string}
             */
            category: "banking" | "brokerage";
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * @example fiskil
             * @enum {string}
             */
            provider: "fiskil" | "akahu" | "snaptrade";
        };
        /** @description A key to create. */
        NewKey: {
            /**
             * Format: date-time
             * @description The key works before this time. If absent, it does not expire.
             * @example 2027-01-31T00:00:00Z
             */
            expiresAt?: string;
            /**
             * @description Name of the key, to recognise it in lists. 1 to 100 characters; `default` if absent.
             * @example app
             */
            name?: string;
        };
        /** @description A link session to create. */
        NewLinkSession: {
            /**
             * Format: uuid
             * @description The user's connection to reconnect or renew, instead of a provider.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            connectionId?: string;
            /**
             * @description The provider to link. If absent, the person chooses.
             * @example fiskil
             * @enum {string}
             */
            provider?: "fiskil" | "akahu" | "snaptrade";
            /**
             * Format: uri
             * @description Where the browser returns: a URL of an origin in `admin.return_origins`, of at most 1,000
             *     bytes. If absent, it stays on the last page.
             * @example https://app.example.com/linked
             */
            returnUrl?: string;
            /**
             * @description Your own text for the return, at most 500 characters. It is in a URL, so no secret.
             * @example 42
             */
            state?: string;
            /**
             * Format: uuid
             * @description For whom the person links.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string;
        };
        /** @description A setup token to create. */
        NewSetupToken: {
            /**
             * @description Name of the API key that the claim creates. 1 to 100 characters; `SimpleFIN` if absent.
             * @example Actual
             */
            name?: string;
        };
        /** @description A user to create. */
        NewUser: {
            /**
             * @description Whether the user may sign in to the console, and gets e-mails. Send true only if you have
             *     verified that the address is the user's, because whoever has the mailbox reads all accounts
             *     of the user. The default is false.
             * @example false
             */
            consoleSignIn?: boolean;
            /**
             * Format: email
             * @description E-mail address, unique without regard to case.
             * @example anna@example.com
             */
            email: string;
            /**
             * @description `saver` has no API access, `developer` banks only, `professional` banks and brokers (the
             *     default).
             * @example saver
             * @enum {string}
             */
            plan?: "saver" | "developer" | "professional";
            /**
             * @description Your own name of the user, unique. 1 to 200 characters.
             * @example customer-17
             */
            reference?: string;
            /**
             * @description IANA timezone in which the user's days begin and end. The default is Australia/Sydney.
             * @example Australia/Perth
             */
            timezone?: string;
        };
        /** @description A webhook endpoint to create. */
        NewWebhookEndpoint: {
            /**
             * @description Whether it receives the events of all users.
             * @example false
             */
            allUsers?: boolean;
            /**
             * @description Version of the events' body. If omitted, the newest for an endpoint of all users, and
             *     `2026-11-01` for one of a user.
             * @example 2026-11-01
             * @enum {string}
             */
            apiVersion?: "2026-11-01" | "2026-12-01";
            /**
             * @description The event types to send. If omitted, all of them for an endpoint of all users, and
             *     `transactions.synced` and `trades.synced` for one of a user, which cannot have
             *     `user.removed`.
             * @example [
             *       "transactions.synced",
             *       "connection.updated"
             *     ]
             */
            events?: ("transactions.synced" | "trades.synced" | "connection.created" | "connection.updated" | "connection.expiring" | "connection.removed" | "user.removed")[];
            /**
             * Format: uri
             * @description Where events are sent.
             * @example https://hooks.example.com/bellbird
             */
            url: string;
            /**
             * Format: uuid
             * @description Whose events it receives, unless `allUsers` is true.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId?: string;
        };
        /** @description A new signing secret. */
        NewWebhookSecret: {
            /**
             * Format: uuid
             * @description The endpoint's.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * Format: date-time
             * @description Until then, the old one verifies too. Null: it could not be opened and is deleted.
             * @example 2026-08-02T02:10:00.25Z
             */
            oldSecretExpiresAt: string | null;
            /**
             * @description Verifies the signatures of events. Store it: it is not shown again.
             * @example whsec_...
             */
            secret: string;
        };
        NewWebhookSecretItem: {
            data: components["schemas"]["NewWebhookSecret"];
        };
        /** @description What an endpoint responded to a ping. */
        Ping: {
            /** @description Whether the endpoint accepted it, with a status of 2xx. */
            delivered: boolean;
            /**
             * Format: int64
             * @example 84
             */
            durationMs: number;
            /**
             * @description A few words.
             * @example timeout
             */
            error: string | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            eventId: string;
            /**
             * Format: int32
             * @description HTTP status. Null: no response.
             * @example 204
             */
            status: number | null;
        };
        PingItem: {
            data: components["schemas"]["Ping"];
        };
        /** @description Events that are due. */
        Recovered: {
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            endpointId: string;
            /**
             * Format: int64
             * @description How many. Pings are left out.
             * @example 12
             */
            recovered: number;
        };
        RecoveredItem: {
            data: components["schemas"]["Recovered"];
        };
        /** @description An event that is due. */
        Redelivery: {
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            endpointId: string;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            eventId: string;
            /**
             * @description Always `pending`.
             * @example pending
             * @enum {string}
             */
            state: "pending" | "waiting" | "delivered" | "failed";
        };
        RedeliveryItem: {
            data: components["schemas"]["Redelivery"];
        };
        /** @description A setup token. */
        SetupToken: {
            /**
             * Format: date-time
             * @example 2026-08-01T03:10:00.25Z
             */
            expiresAt: string;
            /**
             * @description The text that the user pastes into the program.
             * @example aHR0cHM6Ly9hcGkuZXhhbXBsZS5jb20v...
             */
            token: string;
        };
        SetupTokenItem: {
            data: components["schemas"]["SetupToken"];
        };
        /** @description A user. */
        User: {
            /**
             * @description Whether the user may sign in to the console, and gets e-mails.
             * @example false
             */
            consoleSignIn: boolean;
            /**
             * Format: date-time
             * @example 2026-08-01T02:10:00.25Z
             */
            createdAt: string;
            /**
             * Format: email
             * @example anna@example.com
             */
            email: string;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * @description What the user may read.
             * @example saver
             * @enum {string}
             */
            plan: "saver" | "developer" | "professional";
            /**
             * @description Your own name of the user.
             * @example customer-17
             */
            reference: string | null;
            /**
             * @description IANA timezone. Null: the default, Australia/Sydney.
             * @example Australia/Perth
             */
            timezone: string | null;
        };
        /** @description What to change of a user. */
        UserChange: {
            /**
             * @description Whether the user may sign in to the console, and gets e-mails: see the creation of a user. A
             *     new `email` without this makes it false, because nobody has verified the new address.
             * @example true
             */
            consoleSignIn?: boolean;
            /**
             * Format: email
             * @description E-mail address, unique without regard to case.
             * @example anna@example.com
             */
            email?: string;
            /**
             * @description What the user may read. It takes effect with the next request.
             * @example saver
             * @enum {string}
             */
            plan?: "saver" | "developer" | "professional";
            /**
             * @description Your own name of the user. Null clears it.
             * @example customer-17
             */
            reference?: string | null;
            /**
             * @description IANA timezone. Null sets the default.
             * @example Australia/Perth
             */
            timezone?: string | null;
        };
        UserItem: {
            data: components["schemas"]["User"];
        };
        UserList: {
            data: components["schemas"]["User"][];
            /** @description The `cursor` of the next page. Null: this is the last one. */
            nextCursor: string | null;
        };
        /** @description A URL that receives the events of a user, or of all users. */
        WebhookEndpoint: {
            /**
             * @description Of the events' body.
             * @example 2026-11-01
             * @enum {string}
             */
            apiVersion: "2026-11-01" | "2026-12-01";
            /**
             * Format: date-time
             * @example 2026-08-01T02:10:00.25Z
             */
            createdAt: string;
            /**
             * @description A few words. Null: enabled.
             * @example by operator
             */
            disabledReason: string | null;
            /**
             * @description The event types that it receives.
             * @example [
             *       "transactions.synced",
             *       "trades.synced"
             *     ]
             */
            events: ("transactions.synced" | "trades.synced" | "connection.created" | "connection.updated" | "connection.expiring" | "connection.removed" | "user.removed")[];
            /**
             * Format: date-time
             * @description The first failure since the last success. Of an endpoint for all users, the earliest of
             *     those that last.
             * @example 2026-11-20T21:04:11.52Z
             */
            failingSince: string | null;
            /**
             * Format: uuid
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            id: string;
            /**
             * Format: date-time
             * @description The last success, to the minute.
             * @example 2026-11-20T21:04:11.52Z
             */
            lastDeliveredAt: string | null;
            /**
             * @description Whether it receives events.
             * @example enabled
             * @enum {string}
             */
            status: "enabled" | "disabled";
            /**
             * Format: uri
             * @example https://hooks.example.com/bellbird
             */
            url: string;
            /**
             * Format: uuid
             * @description Null: it receives the events of all users.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId: string | null;
        };
        /** @description What to change of a webhook endpoint. */
        WebhookEndpointChange: {
            /**
             * @description Version of the events' body.
             * @example 2026-11-01
             * @enum {string}
             */
            apiVersion?: "2026-11-01" | "2026-12-01";
            /**
             * @description Whether it receives events.
             * @example true
             */
            enabled?: boolean;
            /**
             * @description The event types to send.
             * @example [
             *       "transactions.synced",
             *       "connection.updated"
             *     ]
             */
            events?: ("transactions.synced" | "trades.synced" | "connection.created" | "connection.updated" | "connection.expiring" | "connection.removed" | "user.removed")[];
            /**
             * Format: uri
             * @description Where events are sent.
             * @example https://hooks.example.com/bellbird
             */
            url?: string;
        };
        WebhookEndpointItem: {
            data: components["schemas"]["WebhookEndpoint"];
        };
        WebhookEndpointList: {
            data: components["schemas"]["WebhookEndpoint"][];
            /** @description The `cursor` of the next page. Null: this is the last one. */
            nextCursor: string | null;
        };
        /** @description Which events to deliver again. */
        WebhookRecovery: {
            /**
             * Format: date-time
             * @description When the oldest of them was created.
             * @example 2026-11-20T09:30:00Z
             */
            since: string;
            /**
             * Format: uuid
             * @description Only this user's events, at an endpoint for all users.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId?: string;
        };
        /** @description Which event to deliver again. */
        WebhookRedelivery: {
            /**
             * Format: uuid
             * @description Whose event it is. Required if the endpoint is for all users.
             * @example 0191e7a0-7c3b-7def-8000-00aabbccddee
             */
            userId?: string;
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
