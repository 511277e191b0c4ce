// A conversation: the graph of its turns beside the one that is looked at.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Extent, tree } from "../api";
import { graphOf } from "../graph";
import { place, said, toCompare, toList, toTurn } from "../state";
import { RUNNING, type Turn, type WholeTree } from "../wire";
import { Export } from "./files";
import { GraphView } from "./graph";
import { useLoaded } from "./loading";
import { Removal } from "./removal";
import { Failure, Line, Loading, count } from "./text";
import { TurnView } from "./turn";

const REFRESH_MS = 2_000;

/** The turn that another one is to be compared with. */
export const compared = signal<string | null>(null);

export function TreeView({ id }: { id: string }) {
  const [asked, setAsked] = useState(id);
  const { value, error, again } = useLoaded(
    asked,
    (signal) => tree(asked, signal),
    (tree) => (tree.turns.some((turn) => RUNNING.has(turn.status)) ? REFRESH_MS : 0),
  );
  const graph = useMemo(() => value && graphOf(value.turns), [value]);
  const selected = id === asked && value ? value.asked : id;
  const isKnown = graph?.at.has(selected);
  useEffect(() => {
    if (graph && !isKnown && id !== asked) setAsked(id); // another tree's, or one that was just made
  }, [id, graph, isKnown]);
  if (error && !value)
    return (
      <main class="lost">
        <a href={toList}>← Conversations</a>
        <h1>This can't be shown</h1>
        <Failure error={error} again={again} />
      </main>
    );
  if (!value || !graph) return <main class="lost"><Loading what="the conversation" /></main>;
  const turn = graph.rows[graph.at.get(selected) ?? graph.rows.length - 1]?.turn;
  return (
    <main class="tree-page">
      <Head value={value} again={again} />
      {error && <Failure error={error} again={again} />}
      <div class="panes">
        <GraphView graph={graph} selected={turn?.id ?? ""} onSelect={select} />
        {turn && (
          <Detail
            value={value}
            turn={turn}
            parent={graph.rows[graph.rows[graph.at.get(turn.id) ?? -1]?.parent ?? -1]?.turn ?? null}
            again={again}
          />
        )}
      </div>
    </main>
  );
}

/** Look at a turn, or compare it where one waits for that. */
function select(turn: Turn): void {
  const first = compared.value;
  if (first && first !== turn.id && turn.kind === "response" && turn.status !== "deleted") {
    compared.value = null;
    location.hash = toCompare(first, turn.id);
    return;
  }
  history.replaceState(null, "", toTurn(turn.id));
  place.value = { view: "tree", id: turn.id };
}

function Head({ value, again }: { value: WholeTree; again: () => void }) {
  const first = value.turns.find((turn) => turn.input)?.input ?? value.id;
  const forks = graphForks(value);
  return (
    <header class="heading">
      <a class="back" href={toList}>
        ← Conversations
      </a>
      <h1>
        <Line text={first} />
      </h1>
      <p class="hint">
        {count(value.turns.length, "turn")}
        {forks > 0 && `, ${count(forks, "fork")}`}
        {!value.turns_complete && "; only its newest branches are shown"}
        {!value.excerpts_complete && "; some turns are too large for an excerpt"}
        {!value.archived && "; the archive doesn't answer, so branches may be missing"}
      </p>
      {value.archived && <Archived {...value.archived} />}
      <Export tree={value} />
      <button onClick={again}>Refresh</button>
    </header>
  );
}

/** The branches that aren't shown, as they left memory: each comes back when it is opened. */
function Archived({ ends, complete }: { ends: string[]; complete: boolean }) {
  if (ends.length === 0) return null;
  return (
    <details class="hint">
      <summary>{`${count(ends.length, "branch", "branches")}${complete ? "" : " or more"} in the archive`}</summary>
      {ends.map((id) => (
        <a key={id} class="mono" href={toTurn(id)}>
          {id}{" "}
        </a>
      ))}
    </details>
  );
}

function graphForks(value: WholeTree): number {
  const seen = new Set<string>();
  const forked = new Set<string>();
  for (const { parent, kind } of value.turns) {
    if (parent === null || kind === "conversation") continue;
    if (seen.has(parent)) forked.add(parent);
    seen.add(parent);
  }
  return forked.size;
}

function Detail({ value, turn, parent, again }: { value: WholeTree; turn: Turn; parent: Turn | null; again: () => void }) {
  const [removes, setRemoves] = useState(false);
  const first = compared.value;
  function onRemoved(extent: Extent) {
    setRemoves(false);
    said.value = extent === "answer" ? "Deleted" : "Erased";
    if (extent === "tree" || value.turns.length === 1) location.hash = toList;
    else if (parent) {
      select(parent);
      again();
    } else again();
  }
  return (
    <div class="detail">
      {first && (
        <p class="banner" role="status">
          Choose the turn to compare with.
          <button class="quiet" onClick={() => (compared.value = null)}>
            Never mind
          </button>
        </p>
      )}
      <TurnView
        turn={turn}
        parent={parent}
        onCompare={() => (compared.value = turn.id)}
        onRemove={() => setRemoves(true)}
        onChanged={(id) => {
          again();
          if (id) location.hash = toTurn(id);
        }}
      />
      {removes && <Removal turn={turn} tree={value} onDone={onRemoved} onClose={() => setRemoves(false)} />}
    </div>
  );
}
