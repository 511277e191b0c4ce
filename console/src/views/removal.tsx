// Deleting: what each way means is said before it is done.
import { useState } from "preact/hooks";
import { type Extent, remove } from "../api";
import { type Turn, type WholeTree, isWhole } from "../wire";
import { Asking } from "./dialog";
import { Id, count } from "./text";

interface Removing {
  turn: Turn;
  tree: WholeTree;
  /** Whether the whole conversation is to be deleted, and nothing less. */
  isOfAll: boolean;
  onDone: (extent: Extent) => void;
  onClose: () => void;
}

const TITLES: Record<Extent, string> = {
  answer: "Delete this response?",
  erase: "Erase this response?",
  tree: "Delete this conversation?",
};

export function Removal({ turn, tree, isOfAll, onDone, onClose }: Removing) {
  const [extent, setExtent] = useState<Extent>(isOfAll ? "tree" : "answer");
  const label = extent === "erase" ? "Erase" : "Delete";
  const shown = tree.turns.length === 1 ? "Its only turn." : `All ${count(tree.turns.length, "turn")}, with every branch.`;
  const whole = isWhole(tree) ? shown : "Every turn and every branch, also those that aren't shown.";
  const ways: [Extent, string, string][] = [
    ["answer", "Delete the response", "It can't be retrieved any more. Later turns still know what it said."],
    ["erase", "Erase the response", "Its input and its output are removed, for later turns too: they go on without them."],
    ["tree", "Delete the conversation", whole],
  ];
  return (
    <Asking
      deletes
      title={TITLES[extent]}
      label={label}
      act={() => remove(turn.id, extent)}
      done={`${label}d`}
      onDone={() => onDone(extent)}
      onClose={onClose}
    >
      {isOfAll ? <p>{whole}</p> : (
        <>
          <p class="hint"><Id id={turn.id} /></p>
          {ways.map(([value, title, meaning]) => (
            <label class="way">
              <input type="radio" name="extent" checked={extent === value} onChange={() => setExtent(value)} />
              <span>
                <b>{title}</b>
                <span>{meaning}</span>
              </span>
            </label>
          ))}
        </>
      )}
      <p>This can't be undone.</p>
    </Asking>
  );
}
