// The conversations of a key, the one used last first: a page at a time, so that what is shown stays small.
import { signal } from "@preact/signals";
import type { InputHTMLAttributes } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type Filters, NOTHING, cancel, found, jobs, remove } from "../api";
import { toNew, toTurn, versionsOf } from "../state";
import type { ListedTree, TreePage } from "../wire";
import { First } from "./begin";
import { Choice, Deletes, Folded } from "./dialog";
import { Import } from "./files";
import { useDoing, useLoaded } from "./loading";
import { Ago, Failure, Line, Loading, Status, count, plain } from "./text";

const PAGE = 50;
const REFRESH_MS = 3_000;

/** How often it is looked whether anything runs, while nothing does. */
const LOOK_MS = 10_000;

/** Why a list has nothing of the archive. */
const AWAY = { unavailable: "The archive doesn't answer", cataloguing: "The archive's catalogue is being built" };

/** Days that can be asked for: a year of which not all digits are typed isn't. */
const YEARS = { min: "2000-01-01", max: "2999-12-31" };
const STATES = ["", "queued", "in_progress", "completed", "incomplete", "failed", "cancelled"].map((each): [string, string] => [each, each.replace("_", " ") || "any"]);

/** What is looked for, and where the pages up to this one begin: kept while a conversation is open. */
const filters = signal<Filters>(NOTHING);
const typed = signal("");
const pages = signal<string[]>([]);

/** Whether somebody wants to write into the box for words. */
export const finding = signal(false);

/** Move the focus among the conversations of the list; whether there are any. */
export function moveInList(step: number): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>(".trees a")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  rows[at < 0 ? 0 : Math.min(Math.max(at + step, 0), rows.length - 1)]?.focus();
  return rows.length > 0;
}

/** Forget what was looked for: another key may be used now. */
export function resetList(): void {
  narrow(NOTHING);
  typed.value = "";
}

function narrow(by: Partial<Filters>): void {
  filters.value = { ...filters.value, ...by };
  pages.value = [];
}

export function List() {
  const after = pages.value.at(-1) ?? null;
  const { find, model, metadata } = filters.value;
  const isSearch = Boolean(find || model || metadata);
  const place = JSON.stringify([filters.value, after]);
  const [going, setGoing] = useState<{ place: string; page: TreePage } | null>(null);
  const stopped = useRef(false);
  async function search(signal: AbortSignal): Promise<TreePage> {
    stopped.current = false;
    try {
      return await found(filters.value, after, PAGE, signal, (page) => {
        setGoing({ place, page });
        return !stopped.current;
      });
    } finally {
      if (!signal.aborted) setGoing(null);
    }
  }
  const { value, error, again } = useLoaded(
    place,
    search,
    (page) => (isSearch ? 0 : page.data.some((tree) => tree.under_way) ? REFRESH_MS : after ? 0 : LOOK_MS),
  );
  useEffect(() => {
    if (isSearch || after) return;
    addEventListener("focus", again);
    return () => removeEventListener("focus", again);
  }, [isSearch, after]);
  const looking = going?.place === place ? going.page : null;
  const page = value ?? looking;
  const isFiltered = Object.values(filters.value).some((each) => each.trim());
  return (
    <main class="list">
      <header class="heading">
        <h1>Conversations</h1>
        <Folded words="More">
          <Import onDone={again} />
          <button onClick={again}>Refresh</button>
        </Folded>
        <a class="button main" href={toNew}>
          New <span class="wide">conversation</span>
        </a>
      </header>
      <Find />
      <Running />
      <Narrow />
      <Failure error={error || (page?.archive_away ? `${AWAY[page.archive_away]}: what is in it alone isn't listed.` : "")} again={again} />
      {!page && !error && <Loading what="conversations" />}
      {looking && <Going page={looking} stop={() => (stopped.current = true)} />}
      {page && page.data.length > 0 && (
        <ul class="trees" aria-label="Conversations">
          {page.data.filter(isFirstOfVersions).map((tree) => (
            <TreeRow key={tree.id} tree={tree} />
          ))}
        </ul>
      )}
      {page && !looking && page.data.length === 0 && !page.archive_away && <Empty page={page} isFiltered={isFiltered} />}
      {page && !looking && <Foot page={page} />}
      {value && isFiltered && !isWrong(filters.value) && value.data.length > 0 && (
        <Deletes
          label="Delete these"
          of={count(value.data.length, "conversation")}
          meaning="All of their turns, with every branch."
          act={() => removeAll(value.data)}
          done="Deleted"
          onDone={again}
        />
      )}
    </main>
  );
}

