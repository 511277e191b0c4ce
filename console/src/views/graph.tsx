// The turns of a tree as a graph: only the rows that are seen are in the page, however many there are.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Graph, Row } from "../graph";
import type { Turn } from "../wire";
import { Ago, Line, Status } from "./text";

const ROW = 58;
const LANE = 18;
const LEFT = 20;
const COLOURS = 6;

/** How many rows are drawn above and below what is seen. */
const BEYOND = 8;

const KINDS: Record<string, string> = {
  items: "Items added",
  omission: "Something was erased here",
  conversation: "Conversation",
};

interface Shown {
  graph: Graph;
  selected: string;
  onSelect: (turn: Turn) => void;
}

/** The words for a turn in a row. */
export const about = (turn: Turn): string =>
  turn.status === "deleted" ? "Deleted" : (turn.input || turn.output || (KINDS[turn.kind] ?? "No text to show"));

export function GraphView({ graph, selected, onSelect }: Shown) {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 800 });
  const at = graph.at.get(selected) ?? 0;
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () => setSeen({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    look();
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const top = at * ROW;
    if (top < element.scrollTop) element.scrollTop = top - ROW;
    else if (top + ROW > element.scrollTop + element.clientHeight) element.scrollTop = top - element.clientHeight / 2;
  }, [at, graph]);

  const first = Math.max(0, Math.floor(seen.top / ROW) - BEYOND);
  const last = Math.min(graph.rows.length, Math.ceil((seen.top + seen.height) / ROW) + BEYOND);
  const isDrawn = at >= first && at < last;

  function onKeyDown(event: KeyboardEvent) {
    const row = graph.rows[at];
    const page = Math.max(1, Math.floor(seen.height / ROW) - 1);
    const to: Record<string, number> = {
      ArrowUp: at - 1,
      ArrowDown: at + 1,
      ArrowLeft: row?.parent ?? -1,
      ArrowRight: row && row.next >= 0 ? row.next : -1,
      Home: 0,
      End: graph.rows.length - 1,
      PageUp: Math.max(0, at - page),
      PageDown: Math.min(graph.rows.length - 1, at + page),
    };
    const wanted = to[event.key];
    if (wanted === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const turn = graph.rows[wanted]?.turn;
    if (turn) onSelect(turn);
  }

  const width = LEFT + graph.lanes * LANE - 6;
  return (
    <div
      ref={box}
      class="graph"
      role="tree"
      aria-label="Turns"
      tabIndex={0}
      {...(isDrawn ? { "aria-activedescendant": `turn-${at}` } : {})}
      onKeyDown={onKeyDown}
    >
      <div role="none" class="rows" style={{ height: `${graph.rows.length * ROW}px` }}>
        {graph.rows.slice(first, last).map((row, index) => (
          <RowView key={row.turn.id} row={row} number={first + index} width={width} isSelected={at === first + index} onSelect={onSelect} />
        ))}
      </div>
    </div>
  );
}

function RowView({ row, number, width, isSelected, onSelect }: {
  row: Row;
  number: number;
  width: number;
  isSelected: boolean;
  onSelect: (turn: Turn) => void;
}) {
  const { turn } = row;
  return (
    <div
      id={`turn-${number}`}
      class={`row${isSelected ? " selected" : ""}`}
      role="treeitem"
      aria-level={turn.depth ?? 1}
      aria-selected={isSelected}
      style={{ transform: `translateY(${number * ROW}px)` }}
      onClick={() => onSelect(turn)}
    >
      <Lanes row={row} width={width} />
      <div class="words">
        <b><Line text={about(turn)} /></b>
        <span class="answer">{turn.input && turn.output && <Line text={turn.output} />}</span>
      </div>
      <div class="facts">
        {turn.status !== "completed" && turn.status !== "deleted" && <Status status={turn.status} />}
        {row.children > 1 && <span class="forks">{row.children} branches</span>}
        <span><span title="The number of the turn">{turn.depth}</span> · <Ago at={turn.created_at} /></span>
      </div>
    </div>
  );
}

const colour = (lane: number): string => `lane-${lane % COLOURS}`;
const x = (lane: number): number => LEFT / 2 + 3 + lane * LANE;

/** The lines through a row, and its turn on its own. */
function Lanes({ row, width }: { row: Row; width: number }) {
  const middle = ROW / 2;
  const own = x(row.lane);
  const aside = x(row.lane - 1);
  return (
    <svg class="lanes" width={width} height={ROW} aria-hidden="true">
      {Array.from({ length: row.lane }, (_, lane) => <path class={colour(lane)} d={`M${x(lane)} 0V${ROW}`} />)}
      {row.parent >= 0 && !row.forks && <path class={colour(row.lane)} d={`M${own} 0V${middle}`} />}
      {row.forks && <path class={colour(row.lane)} d={`M${aside} 0C${aside} ${0.8 * middle} ${own} ${0.2 * middle} ${own} ${middle}`} />}
      {row.next >= 0 && <path class={colour(row.lane)} d={`M${own} ${middle}V${ROW}`} />}
      <circle
        class={`${colour(row.lane)} ${row.turn.kind === "response" && row.turn.status !== "deleted" ? "" : "hollow"}`}
        cx={own}
        cy={middle}
        r={row.turn.kind === "response" ? 5 : 4}
      />
    </svg>
  );
}
