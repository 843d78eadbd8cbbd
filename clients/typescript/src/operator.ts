import type { components } from "./admin-schema.js";
import { Caller, type CallOptions, type Request } from "./caller.js";

type Schemas = components["schemas"];

export type AuditRow = Schemas["AuditRow"];
export type Connection = Schemas["Connection"];
export type ConnectionDetails = Schemas["ConnectionDetails"];
export type CreatedKey = Schemas["CreatedKey"];
export type CreatedLinkSession = Schemas["CreatedLinkSession"];
export type CreatedWebhookEndpoint = Schemas["CreatedWebhookEndpoint"];
export type Delivery = Schemas["Delivery"];
export type DeliveryDetails = Schemas["DeliveryDetails"];
export type Key = Schemas["Key"];
export type KeyRotation = Schemas["KeyRotation"];
export type LinkSession = Schemas["LinkSession"];
export type NewKey = Schemas["NewKey"];
export type NewLinkSession = Schemas["NewLinkSession"];
export type NewSetupToken = Schemas["NewSetupToken"];
export type NewUser = Schemas["NewUser"];
export type NewWebhookEndpoint = Schemas["NewWebhookEndpoint"];
export type NewWebhookSecret = Schemas["NewWebhookSecret"];
export type Ping = Schemas["Ping"];
export type Recovered = Schemas["Recovered"];
export type Redelivery = Schemas["Redelivery"];
export type SetupToken = Schemas["SetupToken"];
export type User = Schemas["User"];
export type UserChange = Schemas["UserChange"];
export type WebhookEndpoint = Schemas["WebhookEndpoint"];
export type WebhookEndpointChange = Schemas["WebhookEndpointChange"];
export type WebhookRecovery = Schemas["WebhookRecovery"];
export type WebhookRedelivery = Schemas["WebhookRedelivery"];

export interface UsersQuery {
  email?: string | undefined;
  reference?: string | undefined;
}

export interface OfUserQuery {
  userId?: string | undefined;
}

export interface DeliveriesQuery extends OfUserQuery {
  state?: string | undefined;
}

export interface ChangeOptions extends CallOptions {
  /**
   * Names the change, so that the service makes it once however often it is sent. Random unless
   * set, and the same when the client repeats the request.
   */
  idempotencyKey?: string | undefined;
}

interface Page<Row> {
  data: Row[];
  nextCursor: string | null;
}

const ROWS_MAX = 200;

/**
 * The operator's API, for programs that manage users, with an operator key. A method that fails
 * throws a `BellbirdError`, or the reason of its signal. A list is read in pages while it is
 * iterated.
 */
export class BellbirdOperator extends Caller {
  users(query?: UsersQuery, options?: CallOptions): AsyncGenerator<User, void> {
    return this.#pages<User>("/users", query, options);
  }

  createUser(user: NewUser, options?: ChangeOptions): Promise<User> {
    return this.#create<User>("/users", user, options);
  }

  user(id: string, options?: CallOptions): Promise<User> {
    return this.#data<User>(path`/users/${id}`, options);
  }

  updateUser(id: string, change: UserChange, options?: CallOptions): Promise<User> {
    return this.#data<User>(path`/users/${id}`, { ...options, method: "PATCH", body: change });
  }

  /** With `connections: "remove"`, the service goes on after the response. */
  async removeUser(
    id: string,
    query?: { connections?: "remove" },
    options?: CallOptions,
  ): Promise<void> {
    const request = { ...options, method: "DELETE", ...(query && { query }) } as const;
    await this.call(path`/admin/v1/users/${id}`, request);
  }

  keys(userId: string, options?: CallOptions): Promise<Key[]> {
    return this.#data<Key[]>(path`/users/${userId}/keys`, options);
  }

  createKey(userId: string, key: NewKey = {}, options?: ChangeOptions): Promise<CreatedKey> {
    return this.#create<CreatedKey>(path`/users/${userId}/keys`, key, options);
  }

  revokeKey(id: string, options?: CallOptions): Promise<void> {
    return this.#delete(path`/keys/${id}`, options);
  }

  rotateKey(
    id: string,
    rotation: KeyRotation = {},
    options?: ChangeOptions,
  ): Promise<CreatedKey> {
    return this.#create<CreatedKey>(path`/keys/${id}/rotate`, rotation, options);
  }

  createSetupToken(
    userId: string,
    token: NewSetupToken = {},
    options?: ChangeOptions,
  ): Promise<SetupToken> {
    return this.#create<SetupToken>(path`/users/${userId}/setup-tokens`, token, options);
  }

  /** Those that nobody has claimed. */
  revokeSetupTokens(userId: string, options?: CallOptions): Promise<void> {
    return this.#delete(path`/users/${userId}/setup-tokens`, options);
  }

  createLinkSession(session: NewLinkSession, options?: ChangeOptions): Promise<CreatedLinkSession> {
    return this.#create<CreatedLinkSession>("/link-sessions", session, options);
  }

  linkSession(id: string, options?: CallOptions): Promise<LinkSession> {
    return this.#data<LinkSession>(path`/link-sessions/${id}`, options);
  }

  connections(query?: OfUserQuery, options?: CallOptions): AsyncGenerator<Connection, void> {
    return this.#pages<Connection>("/connections", query, options);
  }

