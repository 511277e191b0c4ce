// A response that is asked for here, as it comes: its events folded into pieces to show. One in the background is followed
// again where the connection is lost; of any other, what was stored until then is in the tree.
import { ApiError, create, follow, pause, retrieve } from "./api";
import type { Body } from "./request";
import { eventsOf, isTerminal } from "./stream";
import type { StreamEvent } from "./wire";

/** A part of what comes: reasoning, words of the answer, or a call. */
export interface Piece {
  kind: "reasoning" | "answer" | "call";
  text: string;
}

/** What is there so far. */
export interface Live {
  id: string;
  pieces: Piece[];
  /** The number of the last event. */
  last: number;
  status: string;
  /** Whether the connection is lost, and is tried again. */
  lost: boolean;
  error: string;
}

/** The milliseconds that a response took which was asked for here, and those until its first token; of the last ones. */
export const measured = new Map<string, { first: number; total: number }>();
const MAX_MEASURED = 200;

/** The tools that the service left out of a request that was made here, by the response's id; of the last ones. */
export const leftOut = new Map<string, string>();

export const nothing: Live = { id: "", pieces: [], last: -1, status: "queued", lost: false, error: "" };

const KINDS: Record<string, Piece["kind"]> = {
  "response.output_text.delta": "answer",
  "response.refusal.delta": "answer",
  "response.reasoning_text.delta": "reasoning",
  "response.function_call_arguments.delta": "call",
  "response.custom_tool_call_input.delta": "call",
};

/** What is there after one more event. */
export function folded(live: Live, event: StreamEvent): Live {
  const next = { ...live, last: Math.max(live.last, event.sequence_number ?? -1) };
  if (event.response) {
    next.id = event.response.id;
    next.status = event.response.status;
    next.error = event.response.error?.message ?? "";
  }
  if (event.type === "error") next.error = event.message ?? "The stream ended with an error.";
  if (event.type === "response.output_item.added" && event.item?.type?.endsWith("call"))
    next.pieces = [...live.pieces, { kind: "call", text: event.item.name ? `${event.item.name} ` : "" }];
  const kind = KINDS[event.type];
  if (kind && event.delta) next.pieces = added(live.pieces, kind, event.delta);
  return next;
}

function added(pieces: Piece[], kind: Piece["kind"], delta: string): Piece[] {
  const last = pieces.at(-1);
  if (last?.kind !== kind) return [...pieces, { kind, text: delta }];
  return [...pieces.slice(0, -1), { kind, text: last.text + delta }];
}

const FIRST_PAUSE_MS = 500;
const MOST_PAUSE_MS = 5_000;

/** How often in a row it is tried to follow a response: for some six minutes. */
const MAX_TRIES = 60;

/** How often it is asked whether a response that was stopped is stored, and how long between. */
const STORED_TRIES = 25;
const STORED_PAUSE_MS = 200;

/** Wait until a response that was stopped is stored, which it is a moment later; whether it is. Throws ApiError. */
export async function stored(id: string): Promise<boolean> {
  for (let tries = 0; tries < STORED_TRIES; tries += 1) {
    try {
      await retrieve(id);
      return true;
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
    }
    await pause(STORED_PAUSE_MS);
  }
  return false;
}

/** Ask for a response and tell what is there, again and again, until it ended. Throws ApiError. */
export async function run(body: Body, signal: AbortSignal, tell: (live: Live) => void): Promise<Live> {
  let live = nothing;
  let first = 0;
  const began = performance.now();
  const add = (event: StreamEvent): boolean => {
    live = folded({ ...live, lost: false }, event);
    if (live.pieces.length) first ||= performance.now() - began;
    if (isTerminal(event)) keep(measured, live.id, { first, total: performance.now() - began });
    if (tools) keep(leftOut, live.id, tools);
    tell(live);
    return isTerminal(event);
  };
  let answer: Response | null = await create({ ...body, stream: true }, signal);
  const tools = answer.headers.get("x-harmonium-tools-left-out");
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const before = live.last;
    if (answer && (await readAll(answer, signal, add))) return live;
    if (live.last > before) tries = 0;
    if (body["background"] !== true || !live.id) break;
    live = { ...live, lost: true };
    tell(live);
    await pause(Math.min(MOST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** tries));
    signal.throwIfAborted();
    answer = await followed(live, signal);
  }
  throw new ApiError(0, "The connection to the service was lost. What was stored until then is in its conversation.");
}

function keep<T>(known: Map<string, T>, id: string, value: T): void {
  known.set(id, value);
  const [oldest] = known.keys();
  if (known.size > MAX_MEASURED && oldest !== undefined) known.delete(oldest);
}

/** Whether the end of a response came. */
async function readAll(answer: Response, signal: AbortSignal, add: (event: StreamEvent) => boolean): Promise<boolean> {
  try {
    for await (const event of eventsOf(answer)) if (add(event)) return true;
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof TypeError)) throw error; // what fetch throws where a connection breaks
  }
  return false;
}

/** The events from where they were lost, or null while nobody answers. */
async function followed(live: Live, signal: AbortSignal): Promise<Response | null> {
  try {
    return await follow(live.id, live.last, signal);
  } catch (error) {
    if (error instanceof ApiError && (error.status === 0 || error.status >= 500)) return null;
    throw error;
  }
}
