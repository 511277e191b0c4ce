// What the administration's views share: lists that come in pages, tables, and moments.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useLoaded } from "../views/loading";
import { Failure, Line, Loading } from "../views/text";
import type { Listing } from "./requests";

/** The columns of a table: those of words, those of numbers behind them, and whether one of buttons is the last. */
interface Columns {
  titles: string[];
  numbers?: string[];
  acts?: boolean;
}

interface Paged<T> extends Columns {
  what: string;
  load: (after: string | null, signal: AbortSignal) => Promise<Listing<T>>;
  row: (record: T, again: () => void) => ComponentChildren;
  empty: ComponentChildren;
  /** Changes where the list is to be loaded anew. */
  version?: number | undefined;
  next?: string;
  previous?: string;
}

/** A list as a table, a page at a time. Give it another `key` where another list is to be shown, from its first page. */
export function Pages<T>({ what, load, row, empty, version = 0, next = "Next", previous = "Previous", ...columns }: Paged<T>) {
  const [cursors, setCursors] = useState<string[]>([]);
  const after = cursors.at(-1) ?? null;
  const { value, error, again } = useLoaded(JSON.stringify([after, version]), (signal) => load(after, signal), () => 0);
  const last = value?.has_more ? value.last_id : null;
  return (
    <>
      <Failure error={error} again={again} />
      {!value && !error && <Loading what={what} />}
      {value && value.data.length > 0 && (
        <Table name={what} {...columns}>
          {value.data.map((record) => row(record, again))}
        </Table>
      )}
      {value && value.data.length === 0 && <div class="empty">{last ? <p>Nothing on this page matches. Try the next one.</p> : empty}</div>}
      {(cursors.length > 0 || last) && (
        <nav class="pager" aria-label={`Pages of ${what}`}>
          <button disabled={!cursors.length} onClick={() => setCursors(cursors.slice(0, -1))}>
            {previous}
          </button>
          <button disabled={!last} onClick={() => last && setCursors([...cursors, last])}>{next}</button>
        </nav>
      )}
    </>
  );
}

/** A table that scrolls to its sides where the page is narrow, by keys too. One without titles has no head. */
export function Table({ name, titles, numbers = [], acts = false, children }: Columns & { name: string; children: ComponentChildren }) {
  return (
    <div class="table" role="region" aria-label={name} tabIndex={0}>
      <table>
        {titles.length > 0 && (
          <thead>
            <tr>
              {[...titles, ...numbers].map((title, index) => <th scope="col" class={index < titles.length ? "" : "number"}>{title}</th>)}
              {acts && <th scope="col"><span class="unshown">Actions</span></th>}
            </tr>
          </thead>
        )}
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** The name of a row. */
export const Name = ({ text }: { text: string }) => <th scope="row"><Line text={text} /></th>;

/** A cell with an id. */
export const Mono = ({ text }: { text: string }) => <td class="mono"><Line text={text} /></td>;

/** A cell with a number, or a dash where there is none. */
export const Cell = ({ number }: { number: number | string | null | undefined }) => (
  <td class="number">{typeof number === "number" ? number.toLocaleString("en") : "–"}</td>
);

/** The day of a moment in seconds since 1970, which may be to come; the whole of it to who points there. */
export function Day({ at }: { at: number }) {
  const date = new Date(at * 1000);
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString()}>
      {date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}
    </time>
  );
}
