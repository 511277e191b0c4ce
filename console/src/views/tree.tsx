// A conversation: the turns up to the one that is looked at, one below the other, beside the graph of all of them.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Extent, tree } from "../api";
import { chainOf, graphOf } from "../graph";
import { type Said, again as theSame, asked, edited, going, inputOf } from "../request";
import { EDITED_FROM, addVersion, dropVersion, locked, place, toCompare, toList, toTurn, versionsOf } from "../state";
import { type Item, RUNNING, type Turn, type WholeTree, ended } from "../wire";
import { Composer, type Draft, writing } from "./composer";
import { Conversation } from "./conversation";
import { Folded } from "./dialog";
import { Export } from "./files";
import { GraphView } from "./graph";
import { useLoaded } from "./loading";
import { Removal } from "./removal";
import { Answered, answersIn } from "./tabs/items";
import { Failure, Line, Loading, Lost, count, wordsOf } from "./text";
import { type Act, type Whole, forgetRead, isResponse, wholeOf } from "./turn";

const REFRESH_MS = 2_000;

const RESPONSE = /^resp_[0-9a-f]{48}$/;

/** The turn that another one is to be compared with. */
export const compared = signal<string | null>(null);

/** Whether the graph is shown where there is no room beside it. */
const withGraph = signal(false);

export function TreeView({ id, words }: { id: string; words: string }) {
  const [wanted, setWanted] = useState(id);
  const kept = useRef<WholeTree | null>(null);
  const loaded = useLoaded(
    wanted,
    (signal) => {
      if (RESPONSE.test(id)) wholeOf(id, signal).catch(() => undefined); // read at the same time; its view says what is wrong
      const shown = kept.current;
      return tree(shown?.turns.some((turn) => turn.id === wanted) ? shown.id : wanted, signal); // the turn may be gone by now
    },
    (tree) => (tree.turns.some((turn) => RUNNING.has(turn.status)) ? REFRESH_MS : 0),
  );
  const { error, again } = loaded;
  if (loaded.value) kept.current = loaded.value;
  const value = loaded.value ?? (error ? null : kept.current); // the tree that was shown, until another one is there
  const before = useRef("");
  const [removed, setRemoved] = useState<{ turn: Turn; isOfAll: boolean } | null>(null);
  const [draft, setDraft] = useState<Draft | null>(null);
  const [failed, setFailed] = useState("");
  const graph = useMemo(() => value && graphOf(value.turns), [value]);
  const answers = useMemo(() => answersIn(value?.turns ?? []), [value]);
  const selected = !graph?.at.has(id) && id === wanted && loaded.value ? loaded.value.asked : id;
  const isKnown = graph?.at.has(selected);
  useEffect(() => {
    if ((loaded.value || error) && !isKnown && id !== wanted) setWanted(id); // another tree's, or one that was just made
  }, [id, graph, isKnown, error]);
  if (error && !value && locked.value === false)
    return (
      <Lost title="Can't show this conversation" error={error} again={again}>
        <a href={toList}>← Conversations</a>
      </Lost>
    );
  if (!value || !graph) return <main class="lost"><Loading what="the conversation" /></main>;
  const here = graph.at.get(selected) ?? graph.at.get(before.current) ?? graph.rows.length - 1;
  const turn = graph.rows[here]?.turn;
  before.current = turn?.id ?? "";
  const parentOf = (of: Turn): Turn | null => graph.rows[graph.rows[graph.at.get(of.id) ?? -1]?.parent ?? -1]?.turn ?? null;

  async function act(what: Act, on: Turn, given?: Item) {
    setFailed("");
    setDraft(null);
    if (what === "compare") compared.value = on.id;
    else if (what === "remove") setRemoved({ turn: on, isOfAll: false });
    else select(on);
    if (what === "continue") writing.value = on.id;
    if (what === "continue" || what === "compare" || what === "remove" || what === "inspect") return;
    try {
      setDraft(draftOf(what, on, parentOf(on), await wholeOf(on.id, new AbortController().signal), given));
    } catch (caught) {
      setFailed(wordsOf(caught));
    }
  }

  function changed(id?: string) {
    again();
    if (id) location.hash = toTurn(id);
  }

  function done(id: string) {
    if (draft?.isVersion) addVersion(draft.at, id);
    setDraft(null);
    changed(id);
  }

  function onRemoved(extent: Extent) {
    const parent = removed && parentOf(removed.turn);
    setRemoved(null);
    forgetRead();
    if (extent === "tree" || value?.turns.length === 1) {
      dropVersion(value?.id ?? "");
      location.hash = toList;
    } else {
      if (parent) select(parent);
      again();
    }
  }

  return (
    <main class="tree-page">
      <Head value={value} read={chainOf(graph, here).map((row) => row.turn)} again={again} onDelete={() => turn && setRemoved({ turn, isOfAll: true })} />
      <Failure error={error} again={again} />
      <Failure error={failed} />
      <div class={withGraph.value ? "panes with-graph" : "panes"}>
        <GraphView graph={graph} selected={turn?.id ?? ""} onSelect={select} />
        {turn && (
          <div class="detail">
            {compared.value && (
              <p class="banner" role="status">
                Choose the turn to compare with.
                <button class="quiet" onClick={() => (compared.value = null)}>Cancel</button>
              </p>
            )}
            <Answered.Provider value={answers}>
              <Conversation graph={graph} here={here} words={words} onAct={act} onChanged={changed} />
            </Answered.Provider>
            {draft && draft.at === turn.id ? (
              <div class="dock">
                <Composer key={draft.title} draft={draft} onClose={() => setDraft(null)} onBegun={again} onDone={done} />
              </div>
            ) : (
              isResponse(turn) && ended(turn.status) && <Dock key={turn.id} turn={turn} onChanged={changed} />
            )}
          </div>
        )}
      </div>
      {removed && <Removal {...removed} tree={value} onDone={onRemoved} onClose={() => setRemoved(null)} />}
    </main>
  );
}

