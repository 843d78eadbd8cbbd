import { Webhook } from "standardwebhooks";
import type { components } from "./schema.js";

export { WebhookVerificationError } from "standardwebhooks";

type Schemas = components["schemas"];

export type TransactionsSynced = Schemas["TransactionsSynced"];
export type TradesSynced = Schemas["TradesSynced"];
export type ConnectionCreated = Schemas["ConnectionCreated"];
export type ConnectionUpdated = Schemas["ConnectionUpdated"];
export type ConnectionExpiring = Schemas["ConnectionExpiring"];
export type ConnectionRemoved = Schemas["ConnectionRemoved"];
export type UserRemoved = Schemas["UserRemoved"];
export type EndpointPing = Schemas["EndpointPing"];

/** By `type`. An event of another type may come. */
export type WebhookEvent =
  | TransactionsSynced
  | TradesSynced
  | ConnectionCreated
  | ConnectionUpdated
  | ConnectionExpiring
  | ConnectionRemoved
  | UserRemoved
  | EndpointPing;

/** Of a `Request`, or of Node's `IncomingMessage`. */
export type WebhookHeaders = Headers | Record<string, string | string[] | undefined>;

/**
 * @param body As it was received, since JSON that is written again has another signature.
 * @param secret `whsec_` and what follows it.
 * @throws WebhookVerificationError if the signature is not valid, or more than five minutes old.
 */
export function verifyWebhook(
  body: string | Uint8Array,
  headers: WebhookHeaders,
  secret: string,
): WebhookEvent {
  const text = typeof body === "string" ? body : new TextDecoder().decode(body);
  const fields = headers instanceof Headers ? Object.fromEntries(headers) : headers;
  return new Webhook(secret).verify(text, fields as Record<string, string>) as WebhookEvent;
}