/** Delete conversations, but those that are gone by now. Throws ApiError. */
async function removeAll(trees: ListedTree[]): Promise<void> {
  for (const { id, newest } of trees)
    try {
      await remove(newest.status === "deleted" ? id : newest.id, "tree");
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
    }
}

/** Whether what is written as metadata has no effect. */
const isWrong = ({ metadata }: Filters): boolean => metadata.trim() !== "" && !/^\s*[^=\s][^=]*=/.test(metadata);

/** How far a search is that goes on by itself, and the way to end it. */
function Going({ page, stop }: { page: TreePage; stop: () => void }) {
  return (
    <div class="going" role="status">
      <progress aria-label="Searching" />
      <span><LookedAt page={page} /></span>
      <button onClick={stop}>Stop</button>
    </div>
  );
}

function LookedAt({ page: { searched } }: { page: TreePage }) {
  return (
    <>
      Looked at {count(searched.trees, "conversation")}
      {searched.back_to !== null && <>, back to <Ago at={searched.back_to} /></>}
      .{" "}
    </>
  );
}

/** The box for words, and for an id of any kind: a whole one is opened. */
function Find() {
  const box = useRef<HTMLInputElement>(null);
  const isWanted = finding.value;
  useEffect(() => {
    if (isWanted) box.current?.select();
    finding.value = false;
  }, [isWanted]);
  function go(event: SubmitEvent) {
    event.preventDefault();
    const find = typed.value.trim();
    if (!/^[a-z]+_[0-9a-f]{48,52}$/.test(find)) return narrow({ find });
    typed.value = filters.value.find;
    location.hash = toTurn(find);
  }
  return (
    <form class="find" role="search" onSubmit={go}>
      <input
        ref={box}
        type="search"
        aria-label="Find words or an id"
        placeholder="Find words, or an id by its beginning"
        maxLength={256}
        value={typed.value}
        onInput={(event) => {
          typed.value = event.currentTarget.value;
          if (!typed.value) narrow({ find: "" });
        }}
        spellcheck={false}
      />
      <button type="submit">Find</button>
    </form>
  );
}