  connection(id: string, options?: CallOptions): Promise<ConnectionDetails> {
    return this.#data<ConnectionDetails>(path`/connections/${id}`, options);
  }

  /** Requests a sync. `sync.syncedAt` of the connection shows when it ran. */
  syncConnection(id: string, options?: ChangeOptions): Promise<ConnectionDetails> {
    return this.#create<ConnectionDetails>(path`/connections/${id}/sync`, undefined, options);
  }

  /** Requests the removal. The connection is 404 once the provider has withdrawn the consent. */
  removeConnection(id: string, options?: CallOptions): Promise<ConnectionDetails> {
    const request: Request = { ...options, method: "DELETE" };
    return this.#data<ConnectionDetails>(path`/connections/${id}`, request);
  }

  webhookEndpoints(
    query?: OfUserQuery,
    options?: CallOptions,
  ): AsyncGenerator<WebhookEndpoint, void> {
    return this.#pages<WebhookEndpoint>("/webhook-endpoints", query, options);
  }

  /** The secret is in this response only. */
  createWebhookEndpoint(
    endpoint: NewWebhookEndpoint,
    options?: ChangeOptions,
  ): Promise<CreatedWebhookEndpoint> {
    return this.#create<CreatedWebhookEndpoint>("/webhook-endpoints", endpoint, options);
  }

  webhookEndpoint(id: string, options?: CallOptions): Promise<WebhookEndpoint> {
    return this.#data<WebhookEndpoint>(path`/webhook-endpoints/${id}`, options);
  }

  updateWebhookEndpoint(
    id: string,
    change: WebhookEndpointChange,
    options?: CallOptions,
  ): Promise<WebhookEndpoint> {
    const request: Request = { ...options, method: "PATCH", body: change };
    return this.#data<WebhookEndpoint>(path`/webhook-endpoints/${id}`, request);
  }

  removeWebhookEndpoint(id: string, options?: CallOptions): Promise<void> {
    return this.#delete(path`/webhook-endpoints/${id}`, options);
  }

  rotateWebhookSecret(id: string, options?: ChangeOptions): Promise<NewWebhookSecret> {
    const rotate = path`/webhook-endpoints/${id}/rotate-secret`;
    return this.#create<NewWebhookSecret>(rotate, undefined, options);
  }

  pingWebhookEndpoint(id: string, options?: ChangeOptions): Promise<Ping> {
    return this.#create<Ping>(path`/webhook-endpoints/${id}/ping`, undefined, options);
  }

  /** The newest first. */
  deliveries(
    endpointId: string,
    query?: DeliveriesQuery,
    options?: CallOptions,
  ): AsyncGenerator<Delivery, void> {
    return this.#pages<Delivery>(path`/webhook-endpoints/${endpointId}/deliveries`, query, options);
  }

  /** At an endpoint for all users, the query names the user. */
  delivery(
    endpointId: string,
    eventId: string,
    query?: OfUserQuery,
    options?: CallOptions,
  ): Promise<DeliveryDetails> {
    const delivery = path`/webhook-endpoints/${endpointId}/deliveries/${eventId}`;
    return this.#data<DeliveryDetails>(delivery, { ...options, query });
  }

  /** At an endpoint for all users, the redelivery names the user. */
  redeliver(
    endpointId: string,
    eventId: string,
    redelivery?: WebhookRedelivery,
    options?: ChangeOptions,
  ): Promise<Redelivery> {
    const redeliver = path`/webhook-endpoints/${endpointId}/deliveries/${eventId}/redeliver`;
    return this.#create<Redelivery>(redeliver, redelivery, options);
  }

  /** Delivers again what failed since a time. */
  recover(
    endpointId: string,
    recovery: WebhookRecovery,
    options?: ChangeOptions,
  ): Promise<Recovered> {
    const recover = path`/webhook-endpoints/${endpointId}/recover`;
    return this.#create<Recovered>(recover, recovery, options);
  }

  /** What operators did, the newest first. */
  audit(query?: OfUserQuery, options?: CallOptions): AsyncGenerator<AuditRow, void> {
    return this.#pages<AuditRow>("/audit", query, options);
  }

  async *#pages<Row>(
    path: string,
    query?: object,
    options?: CallOptions,
  ): AsyncGenerator<Row, void> {
    for (let cursor: string | null = null; ; ) {
      const window = { limit: ROWS_MAX, ...query, cursor };
      const page: Page<Row> = await this.call(`/admin/v1${path}`, { ...options, query: window });
      yield* page.data;
      if (page.nextCursor === null) return;
      cursor = page.nextCursor;
    }
  }

  #data<Data>(path: string, request?: Request): Promise<Data> {
    return this.data<Data>(`/admin/v1${path}`, request);
  }

  #create<Data>(path: string, body?: object, options?: ChangeOptions): Promise<Data> {
    const idempotencyKey = options?.idempotencyKey ?? crypto.randomUUID();
    return this.#data<Data>(path, { ...options, method: "POST", body, idempotencyKey });
  }

  #delete(path: string, options?: CallOptions): Promise<void> {
    return this.call<void>(`/admin/v1${path}`, { ...options, method: "DELETE" });
  }
}

function path(texts: TemplateStringsArray, ...ids: string[]): string {
  return String.raw({ raw: texts }, ...ids.map(encodeURIComponent));
}
