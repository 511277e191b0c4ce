// A conversation as it is read: the turns from its root to one of them, one below the other. Only those near to what is seen
// are in the page; of the others there is their room, which is known once they were seen.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Graph, type Row, chainOf, leafOf } from "../graph";
import { toTurn } from "../state";
import { Coming, coming } from "./composer";
import { Line, count } from "./text";
import { type Acting, TurnView } from "./turn";

/** The room of a turn that wasn't seen yet. */
const ROOM = 150;

/** How far beyond what is seen turns are read. */
const NEAR = "80% 0px";

interface Reading extends Pick<Acting, "onAct" | "onChanged"> {
  graph: Graph;
  /** The row of the last turn. */
  here: number;
}

export function Conversation({ graph, here, onAct, onChanged }: Reading) {
  const chain = useMemo(() => chainOf(graph, here), [graph, here]);
  const asides = useMemo(() => asidesOf(graph, chain), [graph, chain]);
  const box = useRef<HTMLDivElement>(null);
  const { near, rooms, watch } = useNear(box);
  const id = chain.at(-1)?.turn.id ?? "";
  useHeld(box, id);
  const { after } = coming.value ?? {};
  return (
    <div ref={box} class="reading" role="region" aria-label="Conversation" tabIndex={0}>
      <div>
      {chain.map((row, index) => (
        <Place
          key={row.turn.id}
          row={row}
          parent={chain[index - 1] ?? null}
          isNear={near.has(row.turn.id) || row.turn.id === id}
          room={rooms.get(row.turn.id) ?? ROOM}
          isHere={row.turn.id === id}
          asides={asides.get(row.turn.id) ?? []}
          watch={watch}
          onAct={onAct}
          onChanged={onChanged}
        />
      ))}
      {after === id && <Coming />}
      </div>
    </div>
  );
}

interface Standing extends Pick<Acting, "onAct" | "onChanged"> {
  row: Row;
  parent: Row | null;
  isNear: boolean;
  room: number;
  isHere: boolean;
  asides: Aside[];
  watch: (element: HTMLElement) => () => void;
}

function Place({ row, parent, isNear, room, isHere, asides, watch, onAct, onChanged }: Standing) {
  const { turn } = row;
  const article = useRef<HTMLElement>(null);
  useLayoutEffect(() => (article.current ? watch(article.current) : undefined), []);
  return (
    <article
      ref={article}
      data-turn={turn.id}
      class={isHere ? "turn here" : "turn"}
      aria-label={`Turn ${turn.depth ?? ""}`}
      {...(isNear ? {} : { style: { height: `${room}px` } })}
    >
      {isNear && (
        <>
          <TurnView turn={turn} parent={parent?.turn ?? null} isHere={isHere} onAct={onAct} onChanged={onChanged} />
          {asides.length > 0 && <Branches asides={asides} isEnd={isHere} />}
        </>
      )}
    </article>
  );
}

/** Where a conversation also goes on from a turn: its first words there, and its end. */
interface Aside {
  words: string;
  end: string;
  lane: number;
}

function asidesOf(graph: Graph, chain: Row[]): Map<string, Aside[]> {
  const rows = new Set(chain);
  const found = new Map<string, Aside[]>();
  for (const row of graph.rows) {
    const above = graph.rows[row.parent];
    if (!above || !rows.has(above) || rows.has(row) || row.turn.kind === "conversation") continue;
    const aside = { words: row.turn.input || row.turn.output || row.turn.id, end: leafOf(graph, row).turn.id, lane: row.lane };
    found.set(above.turn.id, [...(found.get(above.turn.id) ?? []), aside]);
  }
  return found;
}

/** How many branches of one turn are listed. */
const MAX_LISTED = 50;

function Branches({ asides, isEnd }: { asides: Aside[]; isEnd: boolean }) {
  return (
    <details class="branches" open={isEnd && asides.length < 5}>
      <summary>
        {isEnd ? `It goes on in ${count(asides.length, "branch", "branches")}` : `${count(asides.length, "other branch", "other branches")} here`}
      </summary>
      <ul>
        {asides.slice(0, MAX_LISTED).map(({ words, end, lane }) => (
          <li class={`lane-${lane % 6}`}>
            <a href={toTurn(end)}>
              <Line text={words} />
            </a>
          </li>
        ))}
      </ul>
      {asides.length > MAX_LISTED && <p class="hint">The graph has the others.</p>}
    </details>
  );
}

const MOVES = ["wheel", "touchmove", "keydown", "pointerdown"] as const;

/** Have the turn that is looked at stay where it was scrolled to while those above it get their room, until somebody moves. */
function useHeld(box: { current: HTMLElement | null }, id: string): void {
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const hold = () => element.querySelector(".here")?.scrollIntoView({ block: "start" });
    const observer = new ResizeObserver(hold);
    if (element.firstElementChild) observer.observe(element.firstElementChild);
    const leave = () => observer.disconnect();
    for (const move of MOVES) element.addEventListener(move, leave, { passive: true });
    hold();
    return () => {
      leave();
      for (const move of MOVES) element.removeEventListener(move, leave);
    };
  }, [id]);
}

interface Nearness {
  /** The ids of the turns that are near to what is seen. */
  near: Set<string>;
  /** How high those are that were near. */
  rooms: Map<string, number>;
  /** Begin to watch a turn; what ends that. */
  watch: (element: HTMLElement) => () => void;
}

function useNear(box: { current: HTMLElement | null }): Nearness {
  const [near, setNear] = useState<Set<string>>(new Set());
  const [held] = useState(() => ({ rooms: new Map<string, number>(), elements: new Set<HTMLElement>() }));
  const observer = useRef<IntersectionObserver | null>(null);
  useLayoutEffect(() => {
    const seen = new Set<string>();
    const look = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting, boundingClientRect } of entries) {
          const id = (target as HTMLElement).dataset["turn"] ?? "";
          if (isIntersecting) seen.add(id);
          else if (seen.delete(id)) held.rooms.set(id, boundingClientRect.height);
        }
        setNear(new Set(seen));
      },
      { root: box.current, rootMargin: NEAR },
    );
    for (const element of held.elements) look.observe(element);
    observer.current = look;
    return () => look.disconnect();
  }, []);
  const [watch] = useState(() => (element: HTMLElement) => {
    held.elements.add(element);
    observer.current?.observe(element);
    return () => {
      held.elements.delete(element);
      observer.current?.unobserve(element);
    };
  });
  return { near, rooms: held.rooms, watch };
}
