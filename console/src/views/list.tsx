// The conversations of a key, the one used last first: a page at a time, so that what is shown stays small.
import { signal } from "@preact/signals";
import type { TargetedEvent } from "preact";
import { useState } from "preact/hooks";
import { type Filters, cancel, jobs, queryOf, trees } from "../api";
import { toNew, toTurn } from "../state";
import type { ListedTree, TreePage } from "../wire";
import { First } from "./begin";
import { Import } from "./files";
import { useLoaded } from "./loading";
import { Ago, Failure, Line, Loading, Status, count, wordsOf } from "./text";

const PAGE = 50;
const REFRESH_MS = 3_000;

/** How often it is looked whether anything runs, while nothing does. */
const LOOK_MS = 10_000;
const NOTHING: Filters = { status: "", model: "", since: "", metadata: "" };
const STATES = ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"];

/** What is looked for, and where the pages up to this one begin: kept while a conversation is open. */
const filters = signal<Filters>(NOTHING);
const pages = signal<string[]>([]);

/** Forget what was looked for: another key may be used now. */
export function resetList(): void {
  filters.value = NOTHING;
  pages.value = [];
}

export function List() {
  const after = pages.value.at(-1) ?? null;
  const query = (): URLSearchParams => queryOf(filters.value, after, PAGE);
  const { value: page, error, again } = useLoaded(
    JSON.stringify([filters.value, after]),
    (signal) => trees(query(), signal),
    (page) => (page.data.some((tree) => tree.under_way) ? REFRESH_MS : 0),
  );
  const isFiltered = Object.values(filters.value).some((each) => each.trim());
  return (
    <main class="list">
      <header class="heading">
        <h1>Conversations</h1>
        <Import onDone={again} />
        <button onClick={again}>Refresh</button>
        <a class="button main" href={toNew}>
          New conversation
        </a>
      </header>
      <Find />
      <Running />
      <Narrow />
      <Failure error={error} again={again} />
      {!page && !error && <Loading what="conversations" />}
      {page && page.data.length > 0 && (
        <ul class="trees" aria-label="Conversations">
          {page.data.map((tree) => (
            <TreeRow key={tree.id} tree={tree} />
          ))}
        </ul>
      )}
      {page && page.data.length === 0 && <Empty page={page} isFiltered={isFiltered} />}
      {page && <Foot page={page} />}
    </main>
  );
}

/** The box for an id of any kind. */
function Find() {
  const [id, setId] = useState("");
  function go(event: SubmitEvent) {
    event.preventDefault();
    if (id.trim()) location.hash = toTurn(id.trim());
  }
  return (
    <form class="find" role="search" onSubmit={go}>
      <input
        type="search"
        aria-label="Find by id"
        placeholder="Find by id: resp_…, conv_…, msg_…, call_…"
        value={id}
        onInput={(event) => setId(event.currentTarget.value)}
        spellcheck={false}
      />
      <button type="submit">Open</button>
    </form>
  );
}

