// Taking something away: what each way means is said before it is done.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Extent, remove } from "../api";
import { type Turn, type WholeTree, isWhole } from "../wire";
import { Failure, Id, count, wordsOf } from "./text";

interface Removing {
  turn: Turn;
  tree: WholeTree;
  onDone: (extent: Extent) => void;
  onClose: () => void;
}

export function Removal({ turn, tree, onDone, onClose }: Removing) {
  const dialog = useRef<HTMLDialogElement>(null);
  const keep = useRef<HTMLButtonElement>(null);
  const [extent, setExtent] = useState<Extent>("answer");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    dialog.current?.showModal();
    keep.current?.focus();
  }, []);
  const ways: [Extent, string, string][] = [
    ["answer", "Delete this response", "It can't be retrieved any more. Turns that continue it still know what was said in it."],
    [
      "erase",
      "Erase this response",
      "What it was asked and what it said is taken out of the store, also for the turns that continue it: they go on without it.",
    ],
    [
      "tree",
      "Erase the whole conversation",
      `All ${count(tree.turns.length, "turn")} of it, with every branch${isWhole(tree) ? "" : ", also those that aren't shown"}.`,
    ],
  ];
  async function confirm(event: SubmitEvent) {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      await remove(turn.id, extent);
      onDone(extent);
    } catch (caught) {
      setError(wordsOf(caught));
      setBusy(false);
    }
  }
  return (
    <dialog ref={dialog} aria-labelledby="removal" onClose={onClose}>
      <form onSubmit={confirm}>
        <h2 id="removal">What is to go?</h2>
        <p class="hint">
          <Id id={turn.id} />
        </p>
        {ways.map(([value, title, meaning]) => (
          <label class="way">
            <input type="radio" name="extent" checked={extent === value} onChange={() => setExtent(value)} />
            <span>
              <b>{title}</b>
              <span>{meaning}</span>
            </span>
          </label>
        ))}
        <p class="hint">Nothing of it can be taken back.</p>
        <Failure error={error} />
        <footer>
          <button ref={keep} type="button" onClick={() => dialog.current?.close()}>
            Keep it
          </button>
          <button type="submit" class="danger" disabled={busy}>
            {extent === "answer" ? "Delete" : "Erase"}
          </button>
        </footer>
      </form>
    </dialog>
  );
}
