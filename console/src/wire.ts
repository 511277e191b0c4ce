// What the service answers, as far as the console reads it. Members may be added, so nothing here says what isn't there.

export type Kind = "response" | "items" | "omission" | "conversation";

/** A turn of a tree, as `/console/api/trees` shows it. */
export interface Turn {
  id: string;
  kind: Kind;
  status: string;
  created_at: number;
  model: string | null;
  input_tokens: number | null;
  output_tokens: number | null;
  input: string | null;
  output: string | null;
  parent: string | null;
  depth: number | null;
  /** What its input gives to an earlier turn. */
  answers?: GivenAnswer[];
}

/** An answer to a request for approval, or the output of a call, which has a name: by the id of either. */
export interface GivenAnswer {
  to: string;
  words: string;
  name: string;
}

/** What a call that the service made came to, by the id of its item. */
export interface HostedOutcome {
  id: string;
  text: string;
  sources: string[];
}

/** A tree in the list. */
export interface ListedTree {
  id: string;
  title: string | null;
  first_used_at: number;
  last_used_at: number;
  turns: number;
  turns_complete: boolean;
  under_way: number;
  conversation: string | null;
  newest: Turn;
  /** The turn that is as was asked for, and the text around the words in it. */
  found: { id: string; text: string } | null;
  /** Whether it isn't in the archive alone. */
  in_memory: boolean;
}

export interface TreePage {
  data: ListedTree[];
  has_more: boolean;
  after: string | null;
  /** What was looked at; `stopped` isn't null where a search ended before its end. */
  searched: { trees: number; back_to: number | null; unread: number; stopped: string | null };
  /** Why the archive, which may have more, can't be asked now. */
  archive_away: "unavailable" | "cataloguing" | null;
}

export interface WholeTree {
  id: string;
  asked: string;
  last_used_at: number;
  turns: Turn[];
  turns_complete: boolean;
  excerpts_complete: boolean;
  /** The ends of branches that are in the archive alone; null where the archive doesn't say. */
  archived: { ends: string[]; complete: boolean } | null;
}

/** Whether all turns of a tree are told. */
export const isWhole = ({ turns_complete, archived }: WholeTree): boolean =>
  turns_complete && archived !== null && archived.complete && archived.ends.length === 0;

/** An item of the input or the output. */
export interface Item {
  id?: string;
  type?: string;
  role?: string;
  content?: string | Part[] | null;
  summary?: Part[];
  name?: string;
  arguments?: string;
  input?: string;
  output?: unknown;
  status?: string | null;
  [member: string]: unknown;
}

export interface Part {
  type?: string;
  text?: string;
  refusal?: string;
  [member: string]: unknown;
}

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  input_tokens_details?: { cached_tokens?: number };
  output_tokens_details?: { reasoning_tokens?: number };
}

/** A response; requests are made again from what it echoes. */
export interface Answer {
  id: string;
  status: string;
  model: string;
  created_at: number;
  completed_at?: number | null;
  background?: boolean | null;
  previous_response_id?: string | null;
  conversation?: { id: string } | null;
  output: Item[];
  error?: { code?: string; message?: string } | null;
  incomplete_details?: { reason?: string } | null;
  usage?: Usage | null;
  metadata?: Record<string, string> | null;
  [member: string]: unknown;
}

export interface ItemPage {
  data: Item[];
  has_more: boolean;
  last_id: string | null;
}

/** A token: of a text, of a part of a character (`bytes`), or with neither where its vocabulary isn't known. */
export interface Token {
  id: number;
  text: string | null;
  special?: boolean;
  bytes?: number[];
}

/** A message of a turn, with those of its tokens that are in a page. */
export interface TokenizedMessage {
  index: number;
  role: string;
  name: string | null;
  channel: string | null;
  recipient: string | null;
  content_type: string | null;
  vocabulary: string | null;
  length: number;
  first: number;
  tokens: Token[];
}

export interface TurnTokens {
  input_tokens: number | null;
  cached_tokens: number | null;
  length: number;
  messages: TokenizedMessage[];
  after: number | null;
}

/** An event of a stream. */
export interface StreamEvent {
  type: string;
  sequence_number: number;
  delta?: string;
  item?: Item;
  output_index?: number;
  response?: Answer;
  message?: string;
  [member: string]: unknown;
}

export const RUNNING = new Set(["queued", "in_progress"]);

/** Whether a response is at its end. */
export const ended = (status: string): boolean => !RUNNING.has(status);
