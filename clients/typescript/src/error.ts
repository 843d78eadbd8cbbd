export interface ErrorFields {
  status?: number;
  code?: string | null;
  details?: string[];
  requestId?: string | null;
  retryAfter?: number | null;
  cause?: unknown;
}

export class BellbirdError extends Error {
  /** Null if no response arrived whole. */
  readonly status: number | null;
  /** The header `Bellbird-Error`. Treat a word that you do not know by the status. */
  readonly code: string | null;
  readonly details: string[];
  /** Names the request to the operator of the service. */
  readonly requestId: string | null;
  /** Seconds after which the request may succeed. */
  readonly retryAfter: number | null;

  constructor(message: string, fields: ErrorFields = {}) {
    super(message, { cause: fields.cause });
    this.name = "BellbirdError";
    this.status = fields.status ?? null;
    this.code = fields.code ?? null;
    this.details = fields.details ?? [];
    this.requestId = fields.requestId ?? null;
    this.retryAfter = fields.retryAfter ?? null;
  }
}

export function errorOf({ status, headers }: Response, body: object | undefined): BellbirdError {
  const error = (body as { error?: { message?: unknown; details?: unknown } } | undefined)?.error;
  const message =
    typeof error?.message === "string"
      ? error.message
      : `Not a response of Bellbird: HTTP ${status}`;
  return new BellbirdError(message, {
    status,
    code: headers.get("bellbird-error"),
    details: Array.isArray(error?.details) ? error.details : [],
    requestId: headers.get("x-request-id"),
    retryAfter: secondsOf(headers.get("retry-after")),
  });
}

/** At least one second, so that repetitions end. */
function secondsOf(retryAfter: string | null): number | null {
  return retryAfter && /^\d+$/.test(retryAfter) ? Math.max(1, Number(retryAfter)) : null;
}