/** What runs in the background now, of any age; nothing where nothing does. */
function Running() {
  const { value } = useLoaded("jobs", jobs, (found) => (found.data.length ? REFRESH_MS : LOOK_MS));
  const { error, attempt } = useDoing();
  if (!value?.data.length) return null;
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
            <button class="quiet" aria-label="Cancel this response" onClick={() => attempt(() => cancel(turn.id))}>
              Cancel
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Narrow() {
  const field = (name: keyof Filters, title: string, rest: InputHTMLAttributes) => (
    <label>
      <span>{title}</span>
      <input value={filters.value[name]} onChange={({ currentTarget: { value, validity } }) => validity.valid && narrow({ [name]: value })} spellcheck={false} {...rest} />
    </label>
  );
  const used = Object.entries(filters.value).filter(([name, value]) => name !== "find" && value.trim()).length;
  const wrong = isWrong(filters.value);
  return (
    <div class="filters">
      <Folded words={used ? `Filters (${used})` : "Filters"}>
      <Choice name="Status" value={filters.value.status} options={STATES} onChange={(status) => narrow({ status })} />
      {field("since", "Used from", { type: "date", ...YEARS })}
      {field("until", "to", { type: "date", "aria-label": "Used until", ...YEARS })}
      {field("model", "Model", { placeholder: "any" })}
      {field("metadata", "Metadata", { placeholder: "key=value", "aria-invalid": wrong })}
      {wrong && <p class="hint">Write metadata as key=value. It has no effect now.</p>}
      </Folded>
    </div>
  );
}

/** Whether a conversation is the one used last of those that begin with versions of one message; each is found by itself. */
const isFirstOfVersions = ({ id }: ListedTree, at: number, page: ListedTree[]): boolean =>
  filters.value.find !== "" || page.findIndex((other) => versionsOf(id).includes(other.id)) === at;

function TreeRow({ tree }: { tree: ListedTree }) {
  const { newest, found } = tree;
  const title = tree.title ?? newest.input;
  return (
    <li>
      <a href={toTurn(found?.id ?? newest.id, found?.text ? filters.value.find.trim() : "")}>
        <Status status={newest.status} words={false} />
        <span class="words">
          <b>{title ? <Marked text={title} /> : <em>no text to show</em>}</b>
          <span class="answer">
            {found?.text ? (
              <Marked text={found.text} />
            ) : (
              <>
                {newest.input && newest.input !== title && <><Marked text={newest.input} /> →{" "}</>}
                {newest.output && <Marked text={newest.output} />}
              </>
            )}
          </span>
        </span>
        <span class="facts">
          {!tree.in_memory && <span class="away" title="It isn't in memory, and comes back when it is opened">archived</span>}
          {newest.status !== "completed" && <span class={`status ${newest.status}`} aria-hidden="true">{newest.status.replace("_", " ")}</span>}
          <span class="model">{newest.model && <Line text={newest.model} />}</span>
          {versionsOf(tree.id).length > 1 && <span class="away">{versionsOf(tree.id).length} versions</span>}
          <span class="turns" title={`since ${new Date(tree.first_used_at * 1000).toLocaleString()}`}>{`${count(tree.turns, "turn")}${tree.turns_complete ? "" : " or more"}`}</span>
          <Ago at={tree.last_used_at} />
        </span>
      </a>
    </li>
  );
}

/** A text as the search sees it: without case and diacritics. */
const folded = (text: string): string => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

/** The words of a text that begin as one of those that are looked for, as the catalogue finds them; or that have it, as memory does. */
export function wordsFound(text: string, find: string, how: "startsWith" | "includes" = "startsWith"): RegExpExecArray[] {
  const wanted = folded(find).match(/[\p{L}\p{N}]+/gu) ?? [];
  const words = [...text.matchAll(/[\p{L}\p{N}][\p{L}\p{N}\p{M}]*/gu)];
  return words.filter(([word]) => wanted.some((each) => folded(word)[how](each)));
}

/** A text in which the words that are looked for are marked. */
function Marked({ text }: { text: string }) {
  const find = filters.value.find.trim();
  if (!find) return <Line text={text} />;
  let end = 0;
  const begun = wordsFound(text, find);
  const parts = (begun.length ? begun : wordsFound(text, find, "includes")).map((found) => {
    const before = text.slice(end, found.index);
    end = found.index + found[0].length;
    return (
      <>
        {plain(before)}
        <mark>{plain(found[0])}</mark>
      </>
    );
  });
  return (
    <bdi>
      {parts}
      {plain(text.slice(end))}
    </bdi>
  );
}

function Empty({ page, isFiltered }: { page: TreePage; isFiltered: boolean }) {
  if (page.has_more) return <p class="empty">Nothing found so far. Older conversations weren't looked at yet.</p>;
  if (isFiltered)
    return (
      <div class="empty">
        <h2>Nothing found</h2>
        <p>No conversation matches what you look for.</p>
        {filters.value.find && <p>Of archived ones titles and newest turns are searched, unless HARMONIUM_CATALOGUE_WORDS is all.</p>}
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

/** What was looked at, and the way to other pages. */
function Foot({ page }: { page: TreePage }) {
  const { unread, stopped } = page.searched;
  const older = (): void => {
    if (page.after) pages.value = [...pages.value, page.after];
  };
  return (
    <footer class="foot">
      <p>
        {stopped && <LookedAt page={page} />}
        {page.has_more ? "There are older ones." : !page.archive_away && "These are all."}
        {unread > 0 && ` ${count(unread, "was", "were")} too large to be read whole.`}
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
