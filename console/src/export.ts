// A whole tree as lines of JSON: a line that says what it is, then a line for each turn, parents before their children.
import { ApiError, ownItems, retrieve } from "./api";
import type { Turn, WholeTree } from "./wire";

/** How many turns are read at once. */
const AT_ONCE = 4;

/** The lines of a tree. `tell` hears how many turns are read. A turn that was deleted has neither input nor response. */
export async function linesOf(tree: WholeTree, signal: AbortSignal, tell: (done: number) => void): Promise<string[]> {
  const lines: string[] = [];
  const head = { format: "harmonium.tree", version: 1, id: tree.id, turns: tree.turns.length, complete: tree.turns_complete };
  let next = 0;
  let done = 0;
  async function some(): Promise<void> {
    for (let at = next++; at < tree.turns.length; at = next++) {
      const turn = tree.turns[at];
      if (turn) lines[at] = JSON.stringify(await whole(turn, signal));
      tell(++done);
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, some));
  return [JSON.stringify(head), ...lines];
}

async function whole(turn: Turn, signal: AbortSignal): Promise<object> {
  const { id, kind, parent, status, created_at } = turn;
  const about = { id, kind, parent, status, created_at };
  if (kind !== "response" || status === "deleted") return about;
  try {
    const [response, { items, complete }] = await Promise.all([retrieve(id, signal), ownItems(id, signal)]);
    return { ...about, input: items, ...(complete ? {} : { input_complete: false }), response };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return { ...about, status: "deleted" }; // since it was listed
    throw error;
  }
}

/** Have the browser save lines as a file. */
export function save(name: string, lines: string[]): void {
  const url = URL.createObjectURL(new Blob(lines.map((line) => `${line}\n`), { type: "application/jsonl" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // once the browser has it
}
