// The turns of a file that was exported, sent one by one: a turn has to be there before what continues it is.
import { ApiError, type Brought, bring } from "./api";
import { FORMAT, VERSION } from "./export";

/** The most characters of a line: no service takes so much. */
const MAX_LINE_CHARS = 64 << 20;

/** How many refusals are kept in words; all are counted. */
const MAX_TOLD = 10;

/** What became of the turns of a file. */
export interface Imported {
  came: number;
  kept: number;
  /** Those that were deleted since, and stay so. */
  deleted: number;
  refused: number;
  why: string[];
}

export const nothing: Imported = { came: 0, kept: 0, deleted: 0, refused: 0, why: [] };

/** Whether a refusal is of everything, not of one turn: of the key, by a limit, or as the service can't. */
const endsAll = (status: number): boolean => [0, 401, 403, 429].includes(status) || status >= 500;

/** Bring back the turns of a file. `tell` hears how far it is. Throws ApiError, and Error for what is no such file. */
export async function imported(file: Blob, signal: AbortSignal, tell: (so: Imported) => void): Promise<void> {
  let so = nothing;
  let number = 0;
  let turns = 0;
  for await (const line of linesOf(file)) {
    number++;
    if (!line.trim()) continue;
    const turn = turnOf(line, number);
    turns++;
    if (turn) so = added(so, number, await sent(turn, signal));
    tell(so);
  }
  if (!turns) throw new Error("The file is empty.");
}

const added = (so: Imported, number: number, outcome: Brought | string): Imported => {
  if (typeof outcome === "string")
    return { ...so, refused: so.refused + 1, why: [...so.why, `Line ${number}: ${outcome}`].slice(0, MAX_TOLD) };
  if (outcome.new) return { ...so, came: so.came + 1 };
  return outcome.deleted ? { ...so, deleted: so.deleted + 1 } : { ...so, kept: so.kept + 1 };
};

/** What became of a turn, or in the service's words why it doesn't come. */
async function sent(turn: object, signal: AbortSignal): Promise<Brought | string> {
  try {
    return await bring(turn, signal);
  } catch (error) {
    if (error instanceof ApiError && !endsAll(error.status)) return error.message;
    throw error;
  }
}

/** What a line brings back; null for the head of a tree. */
function turnOf(line: string, number: number): object | null {
  const found = objectOf(line, number);
  if (found["object"] === FORMAT) {
    if (found["version"] === VERSION) return null;
    throw new Error(`Line ${number} begins a conversation of another version than ${VERSION}, which this service can't read.`);
  }
  if (typeof found["turn"] !== "string") throw new Error(`Line ${number} isn't a turn. Is the file an export?`);
  return { turn: found["turn"], seal: found["seal"] ?? null };
}

function objectOf(line: string, number: number): Record<string, unknown> {
  try {
    const found: unknown = JSON.parse(line);
    if (typeof found === "object" && found !== null && !Array.isArray(found)) return found as Record<string, unknown>;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new Error(`Line ${number} isn't a JSON object. Is the file an export?`);
}

/** The lines of a file, read as they are wanted. */
async function* linesOf(file: Blob): AsyncGenerator<string> {
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let pieces: string[] = [];
  let length = 0;
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) break;
      const [first = "", ...more] = value.split("\n");
      pieces.push(first);
      length += first.length;
      for (const each of more) {
        yield pieces.join("");
        pieces = [each];
        length = each.length;
      }
      if (length > MAX_LINE_CHARS) throw new Error("A line of the file is too long. Is the file an export?");
    }
    yield pieces.join("");
  } finally {
    await reader.cancel();
  }
}
