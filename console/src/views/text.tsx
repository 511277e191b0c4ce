// Small pieces: users' text as what it is, times, states, buttons.
//
// Text of users is hostile. It is put into text nodes and nothing else: no markup is read in it, no link made of it. What
// can't be seen or turns lines around is named, and each text is isolated from what stands beside it.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Scoped, scopes } from "../highlight";
import { save } from "../export";
import { said } from "../state";

/** What nobody sees, but tabs, newlines, joiners of letters, and what gives a picture its colours. */
const UNSEEN = /[[\p{Cc}\p{DI}\u2028\u2029\ufff9-\ufffb]--[\t\n\u180b-\u180d\u200c\u200d\ufe0e\ufe0f]]/gv;

/** How much of a text is shown at first, and at most: to lay it out takes the square of it, here some 0.4 s. */
const SHOWN_CHARS = 20_000;
const MAX_CHARS = 300_000;

/** How many characters that can't be seen are named before the rest is shown as it is. */
const MAX_NAMED = 5_000;

const named = (character: string): string =>
  `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

/** A text with what is unseen named. */
export function plain(text: string): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let from = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (parts.length > 2 * MAX_NAMED) break;
    parts.push(text.slice(from, match.index), <span class="unseen">{named(match[0])}</span>);
    from = match.index + match[0].length;
  }
  const rest = text.slice(from);
  parts.push(parts.length > 2 * MAX_NAMED ? rest.replace(UNSEEN, "\ufffd") : rest);
  return parts;
}

/** A text of users in one line. */
export function Line({ text }: { text: string }) {
  return <bdi>{plain(text)}</bdi>;
}

/** A text of users, whole; a long one as far as it is asked for, and a very long one as a file. */
export function Text({ text, mono = false, code = false }: { text: string; mono?: boolean; code?: boolean }) {
  const [whole, setWhole] = useState(false);
  const cut = !whole && text.length > SHOWN_CHARS;
  const shown = plain(cut ? text.slice(0, SHOWN_CHARS) : text);
  const Box = code ? "pre" : "div";
  return (
    <>
      <Box class={mono ? "text mono" : "text"} dir="auto">
        {code ? <code>{shown}</code> : shown}
      </Box>
      {cut && (
        <button class="quiet" onClick={() => (text.length > MAX_CHARS ? save("text.txt", [text]) : setWhole(true))}>
          {text.length > MAX_CHARS ? "Save" : "Show"} all {text.length.toLocaleString("en")} characters
        </button>
      )}
    </>
  );
}

/** What colours code, once a text needed it: the browser loads it then. */
const colouring = signal<typeof scopes | null>(null);

/** The languages that it knows, by all their names. */
const COLOURED = new Set(
  "bash diff go golang html ini java javascript js json jsx patch py python rs rust sh sql svg toml ts tsx typescript xml yaml yml zsh".split(" "),
);

/** The longest code in colours. */
const MAX_COLOURED = 10_000;

/** Code in colours; null where it has none, or not yet. */
function useColours(text: string, lang: string): ComponentChildren[] | null {
  const language = lang.toLowerCase();
  const isWanted = COLOURED.has(language) && text.length <= MAX_COLOURED;
  const colour = colouring.value;
  useEffect(() => {
    if (isWanted && !colour) import("../highlight").then((loaded) => (colouring.value = loaded.scopes), console.info); // it stays as it is, then
  }, [isWanted]);
  const found = useMemo(() => (isWanted && colour ? colour(text, language) : null), [text, language, isWanted, colour]);
  return found && found.map(scoped);
}

const scoped = (part: Scoped): ComponentChildren =>
  typeof part === "string" ? plain(part) : <span class={`hl-${part.scope?.split(".")[0] ?? ""}`}>{part.children.map(scoped)}</span>;

/** Code, JSON or a line for a shell, to copy. */
export function Code({ text, lang = "" }: { text: string; lang?: string }) {
  const colours = useColours(text, lang);
  return (
    <div class="code">
      <header>
        <Line text={lang} />
        <Copy text={text} label="Copy" />
      </header>
      {colours ? <pre class="text mono" dir="auto"><code>{colours}</code></pre> : <Text text={text} mono code />}
    </div>
  );
}

export function Status({ status, words = true }: { status: string; words?: boolean }) {
  const shown = status.replaceAll("_", " ");
  return (
    <span class={`status ${status.replace(/[^a-z_]/g, "")}`}>
      <i aria-hidden="true" />
      <span class={words ? "" : "unshown"}>{shown}</span>
    </span>
  );
}

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["week", 604_800],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

/** A moment in seconds since 1970, as how long ago it was. */
export function Ago({ at }: { at: number }) {
  const since = Math.max(0, Date.now() / 1000 - at);
  const [unit, seconds] = UNITS.find(([, seconds]) => since >= seconds) ?? ["second", 1];
  const date = new Date(at * 1000);
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString()}>
      {since < 60 ? "just now" : RELATIVE.format(-Math.floor(since / seconds), unit)}
    </time>
  );
}

export const count = (number: number, one: string, many = `${one}s`): string =>
  `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A number of bytes. */
