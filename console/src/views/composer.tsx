// Asking for another turn: one that goes on from a turn, the same again, or the same with other words. It is shown as it comes.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { run, stored, type Live } from "../run";
import type { Body, Said } from "../request";
import { said } from "../state";
import { Attaching, useAttachments } from "./attaching";
import { ChooseFiles, Words } from "./dialog";
import { Markdown } from "./markdown";
import { Failure, Text, isAborted, wordsOf } from "./text";

/** How often whoever listens to the page hears what came. */
const SAY_MS = 2_000;
const MAX_SAID = 400;

export interface Draft {
  title: string;
  /** The turn that it goes on from or is asked beside, in whose view it is shown. */
  at: string;
  /** The words to begin with; null where there is nothing to write, and it is sent at once. */
  text: string | null;
  background?: boolean;
  /** Whether it makes another version of a conversation's first message. */
  isVersion?: boolean;
  /** Who reads it, which says what can be attached. */
  model: string;
  body: (said: Said) => Body;
}

/** What is being said behind a turn, and what was asked. */
export const coming = signal<{ after: string; asked: string; live: Live | null } | null>(null);

/** The turn behind which somebody wants to write. */
export const writing = signal("");

interface Composing {
  draft: Draft;
  onDone: (id: string) => void;
  /** Go back to going on; undefined where it does that. */
  onClose?: (() => void) | undefined;
  /** A background response has an id before it has an answer. */
  onBegun: () => void;
}

const DRAFT = "harmonium.draft.";

/** The longest draft that survives a reload: a browser keeps some megabytes for a whole site. */
const MAX_DRAFT = 200_000;

export function Composer({ draft, onDone, onClose, onBegun }: Composing) {
  const place = `${DRAFT}${draft.title} ${draft.at}`;
  const [text, setText] = useState(sessionStorage.getItem(place) ?? draft.text ?? "");
  const [background, setBackground] = useState(draft.background ?? false);
  const [live, setLive] = useState<Live | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const stop = useRef<AbortController | null>(null);
  const box = useRef<HTMLTextAreaElement>(null);
  const known = useRef("");
  const left = useRef(false);
  const files = useAttachments(draft.model);
  useLayoutEffect(() => {
    if (onClose) box.current?.focus(); // before another key is typed
    if (draft.text === null) void send();
    return () => {
      left.current = true;
      stop.current?.abort();
      coming.value = null;
    };
  }, []);
  const isWanted = writing.value === draft.at;
  useLayoutEffect(() => {
    if (!isWanted) return;
    box.current?.focus();
    writing.value = "";
  }, [isWanted]);
  useSaid(live);

  function write(words: string) {
    setText(words);
    if (words && words.length <= MAX_DRAFT) sessionStorage.setItem(place, words);
    else sessionStorage.removeItem(place);
  }

  async function send(event?: SubmitEvent) {
    event?.preventDefault();
    if (stop.current || (draft.text !== null && !text.trim())) return;
    const controller = new AbortController();
    stop.current = controller;
    setError("");
    setBusy(true);
    coming.value = { after: draft.at, asked: draft.text === null ? "" : text, live: null };
    try {
      const words: Said = files.parts.length ? [{ type: "input_text", text }, ...files.parts] : text;
      const body = { ...draft.body(words), ...(background ? { background: true } : {}) };
      const last = await run(body, controller.signal, (next) => {
        if (next.id && !known.current && background) {
          sessionStorage.removeItem(place); // it goes on without this page
          onBegun();
        }
        known.current = next.id;
        if (left.current) return;
        setLive(next);
        coming.value = { after: draft.at, asked: draft.text === null ? "" : text, live: next };
      });
      if (left.current) return;
      said.value = `The response is ${last.status}.`;
      if (last.error) setError(last.error);
      if (last.id) done(last.id);
    } catch (caught) {
      if (left.current) return; // whoever has left isn't brought back
      setLive(null);
      if (!isAborted(caught)) setError(wordsOf(caught));
      else if (known.current) await stopped(known.current);
    } finally {
      stop.current = null;
      if (!left.current) {
        setBusy(false);
        coming.value = null;
      }
    }
  }

  /** Attach the files that are dropped or pasted. */
  function drop(event: DragEvent | ClipboardEvent) {
    if (event instanceof ClipboardEvent && event.clipboardData?.types.includes("text/plain")) return; // office programs add a picture of it
    const dropped = [...((event instanceof DragEvent ? event.dataTransfer : event.clipboardData)?.files ?? [])];
    if (event instanceof DragEvent || dropped.length) event.preventDefault();
    if (dropped.length && draft.text !== null && !busy) void files.add(dropped);
  }

  function done(id: string) {
    write("");
    files.clear();
    onDone(id);
  }

  /** Show what was said until it was stopped. */
  async function stopped(id: string) {
    try {
      const isStored = await stored(id);
      if (left.current) return;
      if (isStored) done(id);
      else setError("It was stopped before anything was stored.");
    } catch (caught) {
      setError(wordsOf(caught));
    }
  }

  return (
    <form class="composer" aria-label={draft.title} tabIndex={-1} onSubmit={send} onDragOver={(event) => event.preventDefault()} onDrop={drop} onPaste={drop}>
      {onClose && (
        <header>
          <h2>{draft.title}</h2>
          <button type="button" class="quiet" onClick={onClose}>Close</button>
        </header>
      )}
      {draft.text !== null && (
        <Words box={box} aria-label="Message" placeholder={draft.title} rows={onClose ? 4 : 1} value={text} disabled={busy} onText={write} />
      )}
      <Attaching {...files} />
      <Failure error={error} />
      <footer>
        <label class="check" title="It goes on when this page is closed, and its events are kept">
          <input type="checkbox" checked={background} disabled={busy} onChange={(event) => setBackground(event.currentTarget.checked)} />
          In the background
        </label>
        <span class="space" />
        {draft.text !== null && <ChooseFiles words="Attach…" title="Pictures and texts, which can also be dropped here" name="Files to attach" multiple disabled={busy} onFiles={files.add} />}
        {busy ? (
          <button type="button" onClick={() => stop.current?.abort()}>
            {background ? "Stop watching" : "Stop"}
          </button>
        ) : (
          <button type="submit" class="main" disabled={draft.text !== null && !text.trim()} title="Ctrl+Enter">
            {draft.text === null ? draft.title : "Send"}
          </button>
        )}
      </footer>
    </form>
  );
}

