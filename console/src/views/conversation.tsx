// A conversation as it is read: the turns from its root to one of them, one below the other. Those near to what is seen are
// read first, and then the last 300, so that the browser's own search finds all they say; a browser lays out what is seen.
import { useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Graph, type Row, chainOf, leafOf } from "../graph";
import { toTurn } from "../state";
import { Coming, coming } from "./composer";
import { wordsFound } from "./list";
import { Line, count } from "./text";
import { type Acting, MAX_READ, TurnView, isResponse, wholeOf } from "./turn";

/** How far beyond what is seen turns are read. */
const NEAR = "80% 0px";

/** How many of the others are read at once. */
const AT_ONCE = 6;

interface Reading extends Pick<Acting, "onAct" | "onChanged"> {
  graph: Graph;
  /** The row of the last turn. */
  here: number;
  /** The words in that turn that were looked for. */
  words: string;
}

export function Conversation({ graph, here, words, onAct, onChanged }: Reading) {
  const chain = useMemo(() => chainOf(graph, here), [graph, here]);
  const asides = useMemo(() => asidesOf(graph, chain), [graph, chain]);
  const box = useRef<HTMLDivElement>(null);
  const shown = useShown(box, chain);
  const id = chain.at(-1)?.turn.id ?? "";
  useHeld(box, id, words);
  const after = useComputed(() => coming.value?.after).value;
  return (
    <div ref={box} class="reading" role="region" aria-label="Conversation" tabIndex={0}>
      <div>
      {chain.map((row, index) => (
        <Place
          key={row.turn.id}
          row={row}
          parent={chain[index - 1] ?? null}
          isShown={shown.has(row.turn.id) || row.turn.id === id}
          isHere={row.turn.id === id}
          asides={asides.get(row.turn.id)}
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
  isShown: boolean;
  isHere: boolean;
  asides: Aside[] | undefined;
}

function Place({ row, parent, isShown, isHere, asides, onAct, onChanged }: Standing) {
  const { turn } = row;
  return (
    <article data-turn={turn.id} class={isHere ? "turn here" : "turn"} aria-label={`Turn ${turn.depth ?? ""}`}>
      {isShown && (
        <>
          <TurnView turn={turn} parent={parent?.turn ?? null} isHere={isHere} onAct={onAct} onChanged={onChanged} />
          {asides && <Branches asides={asides} isEnd={isHere} />}
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
            <a href={toTurn(end)}><Line text={words} /></a>
          </li>
        ))}
      </ul>
      {asides.length > MAX_LISTED && <p class="hint">The graph has the others.</p>}
    </details>
  );
}

/** What somebody moves by: the window loses the focus to the browser's own search. */
const MOVES = ["wheel", "touchmove", "keydown", "pointerdown", "blur"] as const;

/**
 * Have the turn that is looked at, or the first of the words in it, stay where it was scrolled to while those above it get their
 * room, until somebody moves. The words are marked.
 */
function useHeld(box: { current: HTMLElement | null }, id: string, words: string): void {
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const looked = new WeakSet<Element>();
    let at: Element | undefined;
    const hold = () => {
      const turns = [".here .items", ".items"].flatMap((each) => [...element.querySelectorAll(each)]);
      if (words) at ??= turns.find((each) => !looked.has(each) && looked.add(each) && hasAll(each.textContent ?? "", words));
      const [first] = words ? marked(at ?? turns[0], words) : [];
      const folded = first?.closest("details");
      if (folded) folded.open = true;
      if (first) first.scrollIntoView({ block: "center" });
      else element.querySelector(".here")?.scrollIntoView({ block: "start" });
    };
    const observer = new ResizeObserver(hold);
    for (const each of [element, element.firstElementChild]) if (each) observer.observe(each);
    const reads = new MutationObserver(hold); // a turn that isn't seen is read without being laid out
    if (words) reads.observe(element, { childList: true, subtree: true });
    const leave = () => [observer, reads].forEach((each) => each.disconnect());
    for (const move of MOVES) addEventListener(move, leave, { passive: true });
    hold();
    return () => {
      leave();
      CSS.highlights.delete(FOUND);
      for (const move of MOVES) removeEventListener(move, leave);
    };
  }, [id, words]);
}

/** The name of marked words in the style sheet, and how many are marked. */
const FOUND = "found";
const MAX_MARKED = 1_000;

const hasAll = (text: string, words: string): boolean => words.split(/\s+/).every((word) => wordsFound(text, word).length > 0);

/** Mark words in what an element shows, which stays as it is; the elements in which they stand. */
function marked(element: Element | undefined, words: string): Element[] {
  const ranges: Range[] = [];
  if (!element) return [];
  const how = hasAll(element.textContent ?? "", words) ? "startsWith" : "includes";
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text && ranges.length < MAX_MARKED; text = texts.nextNode())
    for (const match of wordsFound(text.nodeValue ?? "", words, how)) {
      const range = new Range();
      range.setStart(text, match.index);
      range.setEnd(text, match.index + match[0].length);
      ranges.push(range);
    }
  CSS.highlights.set(FOUND, new Highlight(...ranges));
  return ranges.flatMap((range) => range.startContainer.parentElement ?? []);
}

/** The ids of the turns in the page: those near to what is seen, and the last ones as they are read. */
function useShown(box: { current: HTMLElement | null }, chain: Row[]): Set<string> {
  const [shown, setShown] = useState<Set<string>>(new Set());
  const isSeen = shown.size > 0; // what is seen is read first
  const last = chain.slice(-MAX_READ).map(({ turn }) => turn);
  const place = chain.map(({ turn }) => turn.id).join();
  useLayoutEffect(() => {
    const look = new IntersectionObserver(
      (entries) =>
        setShown((before) => {
          const next = new Set(before);
          for (const { target, isIntersecting } of entries) {
            const id = (target as HTMLElement).dataset["turn"] ?? "";
            if (isIntersecting) next.add(id);
            else if (!last.some((turn) => turn.id === id)) next.delete(id);
          }
          return next;
        }),
      { root: box.current, rootMargin: NEAR },
    );
    for (const element of box.current?.querySelectorAll("[data-turn]") ?? []) look.observe(element);
    return () => look.disconnect();
  }, [place]);
  useEffect(() => {
    const stop = new AbortController();
    async function readRest(): Promise<void> {
      const rest = last.filter(({ id }) => !shown.has(id));
      for (let some = rest.splice(-AT_ONCE); some.length && !stop.signal.aborted; some = rest.splice(-AT_ONCE)) {
        await Promise.allSettled(some.map((turn) => isResponse(turn) && wholeOf(turn.id, stop.signal))); // each says itself why not
        setShown((before) => new Set([...before, ...some.map(({ id }) => id)]));
      }
    }
    if (isSeen) void readRest();
    return () => stop.abort();
  }, [isSeen, place]);
  return shown;
}