export function size(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(BYTES.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toLocaleString("en", { maximumFractionDigits: power && 1 })} ${BYTES[power]}`;
}

/** An id, short, which is copied whole. */
export function Id({ id }: { id: string }) {
  const short = id.length > 20 ? `${id.slice(0, id.indexOf("_") + 1)}…${id.slice(-8)}` : id;
  return <Copy text={id} label={short} title={`Copy ${id}`} quiet />;
}

/** Put a text into the clipboard. Over plain HTTP a browser copies only what is selected, and that beside the button: a dialog may be open. */
async function put(text: string, button: HTMLElement): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = document.createElement("textarea");
  box.value = text;
  box.className = "unshown";
  button.after(box);
  box.select();
  document.execCommand("copy");
  box.remove();
  button.focus();
}

interface Copied {
  /** The text, which may be made once it is asked for. */
  text: string | (() => string);
  label: string;
  title?: string;
  quiet?: boolean;
  tabIndex?: number;
}

export function Copy({ text, label, title, quiet = false, tabIndex = 0 }: Copied) {
  const [copied, setCopied] = useState(false);
  async function copy({ currentTarget: button }: { currentTarget: HTMLElement }) {
    await put(typeof text === "string" ? text : text(), button);
    said.value = "Copied";
    setCopied(true);
    setTimeout(() => setCopied(false), 1200);
  }
  return (
    <button type="button" class={quiet ? "copy id" : "copy"} title={title} tabIndex={tabIndex} onClick={copy}>
      {label}
      <span class="done" aria-hidden="true">{copied ? "✓" : ""}</span>
    </button>
  );
}

/** What went wrong, in the service's words; nothing while nothing did. */
export function Failure({ error, again }: { error: string; again?: () => void }) {
  if (!error) return null;
  return (
    <div class="failure" role="alert">
      <p><Line text={error} /></p>
      {again && <button onClick={again}>Try again</button>}
    </div>
  );
}

/** A page of which nothing can be shown. */
export function Lost({ title, error, again, children }: { title: string; error: string; again?: () => void; children?: ComponentChildren }) {
  return (
    <main class="lost">
      {children}
      <h1>{title}</h1>
      <Failure error={error} {...(again && { again })} />
    </main>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <div class="loading" role="status">
      <span class="unshown">Loading {what}</span>
      <i aria-hidden="true" />
      <i aria-hidden="true" />
      <i aria-hidden="true" />
    </div>
  );
}

/** The words of whatever was thrown. */
export const wordsOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Whether this was thrown as somebody left before it ended. */
export const isAborted = (error: unknown): boolean => error instanceof DOMException && error.name === "AbortError";