/** Scrolling down to so near the end is a wish to read what comes: the end itself may move on meanwhile. */
const NEAR_PX = 100;

/** What is being said, in its place below the turn that it goes on from. Its end stays in sight until somebody scrolls back. */
export function Coming() {
  const end = useRef<HTMLDivElement>(null);
  const { asked = "", live = null } = coming.value ?? {};
  const follows = useRef(true);
  const top = useRef(0);
  const box = () => end.current?.closest(".reading, main");
  const look = () => {
    const at = box();
    if (!at) return;
    const left = at.scrollHeight - at.scrollTop - at.clientHeight;
    if (left < 1) follows.current = true;
    else if (at.scrollTop < top.current) follows.current = false;
    else if (at.scrollTop > top.current && left < NEAR_PX) follows.current = true;
    top.current = at.scrollTop;
  };
  useEffect(() => {
    const element = box();
    element?.addEventListener("scroll", look, { passive: true });
    return () => element?.removeEventListener("scroll", look);
  }, []);
  useEffect(() => {
    look(); // the event of somebody's scrolling may be still to come
    if (follows.current) end.current?.scrollIntoView({ block: "end" });
    top.current = box()?.scrollTop ?? 0;
  }, [live]);
  return (
    <div ref={end} class="turn coming" aria-label="The response so far" role="group" tabIndex={0}>
      {asked && (
        <section class="item user">
          <div class="said">
            <Text text={asked} />
          </div>
        </section>
      )}
      {live?.lost && <p class="hint">The connection was lost. Trying again…</p>}
      {!live?.pieces.length && !live?.lost && <p class="hint">Waiting for the first words…</p>}
      {live && <Pieces live={live} />}
    </div>
  );
}

/** What came so far. */
export const Pieces = ({ live, Answer = Markdown }: { live: Live; Answer?: typeof Markdown }) => (
  <>
    {live.pieces.map(({ kind, text }) => (
      <div class={`piece ${kind}`}>{kind === "answer" ? <Answer text={text} /> : <Text text={text} mono={kind === "call"} />}</div>
    ))}
  </>
);

/** Say what of the answer came since it was last said. */
function useSaid(live: Live | null): void {
  const latest = useRef(live);
  latest.current = live;
  useEffect(() => {
    let told = 0;
    const timer = setInterval(() => {
      const pieces = latest.current?.pieces.filter((piece) => piece.kind === "answer") ?? [];
      const text = pieces.map((piece) => piece.text).join("");
      if (text.length > told) said.value = text.slice(told).slice(-MAX_SAID);
      told = text.length;
    }, SAY_MS);
    return () => clearInterval(timer);
  }, []);
}
