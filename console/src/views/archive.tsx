// The conversations that are in the archive alone: how many there are where memory has none, and a list of them, a page at a time.
import { signal } from "@preact/signals";
import { archived } from "../api";
import { toArchive, toList, toNew, toTurn } from "../state";
import type { ArchivedTree } from "../wire";
import { First } from "./begin";
import { useLoaded } from "./loading";
import { Ago, Failure, Loading, count } from "./text";

const PAGE = 50;

/** Where the pages up to this one begin: kept while a conversation is open. */
const pages = signal<string[]>([]);

/** Begin with the first page again: another key may be used now. */
export const resetArchive = (): void => void (pages.value = []);

/** The way to the list of those in the archive. */
export function ToArchive({ main = false }: { main?: boolean }) {
  return (
    <button class={main ? "main" : ""} onClick={() => (location.hash = toArchive)}>
      Show those in the archive
    </button>
  );
}

/** What stands in a list where memory has nothing, and the archive may have something. */
export function NothingInMemory() {
  const { value, error, again } = useLoaded("archived", (signal) => archived(null, PAGE, signal), () => 0);
  if (!value && !error) return <Loading what="how many conversations are in the archive" />;
  if (value && !value.data.length && !value.after) return <NoneYet />;
  const number = value?.data.length ?? 0;
  return (
    <div class="empty">
      <h2>Nothing is in memory</h2>
      {value && (
        <>
          <p>{number ? `The archive has ${count(number, "conversation")}${value.after ? " or more" : ""}.` : "The archive may have some."}</p>
          <ToArchive main />
        </>
      )}
      <Failure error={error} again={again} />
      <a class="button" href={toNew}>
        New conversation
      </a>
    </div>
  );
}

/** What stands in a list where there are no conversations at all. */
export function NoneYet() {
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

export function Archive() {
  const after = pages.value.at(-1) ?? null;
  const { value: page, error, again } = useLoaded(`archive ${after}`, (signal) => archived(after, PAGE, signal), () => 0);
  const next = (): void => {
    if (page?.after) pages.value = [...pages.value, page.after];
  };
  return (
    <main class="list">
      <header class="heading">
        <a class="back" href={toList}>
          ← Conversations
        </a>
        <h1>In the archive</h1>
        <button onClick={again}>Refresh</button>
      </header>
      <p class="hint">These left memory, or were restored from a backup, and are listed in no order. One that is opened comes back into memory.</p>
      <Failure error={error} again={again} />
      {!page && !error && <Loading what="the archive" />}
      {page && page.data.length > 0 && (
        <ul class="trees away" aria-label="Conversations in the archive">
          {page.data.map((tree) => (
            <Row key={tree.id} tree={tree} />
          ))}
        </ul>
      )}
      {page && page.data.length === 0 && (
        <p class="empty">{page.after ? "Nothing so far: what was looked at is in memory, too." : "No conversation is in the archive alone."}</p>
      )}
      {page && (
        <footer class="foot">
          <p>{page.after ? "There may be more." : "There are no more."}</p>
          <nav aria-label="Pages">
            <button disabled={!pages.value.length} onClick={() => (pages.value = pages.value.slice(0, -1))}>
              Previous
            </button>
            <button disabled={!page.after} onClick={next}>
              Next
            </button>
          </nav>
        </footer>
      )}
    </main>
  );
}

function Row({ tree }: { tree: ArchivedTree }) {
  return (
    <li>
      <a href={toTurn(tree.end)}>
        <span class="words">
          <b class="mono">{tree.id}</b>
          <span class="answer">
            Begun <Ago at={tree.created_at} />
          </span>
        </span>
        <span class="facts">
          <span class="turns">{`${count(tree.turns, "turn")}${tree.turns_complete ? "" : " or more"}`}</span>
          <Ago at={tree.newest_at} />
        </span>
      </a>
    </li>
  );
}
