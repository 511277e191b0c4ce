// A whole tree as lines of JSON: a head, then what the service says of each turn, each behind the one that it continues. What
// `harmonium export` prints: `harmonium import` reads it, and import.ts. And turns as Markdown, for people.
import { ApiError, whole } from "./api";
import { type Item, RUNNING, type WholeTree } from "./wire";

export const FORMAT = "harmonium.tree";

/** The version of the form that is written, and the only one that is read. */
export const VERSION = 1;

/** How many turns are read at once. */
const AT_ONCE = 4;

/** The lines of a tree, and how many of its turns aren't among them: those under way, and what can't be read. */
export interface Exported {
  lines: string[];
  missing: number;
}

/** The lines of a tree. `tell` hears how many turns are done. Throws ApiError. */
export async function exported(tree: WholeTree, signal: AbortSignal, tell: (done: number) => void): Promise<Exported> {
  const head = { object: FORMAT, version: VERSION, id: tree.id };
  const found: (string | null)[] = tree.turns.map(() => null);
  let next = 0;
  let done = 0;
  async function some(): Promise<void> {
    for (let at = next++; at < tree.turns.length; at = next++) {
      const turn = tree.turns[at];
      if (turn && !RUNNING.has(turn.status)) found[at] = await lineOf(turn.id, signal);
      tell(++done);
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, some));
  const lines = found.filter((line) => line !== null);
  return { lines: [JSON.stringify(head), ...lines], missing: found.length - lines.length };
}

async function lineOf(id: string, signal: AbortSignal): Promise<string | null> {
  try {
    return await whole(id, signal);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null; // deleted since it was listed, or unreadable
    throw error;
  }
}

/** The words of a message. */
export const textOf = ({ content }: Item): string =>
  typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? part.refusal ?? "").join("");

/** Code that no backtick in it ends. */
function fenced(text: string): string {
  const marks = "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map(([each]) => each.length + 1)));
  return `${marks}\n${text}\n${marks}`;
}

/** Items as Markdown: who says what, and calls as code. */
export const markdownOf = (items: Item[]): string =>
  items.map((item) => {
    const { role = "", type = "", name = type.replaceAll("_", " "), arguments: passed, input = item["code"], output } = item;
    if (role) return `## ${role[0]?.toUpperCase()}${role.slice(1)}\n\n${textOf(item)}\n`;
    if (type === "reasoning") return (textOf(item) || textOf({ content: item.summary ?? [] })).replace(/^/gm, "> ") + "\n";
    const parts = [passed ?? input, output ?? item["error"]].filter((each) => each !== undefined && each !== null);
    const texts = (parts.length ? parts : [item]).map((each) => (typeof each === "string" ? each : JSON.stringify(each, null, 2)));
    return [`**${name}**`, ...texts.map(fenced)].join("\n\n") + "\n";
  }).join("\n");

/** Have the browser save something as a file, which it never opens by itself. */
export function save(name: string, parts: BlobPart[]): void {
  const url = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // once the browser has it
}
