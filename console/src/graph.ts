// Where the turns of a tree are drawn: one row for each, in lanes as `git log --graph` has them, the root first. Pure.
//
// A turn is followed by its smaller branches, each whole, and then by its largest one, which goes on in its own lane. So a
// lane beside it is left before the next begins, and a tree of n turns has at most log2(n) + 1 lanes.
import type { Turn } from "./wire";

export interface Row {
  turn: Turn;
  lane: number;
  /** The row of its parent, or -1. */
  parent: number;
  /** The row of the child that goes on in its lane, or -1. */
  next: number;
  children: number;
  /** Whether it begins a lane of its own beside its parent's. */
  forks: boolean;
}

export interface Graph {
  rows: Row[];
  lanes: number;
  /** The row of each turn. */
  at: Map<string, number>;
}

/** The rows of turns, which are in any order. A turn whose parent isn't among them begins a line of its own. */
export function graphOf(turns: Turn[]): Graph {
  const known = new Set(turns.map((turn) => turn.id));
  const children = Map.groupBy(turns, ({ parent }) => (parent !== null && known.has(parent) ? parent : null));
  const roots = children.get(null) ?? [];
  const sizes = sizesOf(roots, children);
  const rows: Row[] = [];
  const at = new Map<string, number>();
  let lanes = 0;
  const open: { turn: Turn; lane: number; parent: number; forks: boolean }[] = roots
    .map((turn) => ({ turn, lane: 0, parent: -1, forks: false }))
    .reverse();
  for (let top = open.pop(); top; top = open.pop()) {
    const row = rows.length;
    const below = children.get(top.turn.id) ?? [];
    rows.push({ ...top, next: -1, children: below.length });
    at.set(top.turn.id, row);
    lanes = Math.max(lanes, top.lane + 1);
    const above = rows[top.parent];
    if (above && !top.forks) above.next = row;
    const [largest, ...others] = [...below].sort((a, b) => (sizes.get(b.id) ?? 0) - (sizes.get(a.id) ?? 0));
    if (largest) open.push({ turn: largest, lane: top.lane, parent: row, forks: false });
    others.sort((a, b) => b.created_at - a.created_at);
    for (const each of others) open.push({ turn: each, lane: top.lane + 1, parent: row, forks: true });
  }
  return { rows, lanes, at };
}

/** How many turns each branch has. */
function sizesOf(roots: Turn[], children: Map<string | null, Turn[]>): Map<string, number> {
  const order: Turn[] = [];
  const open = [...roots];
  for (let top = open.pop(); top; top = open.pop()) {
    order.push(top);
    open.push(...(children.get(top.id) ?? []));
  }
  const sizes = new Map<string, number>();
  for (const turn of order.reverse()) {
    const below = children.get(turn.id) ?? [];
    sizes.set(turn.id, below.reduce((sum, each) => sum + (sizes.get(each.id) ?? 0), 1));
  }
  return sizes;
}

/** The rows from the root to a row, that one included. */
export function chainOf(graph: Graph, row: number): Row[] {
  const chain: Row[] = [];
  for (let each = graph.rows[row]; each; each = graph.rows[each.parent]) chain.push(each);
  return chain.reverse();
}

/** The last response or items in the lane of a row. */
export function leafOf(graph: Graph, row: Row): Row {
  let leaf = row;
  for (let next = graph.rows[row.next]; next && next.turn.kind !== "conversation"; next = graph.rows[next.next]) leaf = next;
  return leaf;
}
