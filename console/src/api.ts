// Asking the service. Every request has the key in its head; a refusal is an ApiError with the service's own words.
import { forgetKey, key, locked } from "./state";
import type { Answer, HostedOutcome, Item, ItemPage, TreePage, Turn, TurnTokens, WholeTree } from "./wire";

/** A refusal: its status and its message. `status` is 0 where no answer came. */
export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

const PAGE_ITEMS = 100;

/** How many are read at first, as most turns have one. */
const FIRST_ITEMS = 5;

/** The most items of a turn's input that are read: more are said to be there. */
export const MAX_ITEMS = 1_000;

export interface Asked {
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** The pauses before a GET without an answer is sent again. */
const RETRY_MS = [200, 1_000];

/**
 * `fetch`, but a GET without an answer is sent again: a browser breaks off its waiting requests when a network of its machine comes
 * or goes, such as one of Docker.
 */
async function fetched(path: string, asked: RequestInit): Promise<Response> {
  for (const ms of asked.method === "GET" ? RETRY_MS : []) {
    try {
      return await fetch(path, asked);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
    }
    await pause(ms);
  }
  return fetch(path, asked);
}

/** The answer to a request, once its head is there. Throws ApiError. */
export async function ask(path: string, { method = "GET", body, signal }: Asked = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  const used = key.value;
  if (used) headers["authorization"] = `Bearer ${used}`;
  if (method === "POST") headers["content-type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetched(path, {
      method,
      headers,
      signal: signal ?? null,
      body: body === undefined ? null : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (error instanceof TypeError) throw new ApiError(0, "The service doesn't answer. Is it running?");
    throw error;
  }
  if (answer.ok) return answer;
  const refusal = new ApiError(answer.status, await messageOf(answer));
  if (answer.status === 401 && used === key.value && (used || locked.value !== null)) forgetKey(used && refusal.message);
  throw refusal;
}

async function messageOf(answer: Response): Promise<string> {
  const text = await answer.text();
  try {
    const found: unknown = JSON.parse(text)?.error?.message;
    if (typeof found === "string") return found;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error; // a proxy's page, then
  }
  return `The service answered with status ${answer.status}.`;
}

/** The answer to a request, as JSON. Throws ApiError. */
export async function json<T>(path: string, asked?: Asked): Promise<T> {
  return (await (await ask(path, asked)).json()) as T;
}

/** The answer to what is posted. Throws ApiError. */
export const post = <T>(path: string, body?: unknown, signal?: AbortSignal): Promise<T> =>
  json(path, { method: "POST", body, ...(signal && { signal }) });

const TURNS = "/console/api/turns";

const response = (id: string): string => `/v1/responses/${encodeURIComponent(id)}`;

/** What is looked for: words or the beginning of an id, and days such as 2026-11-26. `metadata` is key=value. */
export const NOTHING = { find: "", status: "", since: "", until: "", model: "", metadata: "" };
export type Filters = typeof NOTHING;

/** The beginning of an id, which is told from words by its form. */
const BEGIN = /^[a-z]{2,5}_[0-9a-f]{4,52}$/;

/** The query of a page of trees. */
export function queryOf(filters: Filters, after: string | null, limit: number): URLSearchParams {
  const query = new URLSearchParams({ limit: String(limit) });
  const second = (time: string): string => String(Date.parse(time) / 1000);
  const find = filters.find.trim();
  if (after) query.set("after", after);
  if (find) query.set(BEGIN.test(find) ? "id" : "text", find);
  if (filters.status) query.set("status", filters.status);
  if (filters.since) query.set("since", second(`${filters.since}T00:00:00`));
  if (filters.until) query.set("until", second(`${filters.until}T23:59:59`));
  if (filters.model.trim()) query.set("model", filters.model.trim());
  const at = filters.metadata.indexOf("=");
  if (at > 0) query.set(`metadata[${filters.metadata.slice(0, at).trim()}]`, filters.metadata.slice(at + 1).trim());
  return query;
}

export const trees = (query: URLSearchParams, signal?: AbortSignal): Promise<TreePage> =>
  json(`/console/api/trees?${query}`, signal && { signal });

/** Resolves while the tab is seen. */
const seen = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (!document.hidden) resolve();
    else document.addEventListener("visibilitychange", () => resolve(), { once: true, signal });
  });

/**
 * A page of trees, as full as it can be: a request ends after half a second, and may have nothing of what is looked for, so `goOn`
 * is told what was found so far, and says whether another one is made.
 */
export async function found(
  filters: Filters,
  after: string | null,
  limit: number,
  signal: AbortSignal,
  goOn: (page: TreePage) => boolean,
): Promise<TreePage> {
  let page = await trees(queryOf(filters, after, limit), signal);
  while (page.has_more && page.data.length < limit && goOn(page)) {
    await seen(signal);
    const { data, searched } = page;
    page = await trees(queryOf(filters, page.after, limit - data.length), signal);
    page.data.unshift(...data);
    page.searched.trees += searched.trees;
    page.searched.unread += searched.unread;
    page.searched.stopped ??= searched.stopped;
  }
  return page;
}