/** What runs in the background now, of any age; nothing where nothing does. */
function Running() {
  const { value } = useLoaded("jobs", jobs, (found) => (found.data.length ? REFRESH_MS : LOOK_MS));
  const [error, setError] = useState("");
  if (!value?.data.length) return null;
  async function stop(id: string) {
    setError("");
    try {
      await cancel(id);
    } catch (caught) {
      setError(wordsOf(caught));
    }
  }
  return (
    <section class="running" aria-label="Running in the background">
      <h2>Running in the background{value.has_more && ", and more"}</h2>
      <Failure error={error} />
      <ul>
        {value.data.map((turn) => (
          <li key={turn.id}>
            <Status status={turn.status} />
            <a href={toTurn(turn.id)}>{turn.input ? <Line text={turn.input} /> : turn.id}</a>
            <Ago at={turn.created_at} />
            <button class="quiet" aria-label="Cancel this response" onClick={() => stop(turn.id)}>
              Cancel
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Narrow() {
  const set =
    (name: keyof Filters) =>
    (event: TargetedEvent<HTMLInputElement | HTMLSelectElement>): void => {
      filters.value = { ...filters.value, [name]: event.currentTarget.value };
      pages.value = [];
    };
  const wrong = filters.value.metadata.trim() !== "" && !/^\s*[^=\s][^=]*=/.test(filters.value.metadata);
  return (
    <div class="filters">
      <label>
        <span>Status</span>
        <select value={filters.value.status} onChange={set("status")}>
          <option value="">any</option>
          {STATES.map((status) => (
            <option value={status}>{status.replace("_", " ")}</option>
          ))}
        </select>
      </label>
      <label>
        <span>Used</span>
        <select value={filters.value.since} onChange={set("since")}>
          <option value="">any time</option>
          <option value="hour">in the last hour</option>
          <option value="day">in the last day</option>
          <option value="week">in the last week</option>
          <option value="month">in the last month</option>
        </select>
      </label>
      <label>
        <span>Model</span>
        <input value={filters.value.model} onChange={set("model")} placeholder="any" spellcheck={false} />
      </label>
      <label>
        <span>Metadata</span>
        <input
          value={filters.value.metadata}
          onChange={set("metadata")}
          placeholder="key=value"
          aria-invalid={wrong}
          spellcheck={false}
        />
      </label>
      {wrong && <p class="hint">Write metadata as key=value; it isn't looked for now.</p>}
    </div>
  );
}

function TreeRow({ tree }: { tree: ListedTree }) {
  const { newest } = tree;
  const title = tree.title ?? newest.input;
  return (
    <li>
      <a href={toTurn(newest.id)}>
        <Status status={newest.status} words={false} />
        <span class="words">
          <b>{title ? <Line text={title} /> : <em>no text to show</em>}</b>
          <span class="answer">
            {newest.input && newest.input !== title && (
              <>
                <Line text={newest.input} /> →{" "}
              </>
            )}
            {newest.output && <Line text={newest.output} />}
          </span>
        </span>
        <span class="facts">
          {newest.status !== "completed" && (
            <span class={`status ${newest.status}`} aria-hidden="true">
              {newest.status.replace("_", " ")}
            </span>
          )}
          <span class="model">{newest.model && <Line text={newest.model} />}</span>
          <span class="turns">{`${count(tree.turns, "turn")}${tree.turns_complete ? "" : " or more"}`}</span>
          <Ago at={tree.last_used_at} />
        </span>
      </a>
    </li>
  );
}

function Empty({ page, isFiltered }: { page: TreePage; isFiltered: boolean }) {
  if (page.has_more) return <p class="empty">None of those that were looked at is like that. Go on to older ones.</p>;
  if (isFiltered)
    return (
      <div class="empty">
        <h2>Nothing is like that</h2>
        <p>No conversation of this key matches all of the filters.</p>
        <button onClick={resetList}>Clear the filters</button>
      </div>
    );
  return (
    <div class="empty">
      <h2>No conversations yet</h2>
      <p>Begin one here, or by the API:</p>
      <a class="button main" href={toNew}>
        New conversation
      </a>
      <First />
    </div>
  );
}

const STOPPED: Record<string, string> = {
  rows: "and stopped there, as that is as many as one page looks at",
  time: "and stopped there, as it took long",
  bytes: "and stopped there, as they are large",
};

/** What was looked at, and the way to other pages. */
function Foot({ page }: { page: TreePage }) {
  const { trees, back_to, stopped, unread } = page.searched;
  const older = (): void => {
    if (page.after) pages.value = [...pages.value, page.after];
  };
  return (
    <footer class="foot">
      <p>
        Looked at {count(trees, "conversation")}
        {back_to !== null && (
          <>
            , back to <Ago at={back_to} />
          </>
        )}
        {stopped && ` ${STOPPED[stopped] ?? "and stopped there"}`}
        {page.has_more ? "." : page.has_archive ? "; others may be in the archive, and are found by an id." : "; these are all."}
        {unread > 0 && ` ${count(unread, "was", "were")} too large to be read.`} Filters are matched with the newest turn; texts
        aren't searched.
      </p>
      <nav aria-label="Pages">
        <button disabled={!pages.value.length} onClick={() => (pages.value = pages.value.slice(0, -1))}>
          Newer
        </button>
        <button disabled={!page.has_more} onClick={older}>
          Older
        </button>
      </nav>
    </footer>
  );
}
