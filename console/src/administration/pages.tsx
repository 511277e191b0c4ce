// What the administration's views share: lists that come in pages, moments, and questions before something is ended.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useLoaded } from "../views/loading";
import { Failure, Loading, wordsOf } from "../views/text";
import type { Listing } from "./requests";

interface Paged<T> {
  what: string;
  load: (after: string | null, signal: AbortSignal) => Promise<Listing<T>>;
  head: ComponentChildren;
  row: (record: T, again: () => void) => ComponentChildren;
  empty: ComponentChildren;
  /** Changes where the list is to be loaded anew. */
  version?: number | undefined;
  next?: string;
  previous?: string;
}

/** A list as a table, a page at a time. Give it another `key` where another list is to be shown, from its first page. */
export function Pages<T>({ what, load, head, row, empty, version = 0, next = "Next", previous = "Previous" }: Paged<T>) {
  const [cursors, setCursors] = useState<string[]>([]);
  const after = cursors.at(-1) ?? null;
  const { value, error, again } = useLoaded(JSON.stringify([after, version]), (signal) => load(after, signal), () => 0);
  const last = value?.has_more ? value.last_id : null;
  return (
    <>
      <Failure error={error} again={again} />
      {!value && !error && <Loading what={what} />}
      {value && value.data.length > 0 && (
        <Table name={what}>
          <thead>{head}</thead>
          <tbody>{value.data.map((record) => row(record, again))}</tbody>
        </Table>
      )}
      {value && value.data.length === 0 && (
        <div class="empty">{last ? <p>None of those that were looked at is like that. Go on to the next.</p> : empty}</div>
      )}
      {(cursors.length > 0 || last) && (
        <nav class="pager" aria-label={`Pages of ${what}`}>
          <button disabled={!cursors.length} onClick={() => setCursors(cursors.slice(0, -1))}>
            {previous}
          </button>
          <button disabled={!last} onClick={() => last && setCursors([...cursors, last])}>
            {next}
          </button>
        </nav>
      )}
    </>
  );
}

/** A table that scrolls to its sides where the page is narrow, by keys too. */
export function Table({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="table" role="region" aria-label={name} tabIndex={0}>
      <table>{children}</table>
    </div>
  );
}

/** The day of a moment in seconds since 1970, which may be to come; the whole of it to who points there. */
export function Day({ at }: { at: number }) {
  const date = new Date(at * 1000);
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString()}>
      {date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}
    </time>
  );
}

interface Ending {
  title: ComponentChildren;
  meaning: string;
  label: string;
  act: () => Promise<unknown>;
  onDone: () => void;
  onClose: () => void;
}

/** Asks before something is ended for good. */
export function Confirm({ title, meaning, label, act, onDone, onClose }: Ending) {
  const keep = useRef<HTMLButtonElement>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  async function confirm(event: SubmitEvent) {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      await act();
      onDone();
      onClose();
    } catch (caught) {
      setError(wordsOf(caught));
      setBusy(false);
    }
  }
  return (
    <Dialog label="ending" onClose={onClose} first={() => keep.current}>
      <form onSubmit={confirm}>
        <h2 id="ending">{title}</h2>
        <p>{meaning}</p>
        <Failure error={error} />
        <footer>
          <button ref={keep} type="button" onClick={onClose}>
            Keep it
          </button>
          <button type="submit" class="danger" disabled={busy}>
            {label}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

interface Opened {
  label: string;
  onClose: () => void;
  first: () => HTMLElement | null;
  /** Whether Escape leaves it open. */
  stays?: boolean;
  children: ComponentChildren;
}

/** A dialog that is open while it is there; the focus goes back to where it was. */
export function Dialog({ label, onClose, first, stays = false, children }: Opened) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    first()?.focus();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby={label} onClose={onClose} onCancel={(event) => stays && event.preventDefault()}>
      {children}
    </dialog>
  );
}
