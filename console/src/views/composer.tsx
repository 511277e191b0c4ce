// Asking for another turn: one that goes on from a turn, the same again, or the same with other words. It is shown as it comes.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { run, stored, type Live } from "../run";
import type { Body } from "../request";
import { said } from "../state";
import { Failure, Text, isAborted, wordsOf } from "./text";

/** How often whoever listens to the page hears what came. */
const SAY_MS = 2_000;
const MAX_SAID = 400;

export interface Draft {
  title: string;
  action: string;
  /** The words to begin with; null where there is nothing to write. */
  text: string | null;
  body: (text: string) => Body;
}

interface Composing {
  draft: Draft;
  onDone: (id: string) => void;
  onClose: () => void;
  /** A background response has an id before it has an answer. */
  onBegun: () => void;
}

export function Composer({ draft, onDone, onClose, onBegun }: Composing) {
  const [text, setText] = useState(draft.text ?? "");
  const [background, setBackground] = useState(false);
  const [live, setLive] = useState<Live | null>(null);
  const [error, setError] = useState("");
  const stop = useRef<AbortController | null>(null);
  const box = useRef<HTMLTextAreaElement>(null);
  const known = useRef("");
  useLayoutEffect(() => box.current?.focus(), []); // before another key is typed
  const left = useRef(false);
  useEffect(
    () => () => {
      left.current = true;
      stop.current?.abort();
    },
    [],
  );
  useSaid(live);

  async function send(event: SubmitEvent) {
    event.preventDefault();
    if (stop.current || (draft.text !== null && !text.trim())) return;
    const controller = new AbortController();
    stop.current = controller;
    setError("");
    try {
      const body = { ...draft.body(text), ...(background ? { background: true } : {}) };
      const last = await run(body, controller.signal, (next) => {
        if (next.id && !known.current && background) onBegun();
        known.current = next.id;
        setLive(next);
      });
      if (left.current) return;
      said.value = `The response is ${last.status}.`;
      if (last.error) setError(last.error);
      if (last.id) onDone(last.id);
    } catch (caught) {
      if (left.current) return; // whoever has left isn't brought back
      setLive(null);
      if (!isAborted(caught)) setError(wordsOf(caught));
      else if (known.current) await stopped(known.current);
    } finally {
      stop.current = null;
    }
  }

  /** Show what was said until it was stopped. */
  async function stopped(id: string) {
    try {
      const isStored = await stored(id);
      if (left.current) return;
      if (isStored) onDone(id);
      else setError("It was stopped before there was anything to store.");
    } catch (caught) {
      setError(wordsOf(caught));
    }
  }

  return (
    <form class="composer" aria-label={draft.title} onSubmit={send}>
      <header>
        <h2>{draft.title}</h2>
        <button type="button" class="quiet" onClick={onClose}>
          Close
        </button>
      </header>
      {draft.text !== null && (
        <textarea
          ref={box}
          aria-label="What to say"
          rows={4}
          value={text}
          dir="auto"
          disabled={live !== null}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit();
          }}
        />
      )}
      {live && <Coming live={live} />}
      {error && <Failure error={error} />}
      <footer>
        <label class="check">
          <input
            type="checkbox"
            checked={background}
            disabled={live !== null}
            onChange={(event) => setBackground(event.currentTarget.checked)}
          />
          in the background, with its events kept
        </label>
        {live ? (
          <button type="button" onClick={() => stop.current?.abort()}>
            {background ? "Stop watching" : "Stop"}
          </button>
        ) : (
          <button type="submit" class="main" disabled={draft.text !== null && !text.trim()}>
            {draft.action}
          </button>
        )}
      </footer>
    </form>
  );
}

function Coming({ live }: { live: Live }) {
  return (
    <div class="coming" aria-label="The response so far" role="group" tabIndex={0}>
      {live.lost && <p class="hint">The connection was lost; trying again.</p>}
      {!live.pieces.length && !live.lost && <p class="hint">Waiting for the first words…</p>}
      {live.pieces.map((piece) => (
        <div class={`piece ${piece.kind}`}>
          <Text text={piece.text} mono={piece.kind === "call"} />
        </div>
      ))}
    </div>
  );
}

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