export const tree = (id: string, signal?: AbortSignal): Promise<WholeTree> =>
  json(`/console/api/trees/${encodeURIComponent(id)}`, signal && { signal });

/** The background responses that wait or run, the newest first. */
export const jobs = (signal: AbortSignal): Promise<{ data: Turn[]; has_more: boolean }> =>
  json("/console/api/jobs?limit=20", { signal });

export const retrieve = (id: string): Promise<Answer> => json(response(id));

/** A turn as a file has it: what the service says of it, unread. */
export const whole = async (id: string, signal: AbortSignal): Promise<string> =>
  (await ask(`${TURNS}/${encodeURIComponent(id)}`, { signal })).text();

/** The tokens of a turn behind the first `after` ones, at most `limit`. */
export const tokens = (id: string, after: number, limit: number, signal: AbortSignal): Promise<TurnTokens> =>
  json(`${TURNS}/${encodeURIComponent(id)}/tokens?after=${after}&limit=${limit}`, { signal });

/** What the calls came to that the service made in a turn. */
export const outcomes = async (id: string): Promise<HostedOutcome[]> =>
  (await json<{ data: HostedOutcome[] }>(`${TURNS}/${encodeURIComponent(id)}/outcomes`)).data;

const filesIn = (container: string): string => `/v1/containers/${encodeURIComponent(container)}/files`;

/** The files in a container, the last written first. */
export const filesOf = async (container: string): Promise<{ id: string; path: string; bytes: number }[]> =>
  (await json<{ data: { id: string; path: string; bytes: number }[] }>(`${filesIn(container)}?limit=100`)).data;

/** The bytes of a file in a container. */
export const bytesOf = async (container: string, file: string): Promise<Blob> =>
  (await ask(`${filesIn(container)}/${encodeURIComponent(file)}/content`)).blob();

/** What became of a turn that was brought back: it is new, or was there, or was deleted there since. */
export interface Brought {
  id: string;
  new: boolean;
  deleted: boolean;
}

export const bring = (turn: object, signal: AbortSignal): Promise<Brought> => post(TURNS, turn, signal);

export const cancel = (id: string): Promise<Answer> => post(`${response(id)}/cancel`);

/** Say something to a background response while it waits or runs. */
export const steer = (id: string, words: string): Promise<unknown> => post(`${response(id)}/steer`, { input: words });

/** How much of what was said is to go: an answer; what later turns know of it, too; or the whole tree. */
export type Extent = "answer" | "erase" | "tree";

export const remove = (id: string, extent: Extent): Promise<unknown> =>
  json(`${response(id)}${{ answer: "", erase: "?erase=true", tree: "?tree=true" }[extent]}`, { method: "DELETE" });

/** A model, and what it reads. */
export interface Model {
  id: string;
  architecture?: { input_modalities?: string[] };
}

export const models = async (): Promise<Model[]> => (await json<{ data: Model[] }>("/v1/models")).data;

/** A tool as a request declares it, and the setting that would give one that isn't there. */
export interface Tool {
  declaration: { type: string; server_label?: string };
  setting: string | null;
}

export const tools = async (): Promise<Tool[]> => (await json<{ data: Tool[] }>("/console/api/tools")).data;

/** Whether the demo engine answers requests that name no model. */
export const isDemo = async (): Promise<boolean> => (await json<{ engine?: string }>("/")).engine === "demo";

/** Send a create request; the answer streams where the request says so. */
export const create = (body: unknown, signal: AbortSignal): Promise<Response> =>
  ask("/v1/responses", { method: "POST", body, signal });

/** The events of a background response, those behind `after`. */
export const follow = (id: string, after: number, signal: AbortSignal): Promise<Response> =>
  ask(`${response(id)}?stream=true&include_obfuscation=false${after < 0 ? "" : `&starting_after=${after}`}`, { signal });

/** What a turn was given itself, the first item first, without what its conversation had before. */
export async function ownItems(id: string): Promise<{ items: Item[]; complete: boolean }> {
  const digits = id.slice(id.indexOf("_") + 1);
  const items: Item[] = [];
  let after = "";
  while (items.length < MAX_ITEMS) {
    const query = new URLSearchParams({ limit: String(items.length ? PAGE_ITEMS : FIRST_ITEMS), order: "desc" });
    if (after) query.set("after", after);
    const page = await json<ItemPage>(`${response(id)}/input_items?${query}`);
    const own = page.data.filter((item) => (item.id ?? "").includes(digits));
    items.push(...own);
    if (!page.has_more || own.length < page.data.length || !page.last_id) return { items: items.reverse(), complete: true };
    after = page.last_id;
  }
  return { items: items.reverse(), complete: false };
}
