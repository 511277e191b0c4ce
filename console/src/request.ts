// Requests that are made of a stored response: the same again, one that goes on from it, and either as a line for a shell. Pure.
import type { Answer, Item, Part } from "./wire";

/** What a response echoes of its request, and a request may say again. */
const ECHOED = [
  "model", "instructions", "reasoning", "text", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens",
  "max_tool_calls", "temperature", "top_p", "presence_penalty", "frequency_penalty", "truncation", "metadata", "safety_identifier", "user",
  "prompt_cache_key",
];

export type Body = Record<string, unknown>;

/** A message of the user: words, or parts of which the first is words. */
export type Said = string | Part[];

/** The input that has a message of the user alone. */
export const inputOf = (said: Said): string | Item[] => (typeof said === "string" ? said : [{ type: "message", role: "user", content: said }]);

/** A request with the parameters of a response. */
function like(answer: Answer): Body {
  const known = ECHOED.filter((name) => answer[name] !== null && answer[name] !== undefined);
  const body: Body = Object.fromEntries(known.map((name) => [name, answer[name]]));
  if (Array.isArray(body["tools"]) && body["tools"].length === 0) delete body["tools"];
  if (!("tools" in body)) delete body["tool_choice"];
  return body;
}

/** An item as it is sent: what the service gave it is left out. */
export function sent(item: Item): Item {
  const { id: _id, status: _status, ...rest } = item;
  return rest;
}

/** What a response was asked, with its own `items` of input. `parent` is the response that it continued. */
export const again = (answer: Answer, items: Item[], parent: string | null): Body => ({
  ...like(answer),
  ...(parent === null ? {} : { previous_response_id: parent }),
  input: items.map(sent),
});

/** What goes on from a response: words of the user, or items. */
export const going = (answer: Answer, text: string | Item[]): Body => {
  const { metadata: _metadata, max_output_tokens: _limit, ...rest } = like(answer);
  return { ...rest, previous_response_id: answer.id, input: text };
};

/** What a conversation begins with, as it was chosen: empty where the service's own default holds. */
export interface Settings {
  model: string;
  effort: string;
  instructions: string;
  /** Tools of the service, each as JSON that declares it. */
  hosted: string[];
  /** Others, as a JSON array. */
  tools: string;
}

export const NO_SETTINGS: Settings = { model: "", effort: "", instructions: "", hosted: [], tools: "" };

/** The first message of a conversation. Throws Error where the tools aren't a JSON array. */
export function beginning({ model, effort, instructions, hosted, tools }: Settings, said: Said): Body {
  const all = [...hosted.map((each): unknown => JSON.parse(each)), ...toolsIn(tools)];
  return {
    ...(model && { model }),
    ...(effort && { reasoning: { effort } }),
    ...(instructions.trim() && { instructions }),
    ...(all.length && { tools: all }),
    input: inputOf(said),
  };
}

function toolsIn(text: string): unknown[] {
  try {
    const found: unknown = JSON.parse(text.trim() || "[]");
    if (Array.isArray(found)) return found;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new Error('More tools should be a JSON array, such as [{"type": "function", "name": "look", "parameters": {}}], or empty.');
}

const isWords = (part: Part): boolean => typeof part.text === "string";

/** The text of the last message of the user, beside its pictures and files; null where it isn't one. */
export function asked(items: Item[]): string | null {
  const last = items.findLast((item) => item.role === "user");
  if (!last) return null;
  if (typeof last.content === "string") return last.content;
  const [only, ...more] = (last.content ?? []).filter(isWords);
  return only && !more.length ? (only.text ?? null) : null;
}

/** The items with another text in the place of the user's last one; its pictures and files stay, and more may come. */
export function edited(items: Item[], said: Said): Item[] {
  const at = items.findLastIndex((item) => item.role === "user");
  const kept = [items[at]?.content ?? []].flat().filter((part): part is Part => typeof part !== "string" && !isWords(part));
  const words: Part[] = typeof said === "string" ? [{ type: "input_text", text: said }] : said;
  const content = kept.length ? [...words, ...kept] : said;
  return items.map((item, index) => (index === at ? { ...item, content } : item));
}

/** JSON in which whatever can't be seen, or isn't ASCII and turns lines around, is escaped. */
const ascii = (value: unknown): string =>
  JSON.stringify(value, null, 2).replace(
    /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\udb40]/g,
    (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** A line for a shell that sends a request to this service. The key is a variable of the shell, and never in it. */
export const curl = (origin: string, hasKey: boolean, body: Body): string =>
  [
    `curl ${quoted(`${origin}/v1/responses`)}`,
    ...(hasKey ? ['-H "Authorization: Bearer $HARMONIUM_API_KEY"'] : []),
    "-H 'Content-Type: application/json'",
    `-d ${quoted(ascii(body))}`,
  ].join(" \\\n  ");
