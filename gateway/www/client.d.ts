// SPDX-License-Identifier: Apache-2.0
// Types of client.js.

export interface ClientOptions {
  /** Where the server is: "https://llm.example.org", with or without "/v1". Default: beside the page. */
  baseURL?: string;
  /** The key, sent as `Authorization: Bearer`. Never put a key of yours into a page that others load. */
  apiKey?: string;
  /** Instead of apiKey: asked before each request, so that tokens may be short-lived. */
  getToken?: () => string | null | Promise<string | null>;
  /** Sent with every request. */
  headers?: Record<string, string>;
  fetch?: (input: string, init: RequestInit) => Promise<Response>;
  /** Ask for numbered events, so that a cut answer can be taken up again. Default true; false for servers whose CORS rules do not allow `x-sluice-events`. */
  resume?: boolean;
  /** Further attempts before the first byte of an answer. Default 2. */
  maxRetries?: number;
  /** Which errors are worth one of them. Default: `error.retryable`. */
  shouldRetry?: (error: SluiceError, attempt: number) => boolean;
  /** How long the headers of a response may take. Default 120,000. */
  timeoutMs?: number;
  /** Silence after which a resumable stream counts as cut; heartbeats are no silence. Default 45,000. */
  stallMs?: number;
  /** How long a cut answer is tried to be taken up again. Default 30,000. */
  reconnectMs?: number;
  /** For tests. */
  clock?: { now(): number; pause(ms: number, signal?: AbortSignal): Promise<void>; random(): number };
}

export interface Message {
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  content: unknown;
  [field: string]: unknown;
}

/** The body of a chat request; `stream` is always on, and usage is asked for unless stream_options says otherwise. */
export interface ChatBody {
  model: string;
  messages: Message[];
  temperature?: number;
  top_p?: number;
  max_completion_tokens?: number;
  stop?: string | string[];
  seed?: number;
  n?: number;
  stream_options?: Record<string, unknown>;
  [field: string]: unknown;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  [field: string]: unknown;
}

/** All that is needed to go on with an answer: plain data, to be kept where you like. */
export interface RunState {
  /** the stream's id */
  id: string;
  /** number of the last event that was delivered; null or absent: from the beginning */
  lastEventId?: number | null;
}

export type RunEvent =
  /** A connection is there; state is null on a server without numbered events. */
  | { type: 'open'; state: RunState | null; requestId: string | null; resumed: boolean }
  /** The next attempt is made in `ms`; resuming: to go on with an answer that was cut. */
  | { type: 'waiting'; ms: number; attempt: number; resuming: boolean; error: SluiceError }
  /** Something of choice `index`; text and reasoning may be empty when `delta` holds something else (tool calls). */
  | { type: 'delta'; index: number; text: string; reasoning: string; delta: Record<string, unknown>; chunk: unknown }
  | { type: 'finish'; index: number; reason: 'stop' | 'length' | 'tool_calls' | 'content_filter' | (string & {}); chunk: unknown }
  | { type: 'usage'; usage: Usage; chunk: unknown }
  | { type: 'done' };

export interface Result {
  text: string;
  reasoning: string;
  finishReason: string | null;
  usage: Usage | null;
  model: string | null;
  status: RunStatus;
}

export type RunStatus = 'running' | 'done' | 'stopped' | 'detached' | 'failed';

export interface RunOptions {
  /** Aborting it stops the run, on the server too; the reader is thrown the signal's reason. */
  signal?: AbortSignal;
  /** Called with every event, and with the error that ends the run; the run reads itself when nobody begins to at once. */
  onEvent?: (event: RunEvent | { type: 'error'; error: unknown }) => void;
}

/** One answer. The request is sent when reading begins: by `for await`, result(), answer(), or at once with onEvent. */
export interface Run extends AsyncIterable<RunEvent> {
  /** What has come of choice 0 in this run; after resume() with a lastEventId that is the rest only. */
  readonly text: string;
  readonly reasoning: string;
  readonly finishReason: string | null;
  readonly usage: Usage | null;
  readonly model: string | null;
  readonly status: RunStatus;
  /** Right for what has been delivered; null while (or where) nothing can be resumed. */
  readonly state: RunState | null;
  [Symbol.asyncIterator](): AsyncGenerator<RunEvent, void, undefined>;
  /** Reads to the end. Throws a SluiceError, or the signal's reason. */
  result(): Promise<Result>;
  /** The whole text. */
  answer(): Promise<string>;
  /** Ends the answer here and on the server; the reader's loop just ends. Resolves when the server has been told. */
  stop(): Promise<void>;
  /** Leaves without ending the answer; it goes on for as long as the server keeps it. */
  detach(): void;
}

export interface RequestOptions {
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
}

export interface Client {
  chat(body: ChatBody, options?: RunOptions): Run;
  /** Goes on with an answer: after the last event of the state, or from the beginning when it names none. */
  resume(state: RunState, options?: RunOptions): Run;
  models(options?: { signal?: AbortSignal }): Promise<{ id: string; [field: string]: unknown }[]>;
  /** Any other request with a JSON answer, with the same key, retries and errors: request('v1/embeddings', {body}). */
  request<T = unknown>(path: string, options?: RequestOptions): Promise<T>;
}

export function createClient(options?: ClientOptions): Client;

/**
 * What went wrong. `code` is the server's, or one of ours: connection_failed, timeout, connection_lost (what came stands;
 * run.state may still be resumed), stream_lost (the server no longer has the answer), malformed_answer.
 */
export class SluiceError extends Error {
  constructor(message: string, fields?: Partial<Pick<SluiceError, 'status' | 'code' | 'param' | 'type' | 'requestId' | 'retryAfterMs' | 'retryable'>> & { cause?: unknown });
  /** HTTP status, or 0 */
  status: number;
  code: string | null;
  param: string | null;
  type: string | null;
  requestId: string | null;
  /** how long the server asks to wait */
  retryAfterMs: number | null;
  /** whether the same request may succeed later */
  retryable: boolean;
}

export interface SseEvent {
  type: string;
  data: string;
  /** of this event; null when it has none of its own */
  id: string | null;
  /** as the standard has it: kept from earlier events */
  lastEventId: string;
}

export interface SseHandlers {
  event?: (event: SseEvent) => void;
  retry?: (ms: number) => void;
  comment?: (text: string) => void;
}

/** Parser of event streams by the rules of the HTML standard. Throws a SluiceError when an event is too long. */
export class SseParser {
  constructor(on: SseHandlers | ((event: SseEvent) => void), options?: { maxEventChars?: number });
  /** Text or UTF-8 bytes, cut anywhere. */
  push(piece: string | Uint8Array): void;
}

/** Milliseconds by Retry-After-Ms or Retry-After; null when neither says. */
export function retryAfterMs(headers: Headers, now?: number): number | null;
