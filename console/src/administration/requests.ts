// What an administrator asks for: OpenAI's admin API as this service has it. Members may be added to what it answers.
import { ApiError, json, post } from "../api";

const ROOT = "/v1/organization";

/** The most records of a page that is shown. */
export const PAGE = 50;

/** The most of a list that is read whole: the names of projects, accounts and administrators' keys. */
export const MOST = 100;

export interface Listing<T> {
  data: T[];
  has_more: boolean;
  last_id: string | null;
}

export interface Project {
  id: string;
  name: string;
  created_at: number;
  archived_at: number | null;
  static: boolean;
  /** How much it is served beside others; null where the settings say that. */
  weight: number | null;
}

export interface Account {
  id: string;
  name: string;
  created_at: number;
}

export interface Key {
  id: string;
  name: string;
  created_at: number;
  last_used_at: number | null;
  expires_at: number | null;
  redacted_value: string;
  scopes: string[];
  limits: Record<string, number | null> | null;
  owner: { service_account?: { id: string; name: string } };
}

/** A key that was just made: the only answer with its value. */
export interface MadeKey {
  id: string;
  value: string;
}

/** Limits by their names; null takes one away. */
export type Numbers = Record<string, number | null>;

/** The limits of a model, by the names that the service has for them. */
export type Limits = { id: string; model: string } & Record<string, number | string | null>;

export interface Used {
  input_tokens: number;
  input_cached_tokens: number;
  output_tokens: number;
  num_model_requests: number;
  project_id: string | null;
  api_key_id: string | null;
  model: string | null;
}

export interface Bucket {
  start_time: number;
  end_time: number;
  results: Used[];
}

interface UsagePage {
  data: Bucket[];
  next_page: string | null;
}

export interface AuditEntry {
  id: string;
  type: string;
  effective_at: number;
  actor: { api_key?: { id: string }; session?: { ip_address: string } };
  project?: { id: string; name: string };
  [about: string]: unknown;
}

/** What a shard of the store holds; `waiting` by the levels of its queue. */
export interface Shard {
  responses: number;
  trees: number;
  bytes: number;
  log_bytes: number;
  pending: number;
  running: number;
  oldest_seconds: number;
  waiting: number[];
}

/** The store and the engine's servers now; `shards` is null where the store can't be read. */
export interface Health {
  limits: Record<string, number>;
  shards: Record<string, Shard> | null;
  removed: Record<string, number>;
  engines: { server: string; up: boolean; tokens: number | null; room: number | null }[];
  engine_waiting: number;
  work: { batches?: { tenant: string; id: string; status: string; counts: Record<"total" | "completed" | "failed", number> }[] };
}

export type Grouping = "project_id" | "api_key_id" | "model";

const project = (id: string): string => `${ROOT}/projects/${encodeURIComponent(id)}`;

function listed<T>(path: string, after: string | null, limit: number, signal?: AbortSignal, more: Record<string, string> = {}) {
  const query = new URLSearchParams({ limit: String(limit), ...more });
  if (after) query.set("after", after);
  return json<Listing<T>>(`${path}?${query}`, signal && { signal });
}

export const projects = (after: string | null, limit: number, archived: boolean, signal?: AbortSignal) =>
  listed<Project>(`${ROOT}/projects`, after, limit, signal, { include_archived: String(archived) });

export const oneProject = (id: string, signal: AbortSignal): Promise<Project> => json(project(id), { signal });

export const createProject = (name: string): Promise<Project> => post(`${ROOT}/projects`, { name });

/** What of a project is to change: what isn't there stays. */
export interface ChangedProject {
  name?: string;
  weight?: number | null;
}

export const changeProject = (id: string, wished: ChangedProject): Promise<Project> => post(project(id), wished);

export const archiveProject = (id: string): Promise<Project> => post(`${project(id)}/archive`);

export const accounts = (id: string, after: string | null, signal?: AbortSignal) =>
  listed<Account>(`${project(id)}/service_accounts`, after, PAGE, signal);

export const createAccount = (id: string, name: string): Promise<Account> =>
  post(`${project(id)}/service_accounts`, { name, create_service_account_only: true });

export const deleteAccount = (id: string, account: string): Promise<unknown> =>
  json(`${project(id)}/service_accounts/${encodeURIComponent(account)}`, { method: "DELETE" });

export const keys = (id: string, after: string | null, signal?: AbortSignal) =>
  listed<Key>(`${project(id)}/api_keys`, after, PAGE, signal);

export interface WishedKey {
  name: string;
  scopes?: string[];
  expires_in_seconds?: number;
}

export const createKey = (id: string, account: string, wished: WishedKey): Promise<MadeKey> =>
  post(`${project(id)}/service_accounts/${encodeURIComponent(account)}/api_keys`, wished);

export const revokeKey = (id: string, key: string): Promise<unknown> =>
  json(`${project(id)}/api_keys/${encodeURIComponent(key)}`, { method: "DELETE" });

/** Give a key these limits and no others. */
export const limitKey = (id: string, key: string, limits: Numbers): Promise<unknown> =>
  post(`${project(id)}/api_keys/${encodeURIComponent(key)}`, { limits: Object.keys(limits).length ? limits : null });

export const limits = (id: string, after: string | null, signal: AbortSignal) =>
  listed<Limits>(`${project(id)}/rate_limits`, after, PAGE, signal);

/** Change limits of a model, or of all together; those that aren't given stay. */
export const changeLimits = (id: string, of: string, changed: Numbers): Promise<unknown> =>
  post(`${project(id)}/rate_limits/${encodeURIComponent(of)}`, changed);

/** The names of administrators by the ids of their keys. */
export async function administrators(signal: AbortSignal): Promise<Map<string, string>> {
  const page = await listed<{ id: string; name: string }>(`${ROOT}/admin_api_keys`, null, MOST, signal);
  return new Map(page.data.map(({ id, name }) => [id, name]));
}

/** Entries of the audit log, the newest first; of one type, unless that is empty. */
export const entries = (type: string, after: string | null, signal: AbortSignal) =>
  listed<AuditEntry>(`${ROOT}/audit_logs`, after, PAGE, signal, type ? { "event_types[]": type } : {});

export interface WishedUsage {
  since: number;
  width: "1h" | "1d";
  buckets: number;
  by: Grouping;
  project?: string;
}

/** What was used since a moment, in buckets. An answer that would be too large comes in pages: at most one for each bucket. */
export async function usage({ since, width, buckets, by, project }: WishedUsage, signal: AbortSignal): Promise<Bucket[]> {
  const query = new URLSearchParams({ start_time: String(since), bucket_width: width, limit: String(buckets), "group_by[]": by });
  if (project) query.set("project_ids[]", project);
  const found: Bucket[] = [];
  for (let page = 0; page <= buckets; page++) {
    const { data, next_page } = await json<UsagePage>(`${ROOT}/usage/completions?${query}`, { signal });
    found.push(...data);
    if (!next_page) return found;
    query.set("page", next_page);
  }
  return found;
}

export const health = (signal: AbortSignal): Promise<Health> => json("/console/api/health", { signal });

/** Whether the key is an administrator's. Throws ApiError where that can't be learned. */
export async function administers(): Promise<boolean> {
  try {
    await projects(null, 1, false);
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) return false;
    throw error;
  }
}