/** What goes on from a turn. */
function Dock({ turn, onChanged }: { turn: Turn; onChanged: (id?: string) => void }) {
  const { value } = useLoaded(turn.id, (signal) => wholeOf(turn.id, signal), () => 0);
  if (!value) return null;
  const { answer } = value;
  const draft = { title: "Continue from here", at: turn.id, text: "", model: answer.model, body: (said: Said) => going(answer, inputOf(said)) };
  return (
    <div class="dock">
      <Composer draft={draft} onBegun={() => onChanged()} onDone={onChanged} />
    </div>
  );
}

/** The most pairs of metadata that a response has. */
const MAX_METADATA = 16;

/** What is asked at once, or where somebody has written. */
function draftOf(
  what: "answer" | "retry" | "edit",
  turn: Turn,
  parent: Turn | null,
  { answer, items }: Whole,
  given?: Item,
): Draft {
  const before = parent?.id ?? null;
  const at = { at: turn.id, model: answer.model };
  if (given) return { ...at, title: given["approve"] ? "Approve" : "Deny", text: null, body: () => going(answer, [given]) };
  if (what === "retry")
    return { ...at, title: "Retry", text: null, background: Boolean(answer.background), body: () => theSame(answer, items, before) };
  const isVersion = before === null;
  const metadata = { ...answer.metadata, ...(isVersion && { [EDITED_FROM]: versionsOf(turn.id)[0] }) };
  const body = (said: Said) => ({ ...theSame(answer, edited(items, said), before), ...(Object.keys(metadata).length <= MAX_METADATA && { metadata }) });
  return { ...at, title: isVersion ? "Edit as another version" : "Edit and fork", text: asked(items), isVersion, body };
}

/** Look at a turn, or compare it where one waits for that. */
function select(turn: Turn): void {
  const first = compared.value;
  withGraph.value = false;
  if (first && first !== turn.id && isResponse(turn)) {
    compared.value = null;
    location.hash = toCompare(first, turn.id);
    return;
  }
  history.replaceState(null, "", toTurn(turn.id));
  place.value = { view: "tree", id: turn.id, words: "" };
}

function Head({ value, read, again, onDelete }: { value: WholeTree; read: Turn[]; again: () => void; onDelete: () => void }) {
  const first = value.turns.find((turn) => turn.input)?.input ?? value.id;
  const turns = value.turns.filter(({ kind, parent }) => kind !== "conversation" && (kind !== "items" || parent !== null));
  const forks = forksOf(value.turns);
  return (
    <header class="heading">
      <a class="back" href={toList} aria-label="← Conversations">← <span class="wide">Conversations</span></a>
      <h1><Line text={first} /></h1>
      <Versions root={value.id} />
      <button class="narrow" aria-pressed={withGraph.value} onClick={() => (withGraph.value = !withGraph.value)}>
        Graph
      </button>
      <Folded words="More">
      <p class="hint">
        {count(turns.length, "turn")}
        {forks > 0 && `, ${count(forks, "fork")}`}
        {!value.turns_complete && "; only its newest branches are shown"}
        {!value.excerpts_complete && "; some turns are too large for an excerpt"}
        {!value.archived && "; the archive doesn't answer, so branches may be missing"}
      </p>
      {value.archived && <Archived {...value.archived} />}
      <Export tree={value} title={first} turns={read.filter(isResponse)} />
      <button onClick={onDelete}>Delete…</button><button onClick={again}>Refresh</button></Folded>
    </header>
  );
}

/** Which of the versions of its first message a conversation begins with, and the way to those beside it. */
function Versions({ root }: { root: string }) {
  const all = versionsOf(root);
  const at = all.indexOf(root);
  const step = (to: string | undefined, sign: string, name: string) => (to ? <a href={toTurn(to)} aria-label={name}>{sign}</a> : <span aria-hidden="true">{sign}</span>);
  if (all.length < 2) return null;
  return (
    <nav class="hint versions" aria-label="Versions of the first message">
      {step(all[at - 1], "‹", "Version before")} {at + 1}/{all.length} {step(all[at + 1], "›", "Next version")}
    </nav>
  );
}

/** The branches that aren't shown, as they left memory: each comes back when it is opened. */
function Archived({ ends, complete }: { ends: string[]; complete: boolean }) {
  if (ends.length === 0) return null;
  return (
    <details class="hint">
      <summary>{`${count(ends.length, "branch", "branches")}${complete ? "" : " or more"} in the archive`}</summary>
      {ends.map((id) => <a key={id} class="mono" href={toTurn(id)}>{id}{" "}</a>)}
    </details>
  );
}

/** How many turns go on in several ways. */
function forksOf(turns: Turn[]): number {
  const children = Map.groupBy(turns.filter(({ parent, kind }) => parent !== null && kind !== "conversation"), ({ parent }) => parent);
  return [...children.values()].filter(({ length }) => length > 1).length;
}
