// Two turns of a tree, or of two, side by side: what they share is folded, what only one has is whole.
import { useMemo } from "preact/hooks";
import { tree } from "../api";
import { type Row, chainOf, graphOf } from "../graph";
import { toTurn } from "../state";
import type { Turn } from "../wire";
import { about } from "./graph";
import { useLoaded } from "./loading";
import { Answered, answersIn } from "./tabs/items";
import { Ago, Failure, Id, Line, Loading, Lost, Status, count } from "./text";
import { Items, wholeOf } from "./turn";

/** How many turns of a side are shown whole; those before them by their excerpts. */
const WHOLE = 10;

export function Compare({ left, right }: { left: string; right: string }) {
  const { value, error, again } = useLoaded(`${left} ${right}`, (signal) => turnsOf(left, right, signal), () => 0);
  const graph = useMemo(() => value && graphOf(value), [value]);
  if (error) return <Lost title="Can't compare these turns" error={error} again={again} />;
  if (!graph) return <main class="lost"><Loading what="both turns" /></main>;
  const sides = [left, right].map((id) => chainOf(graph, graph.at.get(id) ?? -1));
  if (sides.some((side) => !side.length))
    return (
      <Lost title="Can't compare these turns" error="They aren't among the newest turns of their conversations.">
        <a href={toTurn(left)}>← Back</a>
      </Lost>
    );
  const shared = sharedOf(sides);
  return (
    <main class="compare">
      <header class="heading">
        <a class="back" href={toTurn(left)}>← Back</a>
        <h1>{sides[0]?.[0] === sides[1]?.[0] ? "Two turns of one conversation" : "Two conversations"}</h1>
        <p class="hint">
          {shared ? `They share ${count(shared, "turn")}, which ${shared === 1 ? "is" : "are"} folded.` : "They share no turns."}
        </p>
      </header>
      <Answered.Provider value={answersIn(value ?? [])}>
        <div class="sides">
          {sides.map((side, index) => <Side key={index} side={side} shared={shared} name={index ? "Right" : "Left"} />)}
        </div>
      </Answered.Provider>
    </main>
  );
}

/** The turns of the tree of one, and those of the other's, where it isn't in that. */
async function turnsOf(left: string, right: string, signal: AbortSignal): Promise<Turn[]> {
  const { turns } = await tree(left, signal);
  return turns.some(({ id }) => id === right) ? turns : [...turns, ...(await tree(right, signal)).turns];
}

/** How many turns both chains begin with. */
function sharedOf([left = [], right = []]: Row[][]): number {
  const differs = left.findIndex((row, index) => row.turn.id !== right[index]?.turn.id);
  return differs < 0 ? left.length : differs;
}

function Side({ side, shared, name }: { side: Row[]; shared: number; name: string }) {
  const last = side.at(-1)?.turn;
  return (
    <section class="side" aria-label={name} tabIndex={0}>
      <header class="about">
        {last && <Status status={last.status} />}
        {last && <Id id={last.id} />}
        {last?.output_tokens !== null && last && <span>{count(last.output_tokens ?? 0, "token")}</span>}
      </header>
      {shared > 0 && (
        <details class="shared-turns">
          <summary>{count(shared, "shared turn")}</summary>
          {side.slice(0, shared).map(({ turn }) => <Short key={turn.id} turn={turn} />)}
        </details>
      )}
      {side.slice(shared).map(({ turn }, index) =>
        index < side.length - shared - WHOLE || turn.kind !== "response" || turn.status === "deleted" ? (
          <Short key={turn.id} turn={turn} />
        ) : (
          <Own key={turn.id} turn={turn} />
        ),
      )}
      {side.length === shared && <p class="hint">It has no turn that the other one doesn't have.</p>}
    </section>
  );
}

function Short({ turn }: { turn: Turn }) {
  return (
    <a class="short" href={toTurn(turn.id)}>
      <b><Line text={about(turn)} /></b>
      <span>{turn.output && <Line text={turn.output} />}</span>
    </a>
  );
}

function Own({ turn }: { turn: Turn }) {
  const { value, error, again } = useLoaded(turn.id, (signal) => wholeOf(turn.id, signal), () => 0);
  return (
    <article class="own">
      <a class="hint" href={toTurn(turn.id)}><Ago at={turn.created_at} /></a>
      <Failure error={error} again={again} />
      {value ? <Items whole={value} /> : !error && <Loading what="the turn" />}
    </article>
  );
}
